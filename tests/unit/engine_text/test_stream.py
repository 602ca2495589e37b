"""One answer of /generate as an ASGI application: what leaves in one write, and what happens when the client leaves."""

import asyncio

import msgspec

from engine.door.stream import EventStream
from engine.wire import Accepted, AnyEvent, Finished, TextDelta


class Client:
    """The other end of an ASGI call: collects what is sent, and leaves when told."""

    def __init__(self):
        self.messages = []
        self.has_left = asyncio.Event()
        self.got = asyncio.Event()

    async def receive(self):
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.messages.append(message)
        self.got.set()

    @property
    def writes(self):
        """The events of each write of the body."""
        return [
            [msgspec.json.decode(line, type=AnyEvent) for line in message["body"].splitlines()]
            for message in self.messages
            if message["type"] == "http.response.body"
        ]


class Calls:
    def __init__(self):
        self.cancelled = 0

    def cancel(self):
        self.cancelled += 1


def make_stream(calls):
    return EventStream(request_id="a", cancel=calls.cancel)


async def test_events_that_are_ready_together_leave_in_one_write():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    events = [Accepted(id="a", prompt_tokens=1), TextDelta(text="b"), Finished(reason="stop")]
    stream.put(events[:1])
    stream.put(events[1:])

    await stream({}, client.receive, client.send)

    assert client.writes == [events]
    assert client.messages[-1]["more_body"] is False


async def test_events_from_another_thread_arrive_in_order():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    events = [TextDelta(text=str(number)) for number in range(50)]

    def work():
        for event in events:
            stream.deliver([event])
        stream.deliver([Finished(reason="stop")])

    await asyncio.gather(stream({}, client.receive, client.send), asyncio.to_thread(work))

    assert [event for write in client.writes for event in write] == [*events, Finished(reason="stop")]


async def test_a_client_that_leaves_cancels_once_and_ends_the_answer():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    answering = asyncio.create_task(stream({}, client.receive, client.send))
    await client.got.wait()

    client.has_left.set()
    await answering

    assert calls.cancelled == 1


async def test_a_client_that_leaves_after_the_last_event_cancels_nothing():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    stream.put([Finished(reason="stop")])

    await stream({}, client.receive, client.send)
    client.has_left.set()
    await asyncio.sleep(0)

    assert calls.cancelled == 0


async def test_nothing_follows_the_last_event():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    stream.put([Finished(reason="stop"), TextDelta(text="late")])

    await stream({}, client.receive, client.send)

    assert client.writes == [[Finished(reason="stop")]]
