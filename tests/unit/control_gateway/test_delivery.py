"""The way of an answer to its client: heartbeats only between frames, headers late, one end."""

import asyncio
import contextlib

import pytest

from control.delivery import Delivery
from control.dialects.error_answers import answers_of
from control.errors import LineFull, NotAuthenticated


class Wire:
    """An ASGI `send` that a test can make slow."""

    def __init__(self) -> None:
        self.messages = []
        self.flows = asyncio.Event()
        self.flows.set()

    async def __call__(self, message) -> None:
        await self.flows.wait()
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages if message["type"] == "http.response.body"]


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def delivery(wire):
    return Delivery(wire, is_stream=True)


@contextlib.asynccontextmanager
async def beating(delivery, *, grace_s=0.0, interval_s=0.01):
    task = asyncio.create_task(delivery.beat(lambda is_yielded: b"beat", grace_s=grace_s, interval_s=interval_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_heartbeats_fill_a_silence_and_are_not_an_emission(wire, delivery):
    async with beating(delivery):
        await asyncio.sleep(0.05)

    assert len(wire.bodies) >= 3
    assert set(wire.bodies) == {b"beat"}
    assert delivery.has_begun
    assert not delivery.has_emitted


async def test_a_heartbeat_counts_as_an_event_before_a_minute_had_none(wire, monkeypatch):
    now, kinds = 0.0, []

    async def sleep(seconds):
        nonlocal now
        now += seconds
        if now > 600:
            raise asyncio.CancelledError

    def heartbeat(is_yielded):
        kinds.append((now, is_yielded))
        return b"beat"

    monkeypatch.setattr("control.delivery.asyncio.sleep", sleep)

    with pytest.raises(asyncio.CancelledError):
        await Delivery(wire, is_stream=True, monotonic=lambda: now).beat(heartbeat, grace_s=1.0, interval_s=15.0)

    assert [at for at, _ in kinds] == [1.0 + 15 * number for number in range(40)]
    assert [at for at, is_yielded in kinds if is_yielded] == [1.0 + 60 * number for number in range(10)]


async def test_no_heartbeat_follows_the_end(wire, delivery):
    async with beating(delivery, grace_s=10):
        await delivery.end(b"last")
    async with beating(delivery):
        await asyncio.sleep(0.03)

    assert wire.bodies == [b"last"]
    assert wire.messages[-1]["more_body"] is False


async def test_a_slow_client_gets_no_heartbeat_into_a_write(wire, delivery):
    async with beating(delivery):
        wire.flows.clear()
        write = asyncio.create_task(delivery.write(b"frame"))
        await asyncio.sleep(0.05)
        wire.flows.set()
        await write

    assert wire.bodies[0] == b"frame"


async def test_an_answer_that_is_no_stream_has_no_heartbeat_and_a_length(wire):
    delivery = Delivery(wire, is_stream=False)

    await delivery.beat(lambda is_yielded: b"beat", grace_s=0, interval_s=0)
    await delivery.end(b"{}")

    [start, body] = wire.messages
    assert (b"content-length", b"2") in start["headers"]
    assert body["body"] == b"{}"


async def test_an_error_has_its_own_status_before_the_first_byte(wire, delivery):
    await delivery.fail(answer=lambda: answers_of("/v1", "id")(LineFull(limit=256)), frames=lambda: b"frame")

    [start, body] = wire.messages
    assert start["status"] == 429
    assert (b"retry-after", b"10") in start["headers"]
    assert body["body"].startswith(b'{"error":{"message":"The line is full')


async def test_an_error_is_a_frame_after_it(wire, delivery):
    async with beating(delivery):
        await asyncio.sleep(0.005)

    await delivery.fail(answer=lambda: answers_of("/v1", "id")(NotAuthenticated()), frames=lambda: b"frame")

    assert wire.messages[0]["status"] == 200
    assert wire.bodies[-1] == b"frame"
    assert wire.messages[-1]["more_body"] is False


async def test_an_error_after_the_end_is_not_sent(wire, delivery):
    await delivery.end(b"last")

    await delivery.fail(answer=lambda: answers_of("/v1", "id")(NotAuthenticated()), frames=lambda: b"frame")

    assert wire.bodies == [b"last"]
