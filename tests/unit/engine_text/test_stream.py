"""One answer of /generate as an ASGI application: what leaves in one write, and what happens when the client leaves."""

import asyncio

import msgspec
import pytest

from engine.door.stream import MOST_UNREAD_BYTES, EventStream
from engine.wire import Accepted, AnyEvent, Failed, Finished, TextDelta, ToolCallDelta, Usage


class Client:
    """The other end of an ASGI call: collects what is sent, and leaves when told."""

    def __init__(self):
        self.messages = []
        self.has_left = asyncio.Event()
        self.got = asyncio.Event()
        self.got_lines = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()

    async def receive(self):
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.messages.append(message)
        self.got.set()
        if message["type"] == "http.response.body":
            self.got_lines.set()
            await self.reads.wait()

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


@pytest.mark.parametrize(
    "unwritable",
    [
        TextDelta(text="\ud83d"),
        ToolCallDelta(index=0, arguments='{"x":"\udc00"}'),
        TextDelta(text=object()),
    ],
    ids=["text", "arguments", "no text"],
)
async def test_an_event_that_cannot_be_written_ends_the_answer_as_failed_and_the_request_with_it(unwritable):
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    stream.put([TextDelta(text="before"), unwritable, Finished(reason="stop")])
    stream.put([Finished(reason="cancelled")])

    await stream({}, client.receive, client.send)

    ((before, ending),) = client.writes
    assert before == TextDelta(text="before")
    assert isinstance(ending, Failed) and (ending.code, ending.retryable) == ("internal", False)
    assert client.messages[-1]["more_body"] is False
    assert calls.cancelled == 1


async def test_a_last_event_that_cannot_be_written_is_replaced_by_one_that_can():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    stream.put([Finished(reason="stop", stop_sequence="\ud83d", usage=Usage())])

    await stream({}, client.receive, client.send)

    ((ending,),) = client.writes
    assert isinstance(ending, Failed)


LINE = TextDelta(text="x" * 1000)


async def begun(client, stream):
    """An answer whose write hangs, because the client does not read."""
    client.reads.clear()
    answering = asyncio.create_task(stream({}, client.receive, client.send))
    stream.put([LINE])
    await client.got_lines.wait()
    return answering


async def test_a_client_that_never_reads_is_cut_at_a_bound_and_told_so_if_it_ever_does():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    answering = await begun(client, stream)

    num_events = 0
    while not calls.cancelled:
        stream.put([LINE])
        num_events += 1
    stream.put([LINE, Finished(reason="cancelled")])
    client.reads.set()
    await answering

    assert MOST_UNREAD_BYTES / 1100 < num_events < MOST_UNREAD_BYTES / 1000 + 2
    assert calls.cancelled == 1
    ((ending,),) = client.writes[1:]
    assert isinstance(ending, Failed) and (ending.code, ending.retryable) == ("internal", False)
    assert client.messages[-1]["more_body"] is False


async def test_a_client_that_reads_may_be_sent_more_than_the_bound_at_once():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    large = TextDelta(text="x" * (MOST_UNREAD_BYTES + 1))
    stream.put([large])
    stream.put([LINE, Finished(reason="stop")])

    await stream({}, client.receive, client.send)

    assert client.writes == [[large, LINE, Finished(reason="stop")]]
    assert calls.cancelled == 0


async def test_a_client_that_was_cut_and_then_leaves_is_cancelled_once():
    calls, client = Calls(), Client()
    stream = make_stream(calls)
    answering = await begun(client, stream)
    stream.put([LINE] * (MOST_UNREAD_BYTES // 1000 + 2))

    client.has_left.set()
    client.reads.set()
    await answering

    assert calls.cancelled == 1
