"""The dialects of OpenAI before the real SDK, without sockets and without a relay: a transport that plays events."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx2
import openai

from control.dialects.chat import PATH as CHAT
from control.dialects.chat import parse_chat
from control.dialects.completions import PATH as COMPLETIONS
from control.dialects.completions import parse_completions
from control.dialects.error_answers import answers_of
from control.dialects.exchange import Exchange, default_heartbeat
from control.errors import ApiError
from engine import wire

USAGE = wire.Usage(prompt=7, cached=4, completion=5, reasoning=2)
FINISHED = wire.Finished(reason="stop", usage=USAGE)
CALLED = wire.Finished(reason="tool_calls", usage=USAGE)
PARSERS: dict[str, Callable[[bytes, str], Exchange]] = {CHAT: parse_chat, COMPLETIONS: parse_completions}


def call(name: str, *pieces: str, index: int = 0) -> tuple[wire.Event, ...]:
    """A whole call, its arguments in pieces."""
    deltas = (wire.ToolCallDelta(index=index, arguments=piece) for piece in pieces)
    return (
        wire.ToolCallBegin(index=index, id=f"call_{index}", name=name),
        *deltas,
        wire.ToolCallEnd(index=index),
    )


def written(
    exchange: Exchange,
    batches: Sequence[Sequence[wire.Event]],
    *,
    num_heartbeats: int = 0,
    error: ApiError | None = None,
) -> bytes:
    """All bytes of the answer. Each batch is what the engine sent at once; heartbeats come between them.

    `error`: how it ends, instead of by Finished.
    """
    encoder = exchange.encoder(heartbeat=default_heartbeat(exchange.dialect))
    encoder.expect(model="asked for", prompt_tokens=None)
    frames = [encoder.heartbeat(is_yielded=True) for _ in range(num_heartbeats)]
    encoder.expect(model="demo", prompt_tokens=7)
    frames.append(encoder.encode([wire.Accepted(id="id", prompt_tokens=7)]))
    for batch in batches:
        frames.append(encoder.encode(batch))
        if num_heartbeats and not isinstance(batch[-1], wire.Finished):
            frames.append(encoder.heartbeat(is_yielded=False))
    if error is not None:
        frames.append(encoder.error(error))
    return b"".join(frames)


@dataclass
class Played:
    """The answer to every request, and the requests as they were understood."""

    events: tuple[wire.Event, ...] = ()
    finished: wire.Finished = FINISHED
    num_heartbeats: int = 0
    error: ApiError | None = None
    exchanges: list[Exchange] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        try:
            exchange = PARSERS[path](request.content, "id")
        except ApiError as error:
            answer = answers_of(path, "id")(error)
            return httpx2.Response(answer.status, headers=list(answer.headers), content=answer.body)
        self.exchanges.append(exchange)
        batches = [[event] for event in (*self.events, *([] if self.error else [self.finished]))]
        content_type = "text/event-stream; charset=utf-8" if exchange.is_stream else "application/json"
        content = written(exchange, batches, num_heartbeats=self.num_heartbeats, error=self.error)
        return httpx2.Response(200, headers={"content-type": content_type}, content=content)

    async def later(self, request: httpx2.Request) -> httpx2.Response:
        return self(request)

    @property
    def prompt(self) -> wire.Prompt:
        """Of the last request."""
        return self.exchanges[-1].generate.prompt

    def client(self) -> openai.OpenAI:
        http = httpx2.Client(transport=httpx2.MockTransport(self), trust_env=False, verify=False)
        return openai.OpenAI(base_url="http://splash.test/v1", api_key="k", max_retries=0, http_client=http)

    def async_client(self) -> openai.AsyncOpenAI:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self.later), trust_env=False, verify=False)
        return openai.AsyncOpenAI(base_url="http://splash.test/v1", api_key="k", max_retries=0, http_client=http)
