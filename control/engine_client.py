"""The client of the engine's door: one object per engine process, from the moment control trusts it until it is gone.

It does not find, start or stop the process, and decides nothing about a request.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeVar

import httpx
import msgspec

from control.errors import EngineGone, EngineRefused
from engine import wire

CONNECT_TIMEOUT_S: Final = 5.0
WRITE_TIMEOUT_S: Final = 30.0
STATUS_TIMEOUT_S: Final = 5.0
# It is answered between two steps of the device; freeing what a full cache holds takes a moment more.
CLEAR_TIMEOUT_S: Final = 30.0
# Rendering and tokenising 262k tokens takes seconds, and the engine does one prompt at a time.
COUNT_TIMEOUT_S: Final = 60.0
# From sending /generate to its status line: the same rendering, when it was not counted before.
GENERATE_TIMEOUT_S: Final = 120.0

Availability = Literal["ready", "held", "none"]

_Answer = TypeVar("_Answer")


class EngineSource(Protocol):
    """What the gateway must know of the engine's life; the supervisor is one. Read on the event loop: nothing waits."""

    @property
    def engine(self) -> "EngineClient | None":
        """The engine that is ready now; a new object for each process."""

    @property
    def availability(self) -> Availability:
        """held: requests wait for a model that was there or is on the way; none: they are answered 503."""

    @property
    def model(self) -> wire.ModelStatus | None:
        """The loaded model, else the last one that was."""

    @property
    def wanted_model(self) -> str | None:
        """The name that the next or present load was asked for."""

    def look(self) -> None:
        """See now whether the engine is still there; called when a connection to it broke."""


class EngineClient:
    """Every method raises EngineGone when the engine can't be reached or breaks off, EngineRefused when it says no.

    `is_there` is asked on each new connection, on the event loop: when it says no, another process has the port by now,
    which is told neither the secret nor a prompt.
    """

    def __init__(self, *, port: int, secret: str, is_there: Callable[[], bool], host: str = "127.0.0.1") -> None:
        self.port = port
        self._is_there = is_there
        self._http = httpx.AsyncClient(
            base_url=f"http://{host}:{port}",
            headers={"authorization": f"Bearer {secret}"},
            trust_env=False,
            # Plain HTTP on loopback: a TLS context would only cost 40 ms.
            verify=False,
            # A kept connection that the engine closes just as we use it looks like a dead engine.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S),
        )
        self._closings: set[asyncio.Task[None]] = set()

    async def healthz(self) -> wire.Health:
        return await self._ask("GET", wire.HEALTHZ, wire.Health, limit_s=STATUS_TIMEOUT_S)

    async def status(self) -> wire.Status:
        return await self._ask("GET", wire.STATUS, wire.Status, limit_s=STATUS_TIMEOUT_S)

    async def count(self, prompt: wire.Prompt, request_id: str | None = None) -> wire.CountAnswer:
        """Tokens of `prompt`. With a `request_id`, its /generate need not render again."""
        body = msgspec.json.encode(wire.CountRequest(prompt=prompt, id=request_id))
        return await self._ask("POST", wire.COUNT, wire.CountAnswer, limit_s=COUNT_TIMEOUT_S, body=body)

    async def cancel(self, request_id: str) -> bool:
        """Whether the engine knew the request."""
        path = wire.CANCEL.format(id=request_id)
        answer = await self._ask("POST", path, wire.CancelAnswer, limit_s=STATUS_TIMEOUT_S)
        return answer.found

    async def clear_cache(self) -> wire.CacheCleared:
        return await self._ask("POST", wire.CACHE_CLEAR, wire.CacheCleared, limit_s=CLEAR_TIMEOUT_S)

    async def shutdown(self) -> None:
        """Ask the process to end; it answers before it does."""
        response = await self._send("POST", wire.SHUTDOWN, limit_s=STATUS_TIMEOUT_S)
        await response.aclose()

    def generate(self, request: wire.GenerateRequest) -> "Generation":
        """Begins when entered: `async with engine.generate(request) as generation`. Leaving cancels what still runs."""
        return Generation(self, request)

    async def aclose(self) -> None:
        await asyncio.gather(*self._closings, return_exceptions=True)
        await self._http.aclose()

    async def _to_the_end(self, closing: Coroutine[None, None, None]) -> None:
        """Run `closing`, which goes on by itself when the caller is cancelled."""
        task = asyncio.create_task(closing)
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)
        await asyncio.shield(task)

    async def _ask(
        self, method: str, path: str, answer: type[_Answer], *, limit_s: float, body: bytes | None = None
    ) -> _Answer:
        response = await self._send(method, path, limit_s=limit_s, body=body)
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.MsgspecError as error:
            raise EngineGone(f"{path} was answered with something else ({error})", was_reached=True) from error

    async def _send(
        self, method: str, path: str, *, limit_s: float, body: bytes | None = None, stream: bool = False
    ) -> httpx.Response:
        """The response of status 2xx; with its body read unless `stream`."""
        request = self._http.build_request(
            method,
            path,
            content=body,
            headers={"content-type": "application/json"},
            extensions={"trace": self._look_who_is_there},
        )
        try:
            async with asyncio.timeout(limit_s):
                response = await self._http.send(request, stream=stream)
                if response.is_success:
                    return response
                await response.aread()
                await response.aclose()
        except TimeoutError as error:
            raise EngineGone(f"no answer from {path} within {limit_s:.0f} s", was_reached=True) from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise EngineGone("the connection was refused", was_reached=False) from error
        except httpx.HTTPError as error:
            raise EngineGone(_said(error), was_reached=True) from error
        except AttributeError as error:
            # How httpx says, under uvloop, that the connection was cut between its making and its first use.
            raise EngineGone("the connection was cut at once", was_reached=False) from error
        raise EngineRefused(_error_answer(response), engine_status=response.status_code)

    async def _look_who_is_there(self, event: str, information: dict[str, Any]) -> None:
        """httpx tells each step of a request; after this one it sends the head."""
        if event == "connection.connect_tcp.complete" and not self._is_there():
            await information["return_value"].aclose()
            raise EngineGone("it does not listen any more", was_reached=False)


