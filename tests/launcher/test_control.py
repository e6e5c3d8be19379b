"""The socket of orders, without a supervisor behind it."""
import json
import socket
import threading
import types

from launcher.control import CLIENTS_MAX, LINE_MAX, Orders, ask


def orders(tmp_path):
    o = Orders(tmp_path / "s")
    o.open()
    return o


def whole(o, turns=20):
    found = []
    for _ in range(turns):
        found += o.turn(0.01)
    return found


def connected(o):
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(o.path))
    return s


def test_an_order_is_one_whole_line_however_it_arrives(tmp_path):
    o = orders(tmp_path)
    with connected(o) as s:
        s.sendall(b'{"order": ')
        assert whole(o) == []
        s.sendall(b'"up"}\nrest')
        [(client, order)] = whole(o)
        assert order == {"order": "up"}
        client.say("one")
        client.done(0, None)
        assert [json.loads(t) for t in s.makefile()] == [{"say": "one"}, {"done": 0, "say": None}]
    o.close()
    assert not o.path.exists()


def test_what_is_no_order_is_answered_and_closed(tmp_path):
    o = orders(tmp_path)
    for text in (b"\n", b"[]\n", b'{"order": 1}\n', b"\xff\n", b"x" * (LINE_MAX + 1)):
        with connected(o) as s:
            threading.Thread(target=s.sendall, args=(text,)).start()
            assert whole(o) == []
            assert json.loads(s.makefile().readline())["done"] == 2
    o.close()


def test_many_that_say_nothing_keep_nobody_out(tmp_path):
    o = orders(tmp_path)
    silent = []
    for _ in range(CLIENTS_MAX + 5):
        silent.append(connected(o))
        o.turn(0)
    with connected(o) as s:
        s.sendall(b'{"order": "up"}\n')
        assert len(whole(o)) == 1
    assert len(o.clients) <= CLIENTS_MAX
    for c in silent:
        c.close()
    o.close()


def test_one_that_does_not_read_is_dropped_and_holds_nobody_up(tmp_path):
    o = orders(tmp_path)
    with connected(o) as s:
        s.sendall(b'{"order": "up"}\n')
        [(client, _)] = whole(o)
        for _ in range(10000):
            client.say("x" * 100)
        assert not client.open
    o.close()


def test_an_answer_that_breaks_off_is_none(tmp_path):
    place = types.SimpleNamespace(socket_path=tmp_path / "s")
    assert ask(place, {"order": "up"}, None) is None
    o = orders(tmp_path)
    said = []
    t = threading.Thread(target=lambda: [c.say("a") or c.close() for c, _ in whole(o)])
    t.start()
    assert ask(place, {"order": "up"}, lambda text, code: said.append((text, code))) is None
    t.join()
    assert said == [("a", 0)]
    o.close()
