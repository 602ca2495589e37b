"""The contract of the engine's door, held by the real engine with the demo model and by the scripted one alike."""

import asyncio
import http.client
import signal
import subprocess
import time

import httpx
import msgspec
import pytest

from engine.wire import (
    NDJSON,
    Accepted,
    CacheCleared,
    CancelAnswer,
    CountAnswer,
    ErrorAnswer,
    Finished,
    Prefill,
    ReasoningDelta,
    Status,
    TextDelta,
    TraceStatus,
)
from tests.story.bad_bodies import BAD
from tests.story.engines import FAKE, REAL, Engine, asked, event, wait_for

pytestmark = pytest.mark.story

CONTEXT = 768
WORDS = " ".join(["word"] * 3000)

# The scripted engine thinks, then speaks to the end of its context, as the real one does with random weights.
SCRIPT = [
    {
        "match": "",
        "steps": [
            {"prefill": {"duration_ms": 100}},
            {"tokens": {"text": "hm hm ", "kind": "reasoning"}},
            {"tokens": {"text": WORDS, "per_second": 200}},
        ],
    }
]

PROGRAMS = [pytest.param((REAL, None), id="real"), pytest.param((FAKE, SCRIPT), id="scripted")]


@pytest.fixture(scope="module", params=PROGRAMS)
def engine(request, tmp_path_factory):
    command, script = request.param
    running = Engine(command, tmp_path_factory.mktemp("home"), script=script, context=CONTEXT)
    yield running.wait_until_ready()
    running.kill()


@pytest.fixture
def quiet(engine):
    """The engine, with nothing running in it."""
    wait_for(lambda: engine.status().requests == (), what="an idle engine")
    return engine


# --- Identity and secret -------------------------------------------------------------------------------------------


def test_healthz_needs_no_secret_and_says_who_the_process_is(engine):
    response = httpx.get(f"http://127.0.0.1:{engine.port}/healthz")

    assert response.status_code == 200
    assert engine.health().nonce == engine.launch.nonce
    assert engine.health().pid == engine.process.pid
    assert engine.health().state == "ready"


def test_the_record_names_the_process_and_is_for_its_owner_only(engine):
    record = engine.record()

    assert (record.pid, record.nonce, record.port) == (engine.process.pid, engine.launch.nonce, engine.port)
    assert engine.record_file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Bearer", "Basic abc", "Bearer \u00e9".encode()])
@pytest.mark.parametrize(("method", "path"), [("GET", "/status"), ("POST", "/generate"), ("POST", "/shutdown")])
def test_every_other_path_needs_the_secret(engine, method, path, authorization):
    headers = {} if authorization is None else {"authorization": authorization}

    response = httpx.request(method, f"http://127.0.0.1:{engine.port}{path}", headers=headers)

    assert response.status_code == 401
    assert response.json()["code"] == "unauthorized"


def test_a_request_in_the_name_of_another_host_is_refused(engine):
    response = engine.http.get("/status", headers={"host": "evil.example"})

    assert response.status_code == 400
    assert response.json()["param"] == "Host"


def test_status_is_complete_and_fresh(quiet):
    status = quiet.status()

    assert status.ready
    assert status.pid == quiet.process.pid
    assert status.model is not None
    assert status.model.maximum_context_tokens == CONTEXT
    assert status.layout is not None
    assert status.memory_plan is not None
    assert status.memory_plan.fits
    assert status.load.bytes_read == status.load.bytes_total
    assert abs(status.sampled_at_s - time.time()) < 3


# --- Generating ----------------------------------------------------------------------------------------------------


def test_a_stream_is_accepted_prefilled_answered_and_finished_once(quiet):
    events = quiet.generate(asked("shape", max_tokens=20))

    kinds = [type(one) for one in events]
    progress = [one for one in events if isinstance(one, Prefill)]
    assert kinds[0] is Accepted
    assert kinds[-1] is Finished
    assert sum(kind is Finished for kind in kinds) == 1
    assert progress
    assert all(one.cached <= one.processed <= one.total == events[0].prompt_tokens for one in progress)
    assert [one.processed for one in progress] == sorted(one.processed for one in progress)
    assert kinds.index(Prefill) < min(i for i, kind in enumerate(kinds) if kind in (TextDelta, ReasoningDelta))


