"""The engine's door: the HTTP API of `engine.wire`, in front of the text thread and the worker.

It renders nothing and computes nothing; it never waits for a step of the device.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from engine.door.answers import encoded_response, error_response, json_response
from engine.door.doorkeeper import Doorkeeper, read_body
from engine.door.stream import EventStream
from engine.errors import EngineError, InvalidRequest, NotFound, NotReady, Stopping
from engine.request import Request
from engine.wire import (
    CACHE_CLEAR,
    CANCEL,
    COUNT,
    GENERATE,
    HEALTHZ,
    SHUTDOWN,
    STATUS,
    TRACE_START,
    TRACE_STOP,
    Accepted,
    CancelAnswer,
    EngineState,
    Health,
    Status,
)

if TYPE_CHECKING:  # the intake imports mlx-lm, and with it MLX; the door stands before that
    from engine.door.intake import Admitted, Intake
    from engine.execution import Execution

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Worker(Protocol):
    """The part of `engine.worker.Worker` that the door needs. None of it waits."""

    @property
    def snapshot(self) -> Status: ...

    def submit(self, request: Request) -> None:
        """Raises Stopping, and InvalidRequest when a request with this id is running."""

    def cancel(self, request_id: str) -> bool: ...

    def order(self, do: "Callable[[Execution], None]") -> None:
        """`do` is called on another thread, once, unless the worker ends first."""


class Door:
    """State of the door, changed on the event loop only. `text_thread` is the one thread that owns the intake.

    Until `open`, `worker` stands in for the one that loads the model, and there is no intake: nothing is known yet.
    """

    def __init__(
        self,
        *,
        worker: Worker,
        text_thread: Executor,
        nonce: str,
        on_shutdown: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._intake: Intake | None = None
        self._text_thread = text_thread
        self._nonce = nonce
        self._on_shutdown = on_shutdown
        self._monotonic = monotonic
        self._status: tuple[Status, bytes] | None = None
        self._text_begun_at: float | None = None  # written on the text thread
        self._stopping = asyncio.Event()

    def open(self, worker: Worker, intake: "Intake") -> None:
        """The model's files are found and checked: its text side works from now on, its weights are being loaded."""
        self._worker = worker
        self._intake = intake

    def stop(self) -> None:
        """Take nothing more; who waits for the text thread is told so, however long its work takes."""
        self._stopping.set()

    async def generate(self, http: HttpRequest) -> EventStream:
        self._refuse_unless_ready()
        body = await read_body(http)
        arrived_at = self._monotonic()
        admitted = await self._on_text_thread(partial(self._open_intake.admit, body))
        self._refuse_unless_ready()
        return self._start(admitted, arrived_at)

    async def count(self, http: HttpRequest) -> Response:
        count = self._open_intake.count
        body = await read_body(http)
        return json_response(await self._on_text_thread(partial(count, body)))

    async def status(self, _: HttpRequest) -> Response:
        snapshot = self._worker.snapshot
        if (text_busy_s := self._text_busy_s()) > 0:
            return json_response(msgspec.structs.replace(snapshot, text_busy_s=text_busy_s))
        if self._status is None or self._status[0] is not snapshot:
            self._status = (snapshot, msgspec.json.encode(snapshot))
        return encoded_response(self._status[1])

    async def healthz(self, _: HttpRequest) -> Response:
        return json_response(self._health())

    async def cancel(self, http: HttpRequest) -> Response:
        request_id = http.path_params["id"]
        return json_response(CancelAnswer(id=request_id, found=self._worker.cancel(request_id)))

    async def clear_cache(self, _: HttpRequest) -> Response:
        """Answers between two steps of the device, so this alone may wait for one. Kept text goes, too."""
        self._refuse_unless_ready()
        await self._on_text_thread(self._open_intake.forget)
        return json_response(await self._told(lambda execution: execution.clear_cache()))

    async def start_trace(self, _: HttpRequest) -> Response:
        """A trace that is being written goes on. Answers between two steps, as above; so does the end of one."""
        self._refuse_unless_ready()
        model, plan = self._worker.snapshot.model, self._worker.snapshot.memory_plan
        name, pool_bytes = "" if model is None else model.id, 0 if plan is None else plan.pool_bytes
        return json_response(await self._told(lambda each: each.start_trace(model=name, pool_bytes=pool_bytes)))

    async def stop_trace(self, _: HttpRequest) -> Response:
        self._refuse_unless_ready()
        return json_response(await self._told(lambda execution: execution.stop_trace()))

    async def _told(self, work: "Callable[[Execution], Answer]") -> Answer:
        """What the worker's thread found when it did the work."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Answer] = loop.create_future()

        def do(execution: "Execution") -> None:
            answer = work(execution)
            loop.call_soon_threadsafe(_settle, told, answer)

        self._worker.order(do)
        return await self._unless_stopping(told)

    async def shutdown(self, _: HttpRequest) -> Response:
        self.stop()
        self._on_shutdown()
        return json_response(self._health())

    @property
    def _open_intake(self) -> "Intake":
        if self._intake is None:
            raise NotReady("the model is not known yet")
        return self._intake

    def _refuse_unless_ready(self) -> None:
        state = self._state
        if state == "stopping":
            raise Stopping
        if state != "ready":
            raise NotReady(f"the model is not ready: {state}")

    @property
    def _state(self) -> EngineState:
        return "stopping" if self._stopping.is_set() else self._worker.snapshot.state

    def _health(self) -> Health:
        return Health(pid=os.getpid(), nonce=self._nonce, state=self._state, error=self._worker.snapshot.error)

    def _start(self, admitted: "Admitted", arrived_at: float) -> EventStream:
        """Hand the request to the worker, behind its first event."""
        asked = admitted.asked
        stream = EventStream(request_id=asked.id, cancel=lambda: self._worker.cancel(asked.id))
        stream.put([Accepted(id=asked.id, prompt_tokens=len(admitted.prompt))])
        self._worker.submit(
            Request(
                id=asked.id,
                prompt=admitted.prompt,
                sampling=admitted.sampling,
                max_tokens=admitted.max_tokens,
                request_class=asked.request_class,
                output=admitted.output,
                deliver=stream.deliver,
                arrived_at=arrived_at,
                blocks=admitted.blocks,
                marks=admitted.marks,
                constraint=admitted.constraint,
            )
        )
        return stream

    async def _on_text_thread(self, work: Callable[[], Answer]) -> Answer:
        """Work that has begun is left to the end of the process when the engine stops first."""

        def timed() -> Answer:
            self._text_begun_at = self._monotonic()
            try:
                return work()
            finally:
                self._text_begun_at = None

        return await self._unless_stopping(asyncio.get_running_loop().run_in_executor(self._text_thread, timed))

    def _text_busy_s(self) -> float:
        """Of the text thread, or of a grammar that it has given up and that goes on."""
        begun_at = self._text_begun_at
        busy_s = 0.0 if begun_at is None else self._monotonic() - begun_at
        return busy_s if self._intake is None else max(busy_s, self._intake.given_up_s)

    async def _unless_stopping(self, working: "asyncio.Future[Answer]") -> Answer:
        """Raises Stopping when the engine stops first."""
        stopping = asyncio.create_task(self._stopping.wait(), name="stopping")
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Stopping
            return working.result()
        finally:
            stopping.cancel()
            working.cancel()


def _settle(told: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not told.done():
        told.set_result(answer)


def make_app(door: Door, *, secret: str, port: int) -> Starlette:
    return Starlette(
        routes=[
            Route(GENERATE, door.generate, methods=["POST"]),
            Route(COUNT, door.count, methods=["POST"]),
            Route(STATUS, door.status, methods=["GET"]),
            Route(HEALTHZ, door.healthz, methods=["GET"]),
            Route(CANCEL, door.cancel, methods=["POST"]),
            Route(SHUTDOWN, door.shutdown, methods=["POST"]),
            Route(CACHE_CLEAR, door.clear_cache, methods=["POST"]),
            Route(TRACE_START, door.start_trace, methods=["POST"]),
            Route(TRACE_STOP, door.stop_trace, methods=["POST"]),
        ],
        middleware=[Middleware(Doorkeeper, secret=secret, port=port)],
        exception_handlers={
            EngineError: _answer_error,
            HTTPException: _answer_http_error,
            ClientDisconnect: _answer_nobody,
            Exception: _answer_failure,
        },
    )


async def _answer_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    return error_response(error)


async def _answer_http_error(http: HttpRequest, error: Exception) -> Response:
    """What Starlette itself refuses: an unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(NotFound(f"no such path: {http.url.path}"))
    response = error_response(InvalidRequest(f"{http.method} is not a method of {http.url.path}"))
    response.status_code = error.status_code
    return response


async def _answer_nobody(http: HttpRequest, _: Exception) -> Response:
    """The client left while it sent its body."""
    logger.debug("client left path=%r", http.url.path)
    return Response(status_code=400)


async def _answer_failure(http: HttpRequest, error: Exception) -> Response:
    logger.error("request failed path=%r error=%s", http.url.path, type(error).__name__)
    return error_response(EngineError("the engine failed on this request; its log says why"))
