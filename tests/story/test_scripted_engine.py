"""The scripted engine plays its script: thoughts, calls, slow prefill, stalls, failures and death, on the real door."""

import json
import signal
import subprocess

import httpx
import pytest

from engine.wire import Failed, Finished, Prefill, ReasoningDelta, TextDelta, ToolCallBegin
from tests.story.engines import FAKE, Engine, asked, event, user, wait_for

pytestmark = pytest.mark.story

CALL = [
    {"event": {"type": "tool_call_begin", "index": 0, "id": "call_1", "name": "weather"}},
    {"event": {"type": "tool_call_delta", "index": 0, "arguments": '{"city": "Köln"}'}, "after_ms": 20},
    {"event": {"type": "tool_call_end", "index": 0}},
]

SCRIPT = [
    {"slow_load_ms": 1500},
    {
        "match": "think",
        "steps": [
            {"event": {"type": "reasoning_delta", "text": "hm hm"}},
            {"tokens": {"text": "The answer is 4.", "per_second": 500}},
        ],
    },
    {"match": "call", "steps": CALL},
    {"match": "slow", "steps": [{"prefill": {"total": 1000, "cached": 200, "duration_ms": 900}}]},
    {"match": "stall", "steps": [{"tokens": {"text": "one"}}, {"stall_ms": 60_000}]},
    {"match": "fail", "steps": [{"fail": {"code": "out_of_memory", "message": "no room", "retryable": True}}]},
    {"match": "die", "steps": [{"tokens": {"text": "one"}}, {"die": 70}]},
    {"match": "kill", "steps": [{"tokens": {"text": "one"}}, {"die": "kill"}]},
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    running = Engine(FAKE, tmp_path_factory.mktemp("home"), script=SCRIPT)
    yield running.wait_until_ready()
    running.kill()


def text(events):
    return "".join(one.text for one in events if isinstance(one, TextDelta))


def test_without_a_rule_the_message_is_echoed(engine):
    events = engine.generate(asked("echo", "Hello there, you"))

    assert text(events) == "Hello there, you"
    assert events[-1].reason == "stop"
    assert events[-1].usage.completion == 3


def test_a_thought_is_counted_as_one(engine):
    events = engine.generate(asked("think", "please think"))

    assert [one.text for one in events if isinstance(one, ReasoningDelta)] == ["hm hm"]
    assert text(events) == "The answer is 4."
    assert (events[-1].usage.completion, events[-1].usage.reasoning) == (6, 2)


def test_a_call_ends_the_answer_as_a_call(engine):
    events = engine.generate(asked("call", "please call"))

    assert [one.name for one in events if isinstance(one, ToolCallBegin)] == ["weather"]
    assert events[-1].reason == "tool_calls"


def test_max_tokens_cuts_the_script(engine):
    events = engine.generate(asked("cut", "a b c d e f", max_tokens=2))

    assert text(events) == "a b"
    assert (events[-1].reason, events[-1].usage.completion) == ("length", 2)


def test_a_slow_prefill_is_told_a_few_times_a_second_and_shown_in_the_status(engine):
    with engine.stream(asked("slow", "be slow")) as response:
        lines = response.iter_lines()
        accepted = event(next(lines))
        wait_for(lambda: engine.status().requests[0].prefilled_tokens > 200, timeout_s=2, what="progress")
        (seen,) = engine.status().requests
        events = [event(line) for line in lines]

    progress = [one.processed for one in events if isinstance(one, Prefill)]
    assert accepted.prompt_tokens == 1000
    assert (seen.phase, seen.cached_tokens) == ("prefill", 200)
    assert progress == sorted(progress)
    assert progress[-1] == 1000
    assert len(progress) <= 6


def test_the_length_in_the_script_is_what_count_says(engine):
    answer = engine.post("/count", {"prompt": {"messages": [user("be slow")]}})

    assert answer.json()["prompt_tokens"] == 1000


def test_a_failure_has_the_code_of_the_script(engine):
    events = engine.generate(asked("fail", "please fail"))

    assert isinstance(events[-1], Failed)
    assert (events[-1].code, events[-1].message, events[-1].retryable) == ("out_of_memory", "no room", True)


def test_a_stall_can_be_cancelled(engine):
    with engine.stream(asked("stall", "please stall")) as response:
        lines = response.iter_lines()
        while not isinstance(event(next(lines)), TextDelta):
            pass
        engine.post("/cancel/stall")
        end = [event(line) for line in lines][-1]

    assert isinstance(end, Finished)
    assert end.reason == "cancelled"


@pytest.mark.parametrize(("message", "code"), [("please die", 70), ("kill yourself", -signal.SIGKILL)])
def test_death_is_sudden_and_leaves_the_record_behind(tmp_path, message, code):
    engine = Engine(FAKE, tmp_path, script=SCRIPT[1:])
    try:
        engine.wait_until_ready()

        with pytest.raises(httpx.RemoteProtocolError):
            engine.generate(asked("last", message))

        assert engine.process.wait(timeout=5) == code
        assert engine.record_file.exists()
    finally:
        engine.kill()


def test_its_cache_and_its_failed_tests_are_those_of_the_script(tmp_path):
    why = {"cache_off": "scripted", "failed_tests": {"kv_bits": "no layer"}}
    engine = Engine(FAKE, tmp_path, script=[why], max_gap_ms=250.0)
    try:
        status = engine.wait_until_ready().status()
    finally:
        engine.kill()

    assert (status.cache.is_on, status.cache.reason) == (False, "scripted")
    assert [test.name for test in status.self_tests if not test.passed] == ["kv_bits"]
    assert status.promises.max_gap_ms == 250.0


def test_while_it_loads_it_counts_and_does_not_generate(tmp_path):
    engine = Engine(FAKE, tmp_path, script=[{"slow_load_ms": 60_000}])
    try:
        wait_for(engine.record_file.exists, what="the record")
        wait_for(lambda: engine.http.get("/healthz").is_success, what="an answer")

        count = engine.post("/count", {"prompt": {"messages": [user("one two")]}})
        status, error = engine.error("/generate", asked("early"))

        assert engine.health().state == "loading"
        assert count.status_code == 200
        assert (status, error.code, error.retryable) == (503, "not_ready", True)
        assert 0 < engine.status().load.bytes_read < engine.status().load.bytes_total
    finally:
        engine.kill()


@pytest.mark.parametrize(("question", "field"), [(["plan", "--model", "demo"], "plan"), (["models"], "models")])
def test_it_answers_the_questions_of_control_like_the_real_one(tmp_path, question, field):
    said = subprocess.run(
        [*FAKE, *question, "--json", "--home", str(tmp_path)], capture_output=True, check=True, timeout=30
    )

    assert field in json.loads(said.stdout)
