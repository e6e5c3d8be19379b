"""An agent of `langchain`: it calls a tool, is told what came out, and answers."""
import json
import sys

from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

given = json.load(sys.stdin)
ran = []


def made(tool):
    f = tool["function"]

    def run(**arguments):
        ran.append([f["name"], arguments])
        return given["result"]
    return StructuredTool.from_function(run, name=f["name"], description=f["description"], args_schema=f["parameters"])


def agent(**more):
    model = ChatOpenAI(base_url=f"http://127.0.0.1:{given['port']}/v1", api_key="none", model="demo", temperature=0, max_retries=0,
                       extra_body={"chat_template_kwargs": {"enable_thinking": False}}, **more)
    return create_agent(model, [made(t) for t in given["tools"]])


question = {"messages": given["messages"]}
whole = agent().invoke(question)["messages"]
streamed = list(agent(streaming=True).stream(question, stream_mode="values"))[-1]["messages"]
print(json.dumps({"ran": ran, "whole": [[m.type, m.text] for m in whole], "streamed": [[m.type, m.text] for m in streamed]}))
