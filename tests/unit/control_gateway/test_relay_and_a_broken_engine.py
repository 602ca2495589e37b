"""What becomes of requests when the engine dies, fails, refuses late, or is not there."""

import pytest

from control.engine_client import EngineClient
from engine import wire
from tests.unit.control_gateway.gateway_scripts import asking, dies, dies_after_a_word, the_only_row
from tests.unit.control_gateway.gateway_stage import accepted, chat_body, chunks, eventually, says, staged

PATH = "/v1/chat/completions"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_request_that_emitted_nothing_runs_again_when_the_engine_is_back(tmp_path, is_stream):
    async with staged(tmp_path, heartbeat_s=0.02, grace_s=0.01) as stage:
        stage.engine.scripts = [dies, says(wire.TextDelta(text="second"))]
        engine = stage.source.engine

        def noticed():
            stage.source.engine = None
            stage.line.hold()

        stage.source.on_look = noticed
        async with asking(stage, stream=is_stream) as answering:
            await eventually(lambda: stage.source.engine is None and len(stage.line.waiting) == 1)
            stage.source.engine = engine
            stage.line.open()
            answer = await answering
        row = await the_only_row(stage)

    assert answer.status_code == 200
    assert "second" in answer.text
    assert len({request.id for request in stage.engine.received}) == 2
    assert (row.outcome, row.error_code) == ("completed", None)


async def test_a_stream_that_has_emitted_fails_typed_when_the_engine_dies(tmp_path):
    async with staged(tmp_path) as stage:
        stage.engine.scripts = [dies_after_a_word]
        answer = await stage.client.post(PATH, json=chat_body(stream=True))
        row = await the_only_row(stage)

    *_, word, error = chunks(answer.text)
    assert word["choices"][0]["delta"]["content"] == "early"
    assert error["error"]["code"] == "engine_died"
    assert b"[DONE]" not in answer.content
    assert (row.outcome, row.error_code) == ("failed", "engine_died")
    assert len(stage.engine.received) == 1


async def test_an_answer_without_a_stream_has_emitted_nothing_and_runs_again(tmp_path):
    async with staged(tmp_path, notice_limit_s=0.05) as stage:
        stage.engine.scripts = [dies_after_a_word, says(wire.TextDelta(text="whole"))]
        answer = await stage.client.post(PATH, json=chat_body())

    assert answer.json()["choices"][0]["message"]["content"] == "whole"


async def test_a_request_that_kills_two_engines_gets_no_third(tmp_path):
    async with staged(tmp_path, notice_limit_s=0.05) as stage:
        stage.engine.scripts = [dies]
        answer = await stage.client.post(PATH, json=chat_body())

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_died"
    assert len(stage.engine.received) == 2


async def test_a_failure_that_may_pass_before_anything_was_sent_runs_again(tmp_path):
    async def stops(request):
        yield [*accepted(request), wire.Failed(code="stopping", message="bye", retryable=True)]

    async with staged(tmp_path, notice_limit_s=0.05) as stage:
        stage.engine.scripts = [stops, says(wire.TextDelta(text="whole"))]
        answer = await stage.client.post(PATH, json=chat_body(stream=True))

    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks(answer.text)] == ["", "whole", None]


async def test_what_the_engine_cancels_by_itself_is_told(tmp_path):
    async with staged(tmp_path) as stage:
        stage.engine.scripts = [says(wire.TextDelta(text="a"), finished=wire.Finished(reason="cancelled"))]
        answer = await stage.client.post(PATH, json=chat_body(stream=True))

    assert chunks(answer.text)[-1]["error"]["code"] == "request_cancelled"


async def test_an_engine_that_cannot_count_now_does_not_refuse(tmp_path):
    async with staged(tmp_path) as stage:
        engine = stage.source.engine
        stage.source.engine = EngineClient(port=1, secret="", is_there=lambda: True)
        stage.line.hold()
        async with asking(stage) as answering:
            await eventually(lambda: len(stage.line.waiting) == 1)
            stage.source.engine = engine
            stage.line.open()
            answer = await answering

    assert answer.status_code == 200
    assert stage.engine.counted == []


async def test_an_overflow_that_is_found_late_is_a_typed_stream_error(tmp_path):
    async with staged(tmp_path, grace_s=0.01) as stage:
        engine, stage.source.engine = stage.source.engine, None
        stage.line.hold()
        stage.engine.refusal = wire.ErrorAnswer(
            code="context_length_exceeded", message="no", prompt_tokens=9000, maximum_context_tokens=4096
        )
        async with stage.client.stream("POST", PATH, json=chat_body(stream=True)) as answer:
            stage.source.engine = engine
            stage.line.open()
            text = (await answer.aread()).decode()

    [error] = chunks(text)
    assert error["error"]["code"] == "context_length_exceeded"
    assert "9000 tokens > 4095 maximum" in error["error"]["message"]


async def test_a_refused_connection_is_no_run(tmp_path):
    async with staged(tmp_path, notice_limit_s=0.02) as stage:
        engine = stage.source.engine
        stage.source.engine = EngineClient(port=1, secret="", is_there=lambda: True)
        looks = []
        stage.source.on_look = lambda: looks.append(stage.line.running)
        async with asking(stage) as answering:
            await eventually(lambda: len(looks) > 8)
            stage.source.engine = engine
            answer = await answering

    assert answer.status_code == 200


async def test_when_no_engine_can_come_any_more_the_request_fails(tmp_path):
    async with staged(tmp_path) as stage:
        stage.engine.scripts = [dies]

        def gave_up():
            stage.source.engine = None
            stage.source.availability = "none"

        stage.source.on_look = gave_up
        answer = await stage.client.post(PATH, json=chat_body())

    assert answer.json()["error"]["code"] == "engine_died"
