"""The page at / in a real browser: the cluster as it is, and a chat."""
import json
import os
import pathlib
import signal

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from cluster import CONVERSATIONS, ROOT, Cluster, wait_for

SHOTS = pathlib.Path(os.environ.get("BATON_RESULTS", ROOT / "build/results"))
SECONDS = 60


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("page"), build, decode=2) as c:
        yield c


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,900",
                 f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    b = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    yield b
    b.quit()


@pytest.fixture
def page(cluster, browser):
    """Opened anew; what the browser complains of fails the test."""
    browser.get_log("browser")
    browser.get(f"http://127.0.0.1:{cluster.port}/")
    wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "#workers tr"), SECONDS)
    yield browser
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def one(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def texts(page, selector):
    """In one step: the page redraws its table every second."""
    return page.execute_script("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)


def set_up(page, thinking, max_tokens=""):
    page.execute_script("document.getElementById('settings').open = true")
    if one(page, "#think").is_selected() != thinking:
        one(page, "#think").click()
    for name, value in (("temperature", "0"), ("max", max_tokens)):
        one(page, f"#{name}").clear()
        one(page, f"#{name}").send_keys(value)


def ask(page, words):
    one(page, "#prompt").send_keys(words, Keys.ENTER)


def finished(page, n=1):
    wait_for(lambda: len(texts(page, ".assistant .foot")) == n and one(page, "#send").is_enabled(), SECONDS)
    return texts(page, ".assistant .foot")[-1]


def shoot(page, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    assert page.save_screenshot(str(SHOTS / f"page-{name}.png"))
    assert (SHOTS / f"page-{name}.png").stat().st_size > 5000


def test_it_holds_all_that_it_needs_and_lets_nothing_else_in(cluster):
    answer = cluster.get("/")
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    text, policy = answer.body.decode(), answer.headers["Content-Security-Policy"]
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text and "innerHTML" not in text
    assert "default-src 'none'" in policy and "unsafe" not in policy and "@NONCE@" not in text
    nonce = policy.split("'nonce-")[1].split("'")[0]
    assert text.count(f'nonce="{nonce}"') == 2
    assert nonce not in cluster.get("/").body.decode(), "each answer has its own"
    assert cluster.request("HEAD", "/").body == b"" and cluster.request("POST", "/", "x").status == 405
    assert cluster.get("/else").status == 404


def test_the_status_is_what_the_cluster_is(cluster):
    wait_for(lambda: len(cluster.get("/status").json()["workers"]) == 3, SECONDS)
    status = cluster.get("/status").json()
    assert status["router"]["state"] == "ready" and status["router"]["model"] == "demo"
    assert {w["id"]: w["role"] for w in status["workers"]} == {"p0": "prefill", "d0": "decode", "d1": "decode"}
    assert {w["id"]: w["pid"] for w in status["workers"]} == {n: cluster.pid(n) for n in ("p0", "d0", "d1")}


def test_the_cluster_is_shown_and_followed(page, cluster):
    def rows():
        return dict(zip(texts(page, "#workers td:nth-child(1)"), texts(page, "#workers td:nth-child(2)")))
    wait_for(lambda: rows() == {"p0": "up", "d0": "up", "d1": "up"}, SECONDS)
    assert texts(page, "#state") == ["ready"]
    names = texts(page, ".tile span")
    assert names == ["decode, tokens/s", "prefill, tokens/s", "hand-over, GB/s", "waiting, requests", "running, requests", "connections"]
    old = cluster.pid("d1")
    cluster.kill("d1")
    wait_for(lambda: cluster.pid("d1") != old, SECONDS)
    wait_for(lambda: rows() == {"p0": "up", "d0": "up", "d1": "up"}, SECONDS)


@pytest.mark.parametrize("thinking", [False, True], ids=["answer", "reasoning"])
def test_a_chat_shows_what_the_api_answers_reasoning_apart(page, cluster, thinking):
    row = next(r for r in CONVERSATIONS if r["enable_thinking"] == thinking and not r.get("tools")
               and [m["role"] for m in r["messages"]] == ["user"] and "\n" not in r["messages"][0]["content"])
    body = {"messages": row["messages"], "temperature": 0, "chat_template_kwargs": {"enable_thinking": thinking}}
    expected = cluster.post("/v1/chat/completions", body).json()["choices"][0]
    set_up(page, thinking)
    ask(page, row["messages"][0]["content"])
    assert finished(page).startswith(expected["finish_reason"])
    assert texts(page, ".assistant .content") == [expected["message"]["content"]]
    assert texts(page, ".assistant .reasoning") == ([expected["message"]["reasoning"]] if thinking else [])
    shoot(page, "reasoning" if thinking else "chat")


CALLING = next(r for r in CONVERSATIONS if r["tools"] and "<tool_call>" in r["greedy_text"] and len(r["messages"]) == 1)


def give_tools(page, tools):
    page.execute_script("document.getElementById('tools').value = arguments[0]", json.dumps(tools))


def test_a_call_is_shown_apart_and_its_result_sent_back(page, cluster):
    body = {"messages": list(CALLING["messages"]), "tools": CALLING["tools"], "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": False}}
    set_up(page, False)
    give_tools(page, CALLING["tools"])
    ask(page, CALLING["messages"][0]["content"])
    assert finished(page).startswith("tool_calls")
    message = cluster.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    call, = message["tool_calls"]
    assert texts(page, ".call b") == [call["function"]["name"]] and texts(page, ".call pre") == [call["function"]["arguments"]]
    assert texts(page, ".assistant .content") == [] and "tool_call>" not in "".join(texts(page, "#log"))
    shoot(page, "call")
    one(page, ".call input").send_keys("1063", Keys.ENTER)
    assert finished(page, 2).startswith("stop")
    body["messages"] += [message, {"role": "tool", "tool_call_id": call["id"], "content": "1063"}]
    expected = cluster.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    assert texts(page, ".assistant .content") == [expected]


def test_a_call_that_the_length_cut_is_not_sent_back(page):
    set_up(page, False, "20")
    give_tools(page, CALLING["tools"])
    ask(page, CALLING["messages"][0]["content"])
    assert finished(page).startswith("length")
    assert len(texts(page, ".call b")) == 1 and not page.find_elements(By.CSS_SELECTOR, ".call input")
    give_tools(page, [])
    ask(page, "Count from 1 to 3.")
    assert finished(page, 2).startswith(("stop", "length"))


@pytest.mark.parametrize("how", ["button", "escape"])
def test_an_answer_is_stopped_and_the_chat_goes_on(page, cluster, how):
    set_up(page, False)
    # By the page itself at the first word: over the driver the answer may be there whole.
    page.execute_script("""
        const stop = arguments[0] === "button" ? () => document.getElementById("stop").click()
            : () => document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
        new MutationObserver((_, seen) => {
            if (document.querySelector(".assistant .content")?.textContent) { seen.disconnect(); stop(); }
        }).observe(document.body, { childList: true, subtree: true, characterData: true });""", how)
    ask(page, "Count from 1 to 150.")
    assert finished(page) == "stopped"
    wait_for(lambda: cluster.metric("vllm:num_requests_running") == 0, SECONDS)
    ask(page, "Count from 1 to 3.")
    assert finished(page, 2).startswith("stop")
    one(page, "#clear").click()
    assert texts(page, ".turn") == []


def test_markup_is_text_whoever_wrote_it(page):
    words = "<img src=x onerror=\"document.title='bad'\"> & <b>bold</b>"
    set_up(page, False, "8")
    ask(page, words)
    finished(page)
    assert texts(page, ".user .text") == [words]
    assert not page.find_elements(By.CSS_SELECTOR, "#log img, #log .user b") and page.title == "Baton"


def test_a_refusal_is_shown_and_the_next_question_answered(page):
    set_up(page, False)
    page.execute_script("document.getElementById('max').value = '100000000'")
    ask(page, "Count from 1 to 3.")
    assert "maximum context length" in finished(page)
    page.get_log("browser")  # Chromium notes the 400
    page.execute_script("document.getElementById('max').value = ''")
    ask(page, "Count from 1 to 3.")
    assert finished(page, 2).startswith("stop")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1280])
def test_it_fits_narrow_screens_and_both_schemes(page, scheme, width):
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False})
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    try:
        color = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        level = sum(int(v) for v in color[4:-1].split(",")) / 3
        assert (level < 60) == (scheme == "dark")
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
        shoot(page, f"{scheme}-{width}")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_router_that_does_not_answer_is_said(page, cluster):
    cluster.kill("r0", signal.SIGSTOP)
    try:
        wait_for(lambda: texts(page, "#state") == ["not reached"], SECONDS)
    finally:
        cluster.kill("r0", signal.SIGCONT)
    wait_for(lambda: texts(page, "#state") == ["ready"], SECONDS)
    page.get_log("browser")  # what it was not given in time
