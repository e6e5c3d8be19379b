"""What `openai` raises for each refusal, and that it retries what it should."""
import json
import sys
import time

import openai

given = json.load(sys.stdin)
client = openai.OpenAI(base_url=f"http://127.0.0.1:{given['port']}/v1", api_key="none", timeout=60, max_retries=given.get("retries", 0))
OK = {"model": "demo", "messages": [{"role": "user", "content": "What is 10 + 98?"}], "temperature": 0}
seen = []
for change in given["changes"]:
    begun = time.monotonic()
    try:
        client.chat.completions.create(**{**OK, **change})
        seen.append(["fine"])
    except openai.APIStatusError as e:
        seen.append([type(e).__name__, e.status_code, e.code, e.param, round(time.monotonic() - begun, 1)])
print(json.dumps(seen))