def test_usage_and_timings_add_up(quiet):
    events = quiet.generate(asked("usage", max_tokens=20))

    end = events[-1]
    assert end.reason == "length"
    assert end.usage.prompt == events[0].prompt_tokens
    assert end.usage.completion == 20
    assert 0 <= end.usage.reasoning <= 20
    assert end.usage.cached <= end.usage.prompt
    assert end.timings.prefill_ms > 0
    assert end.timings.decode_ms > 0
    assert end.timings.first_emission_tokens >= 1


def test_the_answer_is_ndjson(quiet):
    with quiet.stream(asked("ndjson", max_tokens=1)) as response:
        body = response.read()

    assert response.headers["content-type"] == NDJSON
    assert body.endswith(b"\n")
    assert all(msgspec.json.decode(line) for line in body.splitlines())


def test_events_arrive_while_the_answer_is_being_made(quiet):
    with quiet.stream(asked("live", max_tokens=200)) as response:
        lines = response.iter_lines()
        while not isinstance(event(next(lines)), (TextDelta, ReasoningDelta)):
            pass
        wait_for(lambda: quiet.status().requests[0].output_tokens > 0, timeout_s=1, what="a token in the status")
        (seen,) = quiet.status().requests

    assert (seen.id, seen.phase) == ("live", "decode")
    assert seen.output_tokens < 200


def test_count_says_what_accepted_will_say(quiet):
    body = asked("counted", "Count these words please", max_tokens=1)

    answer = msgspec.json.decode(quiet.post("/count", {"id": "counted", "prompt": body["prompt"]}).content)
    accepted = quiet.generate(body)[0]

    counted = msgspec.convert(answer, CountAnswer)
    assert counted.prompt_tokens == accepted.prompt_tokens
    assert counted.maximum_context_tokens == CONTEXT


def test_a_generate_with_another_prompt_than_counted_is_rendered_anew(quiet):
    short = asked("same-id", "One")
    long = asked("same-id", "One two three four five six", max_tokens=1)

    counted = quiet.post("/count", {"id": "same-id", "prompt": short["prompt"]}).json()["prompt_tokens"]
    accepted = quiet.generate(long)[0].prompt_tokens

    assert accepted > counted


def test_max_tokens_beyond_the_context_ends_at_the_context(quiet):
    prompt = {"tokens": [5] * (CONTEXT - 3)}

    events = quiet.generate({"id": "clamped", "prompt": prompt, "max_tokens": 1000})

    assert events[-1].reason == "length"
    assert events[-1].usage.completion == 3


def test_four_streams_run_at_once_and_count_as_four(quiet):
    async def all_four():
        limits = httpx.Limits(max_connections=4)
        async with httpx.AsyncClient(base_url=quiet.http.base_url, headers=quiet.http.headers, limits=limits) as http:
            bodies = [msgspec.json.encode(asked(f"four-{i}", max_tokens=60)) for i in range(4)]
            return await asyncio.gather(*(http.post("/generate", content=body, timeout=60) for body in bodies))

    answers = asyncio.run(all_four())

    ends = [event(answer.content.splitlines()[-1]) for answer in answers]
    assert [end.usage.completion for end in ends] == [60] * 4
    assert quiet.status().scheduler.decode_batches_by_width.get("b4", 0) > 0


# --- Cancelling ----------------------------------------------------------------------------------------------------


def test_closing_the_connection_cancels_within_a_second(quiet):
    cancelled = quiet.status().request_counts.cancelled
    with quiet.stream(asked("closed")) as response:
        lines = response.iter_lines()
        while not isinstance(event(next(lines)), (TextDelta, ReasoningDelta)):
            pass

    wait_for(lambda: quiet.status().requests == (), timeout_s=1, what="the end of a request whose client left")
    assert quiet.status().request_counts.cancelled == cancelled + 1


def test_cancel_ends_the_stream_with_its_last_event(quiet):
    with quiet.stream(asked("cancelled")) as response:
        lines = response.iter_lines()
        while not isinstance(event(next(lines)), (TextDelta, ReasoningDelta)):
            pass
        answer = msgspec.json.decode(quiet.post("/cancel/cancelled").content, type=CancelAnswer)
        end = [event(line) for line in lines][-1]

    assert answer == CancelAnswer(id="cancelled", found=True)
    assert isinstance(end, Finished)
    assert end.reason == "cancelled"
    assert end.usage.completion > 0


def test_cancelling_what_is_not_there_finds_nothing(engine):
    answer = msgspec.json.decode(engine.post("/cancel/nobody").content, type=CancelAnswer)

    assert answer == CancelAnswer(id="nobody", found=False)


