#!/usr/bin/env -S /usr/bin/python3 -I
"""Ask the demo cluster one question whose answer is known, print it as it streams, and
say what happened: time to first token, bytes handed over, and which processes served it.
Exit status 0 only when the answer was right."""
import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.request

QUESTION = ("The code of bronze is 9304. The code of nest is 8792. The code of scarlet is 1708. "
            "What is the code of nest?")
ANSWER = "The code of nest is 8792."


def stream(url, body):
    """Yields (seconds since the request, event) for each event of the answer."""
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    start = time.monotonic()
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as e:
        sys.exit(f"the router answered {e.code}: {e.read().decode(errors='replace')}")
    with answer:
        yield 0.0, {"id": answer.headers.get("X-Request-Id")}
        for line in answer:
            if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                yield time.monotonic() - start, json.loads(line[6:])


def outcome(log, request_id, patience=5.0):
    """The router's one line about this request, as a dictionary."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        for line in reversed(log.read_text(errors="replace").split("\n")):
            if "outcome" in line and f"req={request_id} " in line + " ":
                return dict(re.findall(r"(\S+?)=(\S+)", line))
        time.sleep(0.05)
    return {}


def main():
    url, log = sys.argv[1], pathlib.Path(sys.argv[2])
    print(f"\n  you:   {QUESTION}")
    first, content, reasoning, request_id, usage = None, "", "", None, {}
    place = None
    for at, event in stream(url, {"stream": True, "temperature": 0,
                                  "stream_options": {"include_usage": True},
                                  "messages": [{"role": "user", "content": QUESTION}]}):
        if "choices" not in event:
            request_id = event.get("id")
            continue
        if event.get("usage"):
            usage = event["usage"]
        for choice in event["choices"]:
            delta = choice["delta"]
            thought, text = delta.get("reasoning_content") or "", delta.get("content") or ""
            if (thought or text) and first is None:
                first = at
            if thought and place != "thinks":
                place = "thinks"
                print("  baton: (thinks) ", end="")
            if text and place != "says":
                place = "says"
                print("\n  baton: ", end="")
            print(thought + text, end="", flush=True)
            reasoning, content = reasoning + thought, content + text
    print("\n")
    seen = outcome(log, request_id)
    right = content == ANSWER
    print(f"  time to first token   {1000 * (first or 0):.1f} ms")
    print(f"  tokens                {usage.get('prompt_tokens', '?')} in, {usage.get('completion_tokens', '?')} out")
    print(f"  state handed over     {seen.get('handover_bytes', '?')} bytes by {seen.get('transport', '?')}")
    print(f"  prefill worker        {seen.get('prefill', '?')}   (id#incarnation)")
    print(f"  decode worker         {seen.get('decode', '?')}")
    print(f"  answer                {'right' if right else 'WRONG, expected: ' + ANSWER}\n")
    handed = seen.get("handover_bytes", "0")
    return 0 if right and handed.isdigit() and int(handed) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