class Generation:
    """The events of one /generate, in the batches in which they arrive. Iterate once, inside `async with`."""

    def __init__(self, client: EngineClient, request: wire.GenerateRequest) -> None:
        self._client = client
        self._request = request
        self._response: httpx.Response | None = None
        self._parser = EventParser()
        self._is_over = False

    async def __aenter__(self) -> "Generation":
        body = msgspec.json.encode(self._request)
        self._response = await self._client._send(
            "POST", wire.GENERATE, limit_s=GENERATE_TIMEOUT_S, body=body, stream=True
        )
        self._chunks = self._response.aiter_raw()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing the connection is how the engine is told: it cancels what has not ended. httpx, when it is cancelled
        # while it closes, keeps the request with its whole body for ever.
        if self._response is not None:
            await self._client._to_the_end(self._close(self._response))

    async def _close(self, response: httpx.Response) -> None:
        await self._chunks.aclose()  # type: ignore[attr-defined]  # httpx types the generator as an iterator
        await response.aclose()

    def __aiter__(self) -> "Generation":
        return self

    async def __anext__(self) -> Sequence[wire.AnyEvent]:
        """At least one event. Stops after the end event; raises EngineGone when the stream breaks off before it."""
        while not self._is_over:
            events = self._parser.push(await self._next_chunk())
            if events:
                self._is_over = isinstance(events[-1], wire.Finished | wire.Failed)
                return events
        raise StopAsyncIteration

    async def _next_chunk(self) -> bytes:
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            raise EngineGone("its stream ended before the end event", was_reached=True) from None
        except httpx.HTTPError as error:
            raise EngineGone(_said(error), was_reached=True) from error


class EventParser:
    """Bytes, cut anywhere, to events. Raises EngineGone on a line that is not an event."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(wire.AnyEvent)
        self._rest = b""

    def push(self, chunk: bytes) -> list[wire.AnyEvent]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        try:
            return [self._decoder.decode(line) for line in lines if line.strip()]
        except msgspec.MsgspecError as error:
            raise EngineGone(f"it sent something that is not an event ({error})", was_reached=True) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


def _error_answer(response: httpx.Response) -> wire.ErrorAnswer:
    try:
        return msgspec.json.decode(response.content, type=wire.ErrorAnswer)
    except msgspec.MsgspecError:
        return wire.ErrorAnswer(code="internal", message=f"The engine answered {response.status_code}.")
