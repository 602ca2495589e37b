"""The life of a request over real sockets: waits, heartbeats, clients that leave, engines that die."""

import asyncio
import contextlib
import dataclasses

import msgspec
import pytest

from control.dialects import chat
from control.errors import EngineStopped
from engine import wire
from tests.unit.control_gateway.gateway_scripts import (
    Gate,
    asking,
    in_decode,
    in_prefill,
    no_engine_is_ready,
    reached,
    the_only_row,
)
from tests.unit.control_gateway.gateway_stage import chat_body, chunks, eventually, says, staged

PATH = "/v1/chat/completions"
HEARTBEAT = b": keep-alive\n\n"


# --- Waiting ---


async def test_a_waiting_stream_gets_headers_and_heartbeats_and_then_its_answer(tmp_path):
    async with staged(tmp_path, heartbeat_s=0.05, grace_s=0.02) as stage:
        stage.line.hold()
        async with stage.client.stream("POST", PATH, json=chat_body(stream=True)) as answer:
            await eventually(lambda: len(stage.line.waiting) == 1)
            waiting = stage.relay.waiting()
            received = b""
            async for chunk in answer.aiter_raw():
                received += chunk
                if received.count(HEARTBEAT) == 3:
                    stage.line.open()

    assert answer.status_code == 200
    assert [(each.phase, each.position, each.key) for each in waiting] == [("held", 1, "test")]
    assert received.startswith(HEARTBEAT * 3)
    text = received.replace(HEARTBEAT, b"").decode()
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks(text)] == ["", "hello", None]
    assert received.endswith(b"data: [DONE]\n\n")


async def test_heartbeats_go_on_through_prefill_and_stalls_and_split_nothing(tmp_path):
    stall = Gate([wire.Prefill(processed=40, cached=0, total=100)], [wire.TextDelta(text="a" * 100_000)])
    async with staged(tmp_path, heartbeat_s=0.02, grace_s=0.02) as stage:
        stage.engine.scripts = [stall]
        async with stage.client.stream("POST", PATH, json=chat_body(stream=True)) as answer:
            received = b""
            async for chunk in answer.aiter_raw():
                received += chunk
                if received.count(HEARTBEAT) == 5:
                    stall.opened.set()

    frames = received.split(b"\n\n")
    assert all(frame == b": keep-alive" or frame.startswith(b"data: ") for frame in frames[:-1])
    words = [chunk["choices"][0]["delta"].get("content") for chunk in chunks(received.decode())]
    assert words == ["", "a" * 100_000, "late", None]


async def test_heartbeats_fill_the_time_in_which_a_prompt_is_counted_when_that_takes_long(tmp_path):
    async with staged(tmp_path, heartbeat_s=0.02, grace_s=0.02, count_patience_s=0.02) as stage:
        stage.engine.count_opened = asyncio.Event()
        async with stage.client.stream("POST", PATH, json=chat_body(stream=True)) as answer:
            received = b""
            async for chunk in answer.aiter_raw():
                received += chunk
                if received.count(HEARTBEAT) == 3:
                    stage.engine.count_opened.set()

    assert answer.status_code == 200
    assert received.startswith(HEARTBEAT * 3)
    assert received.endswith(b"data: [DONE]\n\n")


async def test_a_refusal_that_takes_longer_than_the_patience_is_a_frame(tmp_path):
    async with staged(tmp_path, heartbeat_s=0.02, grace_s=0.02, count_patience_s=0.02) as stage:
        stage.engine.count_opened, stage.engine.prompt_tokens = asyncio.Event(), 5000
        async with stage.client.stream("POST", PATH, json=chat_body(stream=True)) as answer:
            stage.engine.count_opened.set()
            received = await answer.aread()
        row = await the_only_row(stage)

    assert answer.status_code == 200
    assert [chunk["error"]["code"] for chunk in chunks(received.decode())] == ["context_length_exceeded"]
    assert (row.outcome, row.error_code) == ("rejected", "context_length_exceeded")


async def test_a_refusal_keeps_its_status_however_slowly_the_prompt_was_counted(tmp_path):
    async with staged(tmp_path, heartbeat_s=0.02, grace_s=0.02) as stage:
        stage.engine.count_opened, stage.engine.prompt_tokens = asyncio.Event(), 5000
        async with asking(stage, stream=True) as answering:
            await eventually(lambda: len(stage.engine.counted) == 1)
            stage.engine.count_opened.set()
            answer = await answering

    assert answer.status_code == 400


async def test_an_answer_that_comes_in_time_has_no_heartbeat(tmp_path):
    async with staged(tmp_path, heartbeat_s=0.05) as stage:
        answer = await stage.client.post(PATH, json=chat_body(stream=True))

    assert HEARTBEAT not in answer.content


async def test_a_held_request_without_a_stream_waits_in_silence(tmp_path):
    async with staged(tmp_path, heartbeat_s=0.02, grace_s=0.0) as stage:
        stage.line.hold()
        async with asking(stage) as answering:
            await eventually(lambda: len(stage.line.waiting) == 1)
            await asyncio.sleep(0.1)
            stage.line.open()
            answer = await answering

    assert answer.json()["choices"][0]["message"]["content"] == "hello"


