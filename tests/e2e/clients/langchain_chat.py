"""Conversations through `langchain-openai`."""
import json
import sys

from langchain_openai import ChatOpenAI

given = json.load(sys.stdin)
model = ChatOpenAI(base_url=f"http://127.0.0.1:{given['port']}/v1", api_key="none", model="demo", temperature=0, max_retries=0,
                   extra_body={"chat_template_kwargs": {"enable_thinking": False}})
print(json.dumps({
    "invoke": [model.invoke(m).content for m in given["messages"]],
    "stream": ["".join(c.content for c in model.stream(m)) for m in given["messages"]],
    "batch": [a.content for a in model.batch(given["messages"])],
}))