def test_an_id_that_runs_is_not_taken_twice(quiet):
    with quiet.stream(asked("twice")) as response:
        lines = response.iter_lines()
        next(lines)

        status, error = quiet.error("/generate", asked("twice"))

    assert (status, error.code, error.param) == (400, "invalid_request", "id")


# --- Bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "param"), BAD, ids=[f"{i}-{param}" for i, (_, param) in enumerate(BAD)])
def test_a_bad_body_is_refused_with_the_field_that_is_wrong(engine, body, param):
    status, error = engine.error("/generate", body)

    assert (status, error.code, error.param) == (400, "invalid_request", param)
    assert error.message


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(engine):
    status, error = engine.error("/generate", {"id": "long", "prompt": {"tokens": [5] * CONTEXT}})

    assert (status, error.code) == (400, "context_length_exceeded")
    assert (error.prompt_tokens, error.maximum_context_tokens) == (CONTEXT, CONTEXT)
    assert "prompt is too long" in error.message


def test_a_prompt_longer_than_the_context_is_counted(engine):
    answer = engine.post("/count", {"prompt": {"tokens": [5] * (CONTEXT + 10)}})

    assert answer.json() == {"prompt_tokens": CONTEXT + 10, "maximum_context_tokens": CONTEXT}


def test_a_body_that_is_too_large_is_refused_before_it_is_read(engine):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=10)
    connection.putrequest("POST", "/generate")
    connection.putheader("Authorization", engine.http.headers["authorization"])
    connection.putheader("Content-Length", str(65 * 2**20))
    connection.endheaders()

    response = connection.getresponse()

    assert response.status == 413
    assert msgspec.json.decode(response.read(), type=ErrorAnswer).code == "invalid_request"
    connection.close()


def test_clearing_the_cache_says_what_was_freed(engine):
    answer = engine.http.post("/cache/clear")

    assert answer.status_code == 200
    assert msgspec.json.decode(answer.content, type=CacheCleared, strict=True).blocks >= 0


def test_a_trace_is_begun_and_ended_while_the_engine_serves(engine):
    begun = engine.http.post("/trace/start")
    during = msgspec.json.decode(engine.http.get("/status").content, type=Status).trace
    ended = engine.http.post("/trace/stop")

    begun, ended = (msgspec.json.decode(each.content, type=TraceStatus, strict=True) for each in (begun, ended))
    assert (begun.is_on, during.is_on, ended.is_on) == (True, True, False)
    assert begun.file == during.file == ended.file and ended.ended == "stopped"


def test_unknown_paths_and_methods_answer_in_the_same_shape(engine):
    unknown = engine.http.get("/nothing")
    wrong_method = engine.http.get("/generate")

    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    assert (wrong_method.status_code, wrong_method.json()["code"]) == (405, "invalid_request")


# --- The end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("how", ["shutdown", "SIGTERM"])
def test_a_told_engine_ends_its_streams_and_leaves_nothing(tmp_path, program, how):
    command, script = program
    engine = Engine(command, tmp_path, script=script, context=CONTEXT)
    try:
        engine.wait_until_ready()
        with engine.stream(asked("last")) as response:
            lines = response.iter_lines()
            next(lines)
            if how == "shutdown":
                assert engine.post("/shutdown").json()["state"] == "stopping"
            else:
                engine.process.send_signal(signal.SIGTERM)
            last = [event(line) for line in lines][-1]

        wait_for(engine.is_gone, timeout_s=8, what="the end of the process and its port")
        assert type(last).__name__ in ("Failed", "Finished")
        assert engine.process.returncode == 0
        assert not engine.record_file.exists()
    finally:
        engine.kill()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_taken_port_is_refused_with_the_holder_and_leaves_no_record(engine, tmp_path, program):
    command, script = program
    second = Engine(command, tmp_path, script=script, port=engine.port)

    code = second.process.wait(timeout=30)

    assert code == 5
    assert f"Port {engine.port} is taken by pid {engine.process.pid}" in second.log.read_text()
    assert not second.record_file.exists()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_launch_file_that_is_none_is_refused_in_one_sentence(tmp_path, program):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "engine.json").write_text("{")

    result = subprocess.run([*program[0], "--home", str(tmp_path)], capture_output=True, text=True, timeout=30)

    assert result.returncode == 4
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run" / "engine.json").exists()