async def test_held_requests_go_on_in_order_of_arrival(tmp_path):
    async with staged(tmp_path, concurrency=1) as stage, contextlib.AsyncExitStack() as clients:
        stage.line.hold()
        tasks = []
        for number in range(5):
            tasks.append(await clients.enter_async_context(asking(stage, seed=number)))
            await eventually(lambda number=number: len(stage.line.waiting) == number + 1)
        stage.line.open()
        await asyncio.gather(*tasks)

    assert [request.sampling.seed for request in stage.engine.received] == [0, 1, 2, 3, 4]


async def test_a_full_line_is_429_with_retry_after(tmp_path):
    async with staged(tmp_path, limit=1) as stage:
        stage.line.hold()
        async with asking(stage, stream=True):
            await eventually(lambda: len(stage.line.waiting) == 1)
            refused = await stage.client.post(PATH, json=chat_body(stream=True))
        rows = await stage.rows(2)

    assert refused.status_code == 429
    assert len(stage.engine.counted) == 1
    assert refused.headers["retry-after"] == "10"
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert [(row.outcome, row.error_code) for row in rows] == [
        ("cancelled", "client_gone"),
        ("rejected", "rate_limit_exceeded"),
    ]


async def test_no_model_and_none_on_the_way_is_503_with_retry_after(tmp_path):
    async with staged(tmp_path) as stage:
        stage.source.availability = "none"
        refused = await stage.client.post(PATH, json=chat_body(stream=True))
        row = await the_only_row(stage)

    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    assert (row.outcome, row.error_code) == ("rejected", "no_model")


# --- Client gone ---


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_held", [False, True])
async def test_a_client_that_leaves_the_line_is_gone_within_a_second(tmp_path, is_stream, is_held):
    async with staged(tmp_path, concurrency=1, grace_s=0.01) as stage, contextlib.AsyncExitStack() as clients:
        if is_held:
            no_engine_is_ready(stage)
        else:
            stage.engine.scripts = [in_decode()]
            await clients.enter_async_context(asking(stage, stream=True))
            await eventually(lambda: stage.relay.num_decoding() == 1)
        async with asking(stage, stream=is_stream):
            await eventually(lambda: len(stage.line.waiting) == 1)
            await asyncio.sleep(0.03)

        await eventually(lambda: not stage.line.waiting, within_s=1)
        row = (await stage.rows())[0]

    assert (row.outcome, row.error_code, row.stream) == ("cancelled", "client_gone", is_stream)
    assert len(stage.engine.received) == (0 if is_held else 1)
    assert len(stage.engine.counted) == (0 if is_held else 2)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_held_client_that_left_is_not_run_when_the_engine_is_back(tmp_path, is_stream):
    async with staged(tmp_path, concurrency=1, grace_s=0.01) as stage, contextlib.AsyncExitStack() as leaving:
        engine = no_engine_is_ready(stage)
        await leaving.enter_async_context(asking(stage, stream=is_stream, seed=1))
        await eventually(lambda: len(stage.line.waiting) == 1)
        async with asking(stage, stream=is_stream, seed=2) as staying:
            await eventually(lambda: len(stage.line.waiting) == 2)
            phases = [each.phase for each in stage.relay.waiting()]
            await leaving.aclose()
            await eventually(lambda: len(stage.line.waiting) == 1, within_s=1)
            stage.source.engine, stage.source.availability = engine, "ready"
            stage.line.open()
            answer = await staying

    assert phases == ["held", "held"]
    assert answer.status_code == 200
    assert [request.sampling.seed for request in stage.engine.received] == [2]


async def test_a_client_that_leaves_while_it_is_counted_is_gone_within_a_second(tmp_path):
    async with staged(tmp_path) as stage:
        stage.engine.count_opened = asyncio.Event()
        async with asking(stage, stream=True):
            await eventually(lambda: len(stage.engine.counted) == 1)

        async with asyncio.timeout(1):
            row = await the_only_row(stage)
        stage.engine.count_opened.set()

    assert (row.outcome, row.error_code) == ("cancelled", "client_gone")
    assert stage.engine.received == []


@pytest.mark.timed
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_a_client_that_leaves_the_engine_frees_its_slot_within_a_second(tmp_path, is_stream, phase):
    async with staged(tmp_path, concurrency=1) as stage:
        stage.engine.scripts = [in_prefill() if phase == "prefill" else in_decode(), says(wire.TextDelta(text="next"))]
        async with asking(stage, stream=is_stream):
            await eventually(lambda: reached(stage, phase))

        await eventually(lambda: not stage.line.running and len(stage.engine.cancelled) == 1, within_s=1)
        after = await stage.client.post(PATH, json=chat_body())
        rows = await stage.rows(2)

    assert after.json()["choices"][0]["message"]["content"] == "next"
    assert stage.engine.cancelled == [stage.engine.received[0].id]
    assert [(row.outcome, row.error_code) for row in rows] == [("cancelled", "client_gone"), ("completed", None)]
    assert rows[0].prompt_tokens == (40 if phase == "prefill" else 100)
    assert rows[0].completion_tokens == (0 if phase == "prefill" else 1)


