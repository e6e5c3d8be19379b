"""Other people's clients, unchanged, calling tools: every one asks, runs what was called, and sends
back what came out."""
import json

import pytest

from cluster import CONVERSATIONS, Cluster

CALLING = [row for row in CONVERSATIONS if row["tools"] is not None and "<tool_call>" in row["greedy_text"]]
WEATHER = next(row for row in CALLING if "weather" in row["messages"][-1]["content"])
RESULT, ANSWER = "21 degrees, rain", "The weather in Accra: 21 degrees, rain."
CALL = ["get_weather", '{"city": "Accra"}']


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("client_tools"), build) as c:
        yield c


def test_openai_goes_round(cluster, use):
    bodies = [{"model": "demo", "messages": row["messages"], "tools": row["tools"], "temperature": 0,
               "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}} for row in CALLING]
    seen = use("openai_tools", cluster.port, bodies=bodies, result=RESULT)
    for row, ways in zip(CALLING, seen):
        assert all(way == ways[0] for way in ways), ways
        finish, calls, end, _, ids = ways[0]
        assert (finish, end, ids) == ("tool_calls", "stop", 1)
        assert row is not WEATHER or (calls, ways[0][3]) == ([CALL], ANSWER)


def test_an_agent_of_langchain_calls_and_answers(cluster, use):
    seen = use("langchain_agent", cluster.port, messages=WEATHER["messages"], tools=WEATHER["tools"], result=RESULT)
    assert seen["ran"] == [["get_weather", {"city": "Accra"}]] * 2
    assert seen["whole"] == seen["streamed"]
    assert seen["whole"][-3:] == [["ai", ""], ["tool", RESULT], ["ai", ANSWER]]


def test_the_command_llm_runs_a_function(cluster, use):
    functions = f'def get_weather(city: str) -> str:\n    "Weather of a city"\n    return {json.dumps(RESULT)}\n'
    seen = use("llm_tools", cluster.port, functions=functions, prompt=WEATHER["messages"][-1]["content"])
    assert seen == ANSWER
