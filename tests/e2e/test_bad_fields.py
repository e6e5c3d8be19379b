"""Every member of a generation request with wrong values: status, code and param as stated
in bad_fields.json, while a stream beside goes on unchanged."""
import json
import pathlib
import re
import threading

import pytest

from cluster import CONVERSATIONS, ROOT, Cluster, Stream

ROWS = json.loads((pathlib.Path(__file__).parent / "bad_fields.json").read_text())
CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
BASE = {CHAT: {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}, TEXT: {"max_tokens": 1, "prompt": "x"},
        MESSAGES: {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]},
        RESPONSES: {"max_output_tokens": 1, "input": "x"}}


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("badfields"), build) as c:
        yield c


def table(lines=None):
    """(path, member) of the parsers' table, as router/FIELDS.md shows it."""
    for line in lines or (ROOT / "router/FIELDS.md").read_text().splitlines():
        m = re.match(r"\| `(\w+)` \|" + r" (x?) \|" * len(BASE), line)
        if m:
            yield from ((path, m[1]) for path, has in zip(BASE, m.groups()[1:]) if has)


def test_every_member_of_the_table_has_a_row():
    known = set(table())
    assert len(known) > 200
    assert known == {(row["path"], row["field"]) for row in ROWS if row["path"] in BASE}


class Beside:
    """The same stream over and over."""

    def __init__(self, cluster):
        self.cluster, self.texts, self.stop = cluster, [], False
        self.want = self.text()
        self.thread = threading.Thread(target=self.run)

    def text(self):
        s = Stream(self.cluster, TEXT, {"prompt": CONVERSATIONS[60]["prompt_ids"], "temperature": 0,
                                        "max_tokens": 200, "ignore_eos": True})
        text = "".join(c["text"] for e in s.events() for c in e["choices"])
        assert s.done
        return text

    def run(self):
        while not self.stop:
            self.texts.append(self.text())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()


def check(cluster, row):
    body = {**BASE.get(row["path"], {}), **row.get("with", {}), row["field"]: row["value"]}
    r = cluster.post(row["path"], body)
    if r.status != row["status"]:
        return f"{r.status} {r.body[:200]}"
    if r.status == 200:
        return None
    error = r.json()["error"]
    have = (error["code"], error.get("param"))
    return None if have == (row["code"], row["param"]) and error["message"] else f"{have} {error['message']}"


@pytest.mark.asan
def test_wrong_values_are_refused_by_name_and_harm_nobody(cluster):
    with Beside(cluster) as beside:
        wrong = [(row, said) for row in ROWS if (said := check(cluster, row))]
    assert not wrong, "\n".join(f"{json.dumps(row)[:200]}: {said}" for row, said in wrong)
    assert beside.texts and set(beside.texts) == {beside.want}