# --- A person ends it ---


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_person_cancels_a_running_request_and_the_client_is_told(tmp_path, is_stream):
    async with staged(tmp_path) as stage:
        stage.engine.scripts = [in_decode()]
        async with asking(stage, stream=is_stream) as answering:
            await eventually(lambda: stage.relay.num_decoding() == 1)
            found = stage.relay.cancel(stage.engine.received[0].id)
            answer = await answering
        row = await the_only_row(stage)
        await eventually(lambda: len(stage.engine.cancelled) == 1)

    error = chunks(answer.text)[-1]["error"] if is_stream else answer.json()["error"]
    assert found
    assert answer.status_code == (200 if is_stream else 499)
    assert error["code"] == "request_cancelled"
    assert (row.outcome, row.error_code) == ("cancelled", "request_cancelled")
    assert not stage.relay.cancel("nobody")


async def test_a_force_stop_ends_those_that_run_typed_and_leaves_those_that_wait(tmp_path):
    async with staged(tmp_path, concurrency=1) as stage:
        stage.engine.scripts = [in_decode(), says(wire.TextDelta(text="next"))]
        async with asking(stage, stream=True) as running, asking(stage) as waiting:
            await eventually(lambda: len(stage.line.waiting) == 1 and stage.relay.num_decoding() == 1)
            stage.line.hold()
            num_cut = stage.line.cut_running(EngineStopped())
            cut = await running
            stage.line.open()
            answer = await waiting

    assert num_cut == 1
    assert chunks(cut.text)[-1]["error"]["code"] == "engine_stopped"
    assert answer.status_code == 200


async def test_a_quit_tells_those_that_wait(tmp_path):
    async with staged(tmp_path) as stage:
        stage.line.hold()
        async with asking(stage, stream=True) as waiting:
            await eventually(lambda: len(stage.line.waiting) == 1)
            stage.line.turn_away_waiting(EngineStopped())
            answer = await waiting

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_stopped"


# --- What the page shows ---


async def test_a_request_keeps_its_slot_from_prefill_to_decode(tmp_path):
    first, second = in_prefill(), in_decode()
    async with staged(tmp_path) as stage, contextlib.AsyncExitStack() as clients:
        stage.engine.scripts = [first, second]
        await clients.enter_async_context(asking(stage, stream=True))
        await eventually(lambda: any(stage.relay.slots()) and stage.relay.slots()[0].prefilled_tokens == 40)
        await clients.enter_async_context(asking(stage, stream=True))
        await eventually(lambda: stage.relay.num_decoding() == 1)
        slots = stage.relay.slots()
        first.opened.set()
        await eventually(lambda: stage.relay.slots()[0] is None)
        later = stage.relay.slots()

    assert len(slots) == 4
    prefilling, decoding = slots[:2]
    assert (prefilling.phase, prefilling.cached_tokens, prefilling.prefilled_tokens) == ("prefill", 10, 40)
    assert (decoding.phase, decoding.prefilled_tokens, decoding.output_tokens) == ("decode", 100, 1)
    assert (prefilling.slot, decoding.slot) == (0, 1)
    assert (prefilling.number, decoding.number) == (1, 2)
    assert later[1].number == 2


async def test_many_at_once_are_all_answered_once_and_have_a_row_each(tmp_path):
    async with staged(tmp_path, concurrency=2) as stage:
        answers = await asyncio.gather(
            *(stage.client.post(PATH, json=chat_body(stream=n % 2 == 0), timeout=30) for n in range(40))
        )
        rows = await stage.rows(40)

    assert all(answer.status_code == 200 for answer in answers)
    assert sorted(row.number for row in rows) == list(range(1, 41))
    assert {row.outcome for row in rows} == {"completed"}
    assert len({request.id for request in stage.engine.received}) == 40


# --- Token ids ---


async def test_a_prompt_in_token_ids_is_not_given_to_another_model(tmp_path, monkeypatch):
    parse = chat.parse_chat

    def in_tokens(body, request_id):
        exchange = parse(body, request_id)
        prompt = wire.Prompt(tokens=(1, 2, 3))
        return dataclasses.replace(exchange, generate=msgspec.structs.replace(exchange.generate, prompt=prompt))

    monkeypatch.setattr(chat, "parse_chat", in_tokens)
    async with staged(tmp_path) as stage:
        stage.line.hold()
        async with asking(stage) as same:
            await eventually(lambda: len(stage.line.waiting) == 1)
            stage.line.open()
            answered = await same
        stage.line.hold()
        async with asking(stage) as other:
            await eventually(lambda: len(stage.line.waiting) == 1)
            stage.source.model = msgspec.structs.replace(stage.source.model, id="another")
            stage.line.open()
            refused = await other

    assert answered.status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_changed")
