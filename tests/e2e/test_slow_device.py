"""A device that is slow and works is waited for; what waits behind it, too."""
import time

from cluster import CONVERSATIONS, Cluster, generate_body, in_parallel

LONG = CONVERSATIONS[59]  # 1365 prompt tokens


def ask(c, row, **more):
    return c.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"], **more), timeout=60)


def right(r, row):
    assert r.status == 200, r.body
    return r.json()["choices"][0]["text"] == row["greedy_text"]


def test_prompts_in_passes_and_behind_others_are_no_stall(build, tmp_path):
    """22 passes of 250 ms each, and no answer for as long; the second prompt is in none of the first one's."""
    slow = "--max-num-batched-tokens 64 --debug-fault step_delay_ms=250"
    with Cluster(tmp_path, build, router_flags="--stall-timeout-s 2", prefill_flags=slow) as c:
        got = in_parallel(lambda row: (ask(c, row), row), [LONG, LONG], 2)
        assert all(right(*g) for g in got)


def test_passes_are_as_short_as_the_device_is_slow(build, tmp_path):
    """300 ms and more are within a tenth of a minute, and beyond a tenth of 2 s."""
    def passes(timeout):
        slow = f"--device-timeout-s {timeout} --debug-fault step_delay_ms=300"
        folder = tmp_path / str(timeout)
        folder.mkdir()
        with Cluster(folder, build, prefill_flags=slow) as c:
            counts = []
            for _ in range(4):  # the first ones are measured
                assert right(ask(c, LONG), LONG)
                time.sleep(1)  # a beat
                counts.append(c.metric("baton_worker_prefill_steps_total"))
            assert c.metric("baton_workers_lost_total") == 0
            return counts[-1] - counts[-2]
    assert passes(2) > 2 * passes(60)
