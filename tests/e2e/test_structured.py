"""Structured output through the whole cluster: whatever is drawn at a high temperature, an answer
that reaches its end is one of the form that was asked for, by validators that share no code.

More of each by hand: BATON_FORM_ANSWERS=500 asks for so many answers of all forms."""
import json
import os
import pathlib
import re

import jsonschema
import pytest

from cluster import CONVERSATIONS, Cluster, Stream, chat_body, in_parallel

FORMS = json.loads((pathlib.Path(__file__).parent / "forms.json").read_text())
ANSWERS = int(os.environ.get("BATON_FORM_ANSWERS", "0"))
SCHEMAS = FORMS["schemas"] if ANSWERS else FORMS["schemas"][::2]
REGEXES = FORMS["regexes"] if ANSWERS else FORMS["regexes"][::2]
WILD = {"temperature": 1.5, "top_p": 1, "top_k": 0, "prompt": "Tell me.", "max_tokens": 200}
PATH, CHAT = "/v1/completions", "/v1/chat/completions"
PERSON = FORMS["schemas"][0]


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("structured"), build) as c:
        yield c


def ask(cluster, path=PATH, **body):
    r = cluster.post(path, body if "messages" in body else WILD | body)
    assert r.status == 200, r.body
    return r.json()


def texts(cluster, members):
    """(text, finish_reason) of ANSWERS or a few answers."""
    out, per = [], 25
    for seed in range(0, ANSWERS or 4, per):
        answer = ask(cluster, **members, n=min(per, ANSWERS or 4), seed=seed)
        out += [(c["text"], c["finish_reason"]) for c in answer["choices"]]
    return out


def ended(answers, form):
    """Those that the length did not cut."""
    assert all(finish in ("stop", "length") for _, finish in answers)
    whole = [text for text, finish in answers if finish == "stop"]
    return whole


def test_every_answer_that_ends_is_valid_by_its_schema(cluster):
    def one(schema):
        whole = ended(texts(cluster, {"guided_json": schema}), schema)
        for text in whole:
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))
        return len(whole)
    ends = in_parallel(one, SCHEMAS, threads=8)
    assert sum(ends) > len(SCHEMAS)


def test_every_answer_that_ends_matches_its_expression(cluster):
    def one(regex):
        whole = ended(texts(cluster, {"guided_regex": regex}), regex)
        for text in whole:
            assert re.fullmatch(regex, text), (regex, text)
        return len(whole)
    ends = in_parallel(one, REGEXES, threads=8)
    assert sum(ends) > len(REGEXES)


def test_a_choice_is_one_of_the_list_and_each_of_them_comes(cluster):
    words = ["yes", "no", "no way", "ümlaut", "\"quoted\" \\ text"]
    for members in ({"guided_choice": words}, {"structured_outputs": {"choice": words}}):
        got = ask(cluster, **members, n=64, seed=7, temperature=2)["choices"]
        assert {c["finish_reason"] for c in got} == {"stop"}
        assert {c["text"] for c in got} <= set(words) and len({c["text"] for c in got}) >= 3


@pytest.mark.parametrize("thinking", [False, True])
def test_a_form_begins_behind_the_reasoning_of_a_chat(cluster, thinking):
    row = next(r for r in CONVERSATIONS if r["enable_thinking"] == thinking and not r["tools"]
               and (not thinking or "</think>" in r["greedy_text"]))
    form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    free = ask(cluster, CHAT, **chat_body(row))["choices"][0]["message"]
    choice = ask(cluster, CHAT, **chat_body(row, response_format=form, max_tokens=400))["choices"][0]
    message = choice["message"]
    assert message.get("reasoning") == free.get("reasoning")
    assert bool(message.get("reasoning")) == thinking
    if choice["finish_reason"] == "stop":
        jsonschema.validate(json.loads(message["content"]), PERSON)
    else:
        assert message["content"].startswith('{"name":')


def test_a_streamed_form_is_the_same_text(cluster):
    body = WILD | {"structured_outputs": {"json": PERSON}, "seed": 3}
    whole = ask(cluster, **body)["choices"][0]["text"]
    s = Stream(cluster, PATH, body | {"stream": True})
    assert whole == "".join(e["choices"][0]["text"] for e in s.events())


def test_an_object_of_any_form_is_json(cluster):
    answers = ask(cluster, response_format={"type": "json_object"}, n=16, seed=5)["choices"]
    for c in answers:
        assert c["text"][0] == "{"
        if c["finish_reason"] == "stop":
            assert isinstance(json.loads(c["text"]), dict)


