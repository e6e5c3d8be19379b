"""A socket file, the router's or a worker's, is removed under it, as a cleaner of old files does."""
import shutil
import socket

import pytest

from cluster import CONVERSATIONS, Cluster, Stream, generate_body, wait_for
from worker_rig import Worker

SLOW = "--debug-fault step_delay_ms=4"
SECONDS = 5  # within which it is noticed


@pytest.fixture
def cluster(build, tmp_path_factory):
    # a short path: sockets stand in it
    with Cluster(tmp_path_factory.mktemp("s"), build, decode_flags=SLOW) as c:
        yield c


def socket_file(cluster):
    return cluster.runtime / "routers" / "r0.sock"


def errors(cluster, name="r0"):
    return [line for line in cluster.log(name).splitlines() if line.split()[1:2] == ["error"]]


def late_worker(build, cluster, role, name):
    return Worker(build, cluster.runtime, [], role, name, beat_ms=500, lost_ms=4000)


def in_fleet(cluster, name):
    return any(("worker", name) in labels for _, labels in cluster.metrics())


def check_answers(cluster):
    row = CONVERSATIONS[0]
    answer = cluster.post("/v1/completions", generate_body(row, prompt=row["prompt"]))
    assert answer.status == 200, answer.body
    assert answer.json()["choices"][0]["text"] == row["greedy_text"]


@pytest.mark.parametrize("with_directory", [False, True])
def test_it_is_bound_again_and_who_came_later_joins(build, cluster, with_directory):
    row = CONVERSATIONS[0]
    stream = Stream(cluster, "/v1/completions", generate_body(row, prompt=row["prompt"], max_tokens=400,
                                                              ignore_eos=True))
    events = stream.events()
    next(events)
    if with_directory:
        shutil.rmtree(socket_file(cluster).parent)
    else:
        socket_file(cluster).unlink()
    wait_for(lambda: errors(cluster), SECONDS)
    assert len(errors(cluster)) == 1
    assert str(socket_file(cluster)) in errors(cluster)[0] and "bound anew" in errors(cluster)[0]
    assert socket_file(cluster).is_socket()
    late = late_worker(build, cluster, "decode", "d9")
    try:
        wait_for(lambda: in_fleet(cluster, "d9"), 10)
        last = [choice for event in events for choice in event["choices"]][-1]
        assert stream.done and last["finish_reason"] == "length", "the stream went on beside it"
        assert cluster.metric("baton_workers_lost_total") == 0
        assert cluster.metric("baton_socket_rebound_total") == 1
        assert cluster.metric("baton_socket_lost") == 0
        # the launcher starts it again: it must find the new file, too
        cluster.kill("p0")
        wait_for(lambda: cluster.rows()["p0"]["restarts"] == 1, 10)
        wait_for(cluster.ready, 30)
        check_answers(cluster)
    finally:
        late.close()
    assert len(errors(cluster)) == 1


def test_what_cannot_be_mended_is_said_once_and_shown_until_it_can(build, cluster):
    path = socket_file(cluster)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        wait_for(lambda: cluster.metric("baton_socket_lost") == 1, SECONDS)
        check_answers(cluster)
        wait_for(lambda: len(errors(cluster)) == 1, SECONDS)
        assert "in use by another process" in errors(cluster)[0]
    wait_for(lambda: cluster.metric("baton_socket_lost") == 0, SECONDS)
    assert len(errors(cluster)) == 2 and "bound anew" in errors(cluster)[1]
    late = late_worker(build, cluster, "prefill", "p9")
    try:
        wait_for(lambda: in_fleet(cluster, "p9"), 10)
    finally:
        late.close()


def test_the_link_of_a_prefill_worker_is_bound_again_and_new_decode_workers_find_it(build, cluster):
    check_answers(cluster)  # d0 has its link
    row = CONVERSATIONS[0]
    link, = cluster.runtime.glob("p0.*.link")
    stream = Stream(cluster, "/v1/completions", generate_body(row, prompt=row["prompt"], max_tokens=300,
                                                              ignore_eos=True))
    events = stream.events()
    next(events)
    link.unlink()
    check_answers(cluster)  # over the link that is open
    wait_for(lambda: errors(cluster, "p0"), SECONDS)
    assert len(errors(cluster, "p0")) == 1
    assert str(link) in errors(cluster, "p0")[0] and "bound anew" in errors(cluster, "p0")[0]
    assert link.is_socket()
    last = [choice for event in events for choice in event["choices"]][-1]
    assert stream.done and last["finish_reason"] == "length"
    cluster.kill("d0")  # the next one has no link yet
    wait_for(lambda: cluster.rows()["d0"]["restarts"] == 1, 10)
    wait_for(cluster.ready, 30)
    check_answers(cluster)
    assert len(errors(cluster, "p0")) == 1 and errors(cluster, "r0") == []
