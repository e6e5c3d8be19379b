"""The golden conversations through HTTP on GPUs, as prompts and as chats, one by one and
sixteen at once; prefill and decode on one GPU, on two by CUDA IPC, on two through host memory.
usage: cluster_gpu.py DIR"""
import sys
import time

import rig
from rig import cluster

# BF16 may decide otherwise where the two best logits are this close.
CLEAR = 0.3
TWO = "two-gpus" if rig.GPUS[0] != rig.GPUS[1] else "same-gpu"
PLACES = [("one-gpu", ("0", "0"), "cuda_ipc"), (f"{TWO}-ipc", rig.GPUS, "cuda_ipc"),
          (f"{TWO}-host", rig.GPUS, "cuda_host")]
ROWS = cluster.CONVERSATIONS
CHATS = [row for row in ROWS if row["tools"] is None]


def answer(r):
    if r.status != 200:
        raise RuntimeError(f"status {r.status}: {r.body[:300]}")
    return r.json()["choices"][0]


def complete(c, row):
    """(text, finish_reason, request id)"""
    r = c.post("/v1/completions", cluster.generate_body(row, prompt=row["prompt_ids"]))
    choice = answer(r)
    return choice["text"], choice["finish_reason"], r.headers["X-Request-Id"]


def chat(c, row):
    r = c.post("/v1/chat/completions", cluster.chat_body(row))
    choice = answer(r)
    message = choice["message"]
    return (cluster.joined(row, message.get("reasoning_content"), message["content"]), choice["finish_reason"],
            r.headers["X-Request-Id"])


FORMS = [("prompts", complete, ROWS), ("chats", chat, CHATS)]


def judge(table, what, rows, results, seconds):
    """Clear conversations must be right; how many of the others are is told."""
    wrong, close, broken = [], 0, []
    for i, (row, result) in enumerate(zip(rows, results)):
        if isinstance(result, Exception):
            broken.append(f"{i}: {result}")
        elif result[:2] != (row["greedy_text"], "stop"):
            close += row["min_margin"] < CLEAR
            if row["min_margin"] >= CLEAR:
                wrong.append(f"{i} (margin {row['min_margin']:.2f}): {result[0][:60]!r}")
    clear = sum(row["min_margin"] >= CLEAR for row in rows)
    table.add(not wrong and not broken, f"{what}: {clear - len(wrong)} of {clear} clear ones right, {close} of "
              f"{len(rows) - clear} close ones differ, {len(broken)} failed, {seconds:.1f} s")
    for line in (wrong + broken)[:3]:
        table.note(line)


def transports(c, results):
    ids = [r[2] for r in results if not isinstance(r, Exception)][:4]
    return {c.outcome(i)["transport"] for i in ids}


def serve(table, build, name, gpus, transport, model):
    c = rig.gpu_cluster(build, name, gpus, model=model, transport=transport)
    try:
        begun = time.monotonic()
        c.up()
        table.note(f"{name}: up in {time.monotonic() - begun:.1f} s")
        for threads, pace in ((1, "one by one"), (16, "sixteen at once")):
            for form, work, rows in FORMS:
                begun = time.monotonic()
                results = rig.at_once(lambda row, work=work: work(c, row), rows, threads)
                judge(table, f"{name}, {form} {pace}", rows, results, time.monotonic() - begun)
                seen = transports(c, results)
                if seen != {transport}:
                    table.add(False, f"{name}, {form} {pace}: transport {seen}")
        time.sleep(1.2)  # the next beat tells
        rows = c.metric("baton_decode_rows_max")
        table.add(rows >= 8, f"{name}: most rows in one step {rows:.0f}")
        methods = {dict(labels)["copy"] for (metric, labels), _ in c.metrics().items()
                   if metric == "baton_handovers_total" and dict(labels)["transport"] == transport}
        table.add(len(methods) == 1 and ("" in methods) == (transport != "cuda_ipc"),
                  f"{name}: copies by {methods}, by the metric")
        down = c.down()
        table.add(down.returncode == 0, f"{name}: drained and stopped, status {down.returncode}")
    except BaseException as e:  # noqa: B902: the other clusters go on
        table.add(False, f"{name}: {str(e)[-1500:]}")
        c.down()
    finally:
        rig.keep_logs(c, name)
    for line in c.log("d0").splitlines():
        if "copy=" in line:
            table.note(line.split("transport=", 1)[1][:230])


def main(folder):
    table, build = rig.Table(), rig.programs(folder)
    models = {"nvfp4": rig.DEMO, "bf16": rig.bf16_demo()}
    for place, gpus, transport in PLACES:
        rig.at_once(lambda m: serve(table, build, f"{place}-{m}", gpus, transport, models[m]), models, 2)
    table.end("30_cluster")


if __name__ == "__main__":
    main(sys.argv[1])