def test_an_answer_that_the_length_cuts_says_so(cluster):
    c = ask(cluster, guided_regex="[a-z]{300}", max_tokens=5)["choices"][0]
    assert c["finish_reason"] == "length" and re.fullmatch("[a-z]{1,299}", c["text"])


def deep(n):
    return {"type": "array", "items": deep(n - 1)} if n else {"type": "null"}


REFUSED = [
    ({"guided_json": {"type": "integer", "multipleOf": 3}}, "multipleOf"),
    ({"guided_json": {"oneOf": [{"type": "null"}]}}, "oneOf"),
    ({"guided_json": {"type": "object", "properties": {"me": {"$ref": "#"}}}}, "recursive"),
    ({"guided_json": {"type": "string", "pattern": "(?=a)"}}, "pattern"),
    ({"guided_json": {"type": "string", "minLength": 9, "maxLength": 3}}, "minLength"),
    ({"guided_json": {"enum": [], "type": "string"}}, "no value"),
    ({"guided_json": "{not json"}, "line"),
    ({"guided_json": deep(60)}, "schemas in each other"),
    ({"guided_json": {"type": "object", "properties": {f"k{i}": {"type": "object"} for i in range(400)}}}, "complex"),
    ({"guided_json": {"enum": ["x" * 1000000]}}, "bytes"),
    ({"guided_regex": "(a"}, "missing"),
    ({"guided_regex": "(a{1000}){1000}"}, "complex"),
    ({"guided_regex": "(.*a){12}.{14}" * 20}, "complex"),
    ({"guided_regex": "a|(b|(" + "(" * 40 + "c" + ")" * 42}, "groups in each other"),
    ({"guided_regex": r"(a)\1"}, "references"),
]


@pytest.mark.parametrize("form, word", REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_understood_or_too_much_is_refused_at_once(cluster, form, word):
    r = cluster.post(PATH, WILD | form, timeout=10)
    assert r.status == 400, r.body
    error = r.json()["error"]
    assert error["param"] == next(iter(form)) and word in error["message"]


@pytest.mark.parametrize("more", [{"stop": "a"}, {"stop_token_ids": [5]}, {"ignore_eos": True}, {"min_tokens": 3}],
                         ids=lambda m: next(iter(m)))
def test_what_could_end_an_answer_inside_of_its_form_is_refused(cluster, more):
    r = cluster.post(PATH, WILD | {"guided_regex": "ab"} | more)
    assert r.status == 400 and r.json()["error"]["param"] == next(iter(more))


def test_two_forms_at_once_are_refused(cluster):
    r = cluster.post(PATH, WILD | {"guided_regex": "ab", "response_format": {"type": "json_object"}})
    assert r.status == 400 and "one form only" in r.json()["error"]["message"]


def test_a_form_stands_where_the_generated_tokens_left_it(rig):
    """A replay and a hand-over carry the form's text and the tokens: what follows is the same."""
    _, _, r = rig.pair()
    talk = CONVERSATIONS[60]["prompt_ids"]
    form = {"grammar_kind": 2, "grammar": "[ab]{4}(?:xy|z){40}"}
    request = r.prefill("p0", talk, **form)
    done = r.take("prefilled", request, "rejected", "finished")
    first = done["first"][0]["token"]
    r.adopt("d0", "p0", request, done, [first], len(talk), max_tokens=30, **form)
    r.take("adopted", request, "rejected")
    r.take("finished", request, "rejected")
    whole = [first] + r.tokens(request)
    assert len(whole) == 30
    for cut in (1, 7, 20):
        again = r.prefill("p0", talk + whole[:cut], n_prompt=len(talk), **form)
        done = r.take("prefilled", again, "rejected", "finished")
        assert done["first"][0]["token"] == whole[cut]
        r.adopt("d0", "p0", again, done, whole[:cut + 1], len(talk), max_tokens=30, **form)
        r.take("adopted", again, "rejected")
        r.take("finished", again, "rejected")
        assert r.tokens(again) == whole[cut + 1:]
    wrong = r.prefill("p0", talk + whole[:5] + [whole[0]], n_prompt=len(talk), grammar_kind=2, grammar="[cd]")
    assert b"does not follow the grammar" in r.take("rejected", wrong, "prefilled")["text"].encode()
