"""The life of the engine process: bind, record, open the door, check the model, start the worker; stop, and say why.

It answers no request itself (`engine.door.server`) and holds no tensor (`engine.worker`).

The door answers from the first moment, so that an engine that downloads for an hour can be found, watched and stopped.
Finding, checking and tokenising happen on the text thread, loading and computing on the worker thread.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from engine.beginning import Beginning
from engine.door.http_server import make_http_server
from engine.door.server import Door, make_app
from engine.errors import EngineError
from engine.launch import bind, read_launch, remove_record, write_record
from engine.promises import Promises
from engine.wire import Launch, ModelStatus, Roofline

if TYPE_CHECKING:
    from engine.model.loader import LoadedModel
    from engine.startup import CheckedModel
    from engine.text.tokenizer import TextModel
    from engine.worker import Worker

logger = logging.getLogger(__name__)

# A step of the device is bounded by the prefill slice (0.8 s alone); far more is a wedge, which only an exit ends.
WORKER_END_TIMEOUT_S: Final = 5.0


def serve(home: Path) -> None:
    """Run until the engine is told to stop. Raises EngineError when it ends otherwise: Refused, PortTaken, …"""
    launch = read_launch(home)
    with bind(launch.port) as listener:
        record = write_record(home, launch, listener.getsockname()[1])
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_Life(launch, home, listener).run())
        finally:
            remove_record(home, record)


class _Life:
    """One run of the engine. All methods run on the loop, but for those that name another thread."""

    def __init__(self, launch: Launch, home: Path, listener: socket.socket) -> None:
        self._launch = launch
        self._home = home
        self._listener = listener
        self._text_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="text")
        self._beginning = Beginning(concurrency=launch.concurrency)
        self._worker: Worker | None = None
        self._reason: EngineError | None = None

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._end)
        self._door = Door(
            worker=self._beginning,
            text_thread=self._text_thread,
            nonce=self._launch.nonce,
            on_shutdown=self._end,
        )
        server = make_http_server(
            make_app(self._door, secret=self._launch.secret, port=self._listener.getsockname()[1])
        )
        serving = asyncio.create_task(server.serve(sockets=[self._listener]), name="serve")
        serving.add_done_callback(lambda _: self._end())
        opening = asyncio.create_task(self._open(), name="open")
        opening.add_done_callback(self._opened)
        try:
            await self._over.wait()
            self._door.stop()
            opening.cancel()
            await self._end_worker()
        finally:
            server.should_exit = True
            await serving
        if self._reason is not None:
            raise self._reason

    def _end(self, reason: EngineError | None = None) -> None:
        """The first reason counts; None is a wish, from a signal or through the door."""
        if not self._over.is_set():
            self._reason = reason
            self._over.set()

    def _fatal(self, error: EngineError) -> None:
        """Called on the worker thread."""
        self._loop.call_soon_threadsafe(self._end, error)

    async def _open(self) -> None:
        checked = await self._loop.run_in_executor(
            self._text_thread, _check, self._launch, self._home, self._beginning.downloaded
        )
        checked = await self._loop.run_in_executor(self._text_thread, _fit_device, checked, self._launch)
        self._start(checked)

    def _opened(self, opening: "asyncio.Task[None]") -> None:
        """An engine that cannot open must end: it would say that it is loading for ever."""
        error = None if opening.cancelled() else opening.exception()
        if isinstance(error, EngineError):
            self._end(error)
        elif error is not None:
            logger.error("engine could not start", exc_info=error)
            self._end(EngineError(f"the engine could not start: {type(error).__name__}: {error}"))

    def _start(self, checked: "CheckedModel") -> None:
        from engine.door.intake import Intake  # MLX was imported on the text thread, so this takes no time
        from engine.model.loader import load
        from engine.text.canary import template_canary
        from engine.text.tokenizer import load_text_model
        from engine.worker import Worker

        path = checked.preflight.path
        intake = Intake(lambda: load_text_model(path), checked.plan.maximum_context_tokens)
        text_model = self._text_thread.submit(intake.load)
        self._worker = Worker(
            lambda on_progress: load(path, on_progress),
            describe=lambda _: _describe(checked, text_model),
            memory_plan=checked.plan,
            on_fatal=self._fatal,
            max_streams=self._launch.concurrency,
            kv_bits=checked.plan.kv_bits,
            text_tests=lambda: (template_canary(text_model.result()),),
            roofline=lambda loaded: _roofline(checked, loaded),
            traces=self._home / "traces",
            promises=Promises(max_gap_ms=self._launch.max_gap_ms, decode_share=self._launch.decode_share),
        )
        self._worker.start()
        self._door.open(self._worker, intake)
        logger.info("model is loading name=%s bytes=%d", checked.preflight.name, checked.plan.weights_bytes)

    async def _end_worker(self) -> None:
        """What runs ends with a last event; a worker that hangs in the device is left to the exit of the process."""
        if self._worker is None:
            return
        self._worker.stop()
        if not await asyncio.to_thread(self._worker.join, WORKER_END_TIMEOUT_S):
            logger.error("worker did not end timeout_s=%.0f", WORKER_END_TIMEOUT_S)


def _check(launch: Launch, home: Path, on_progress: Callable[[int, int], None]) -> "CheckedModel":
    """On the text thread: the hub's library takes a second to import, which the record must not wait for."""
    from engine.startup import check_model

    return check_model(launch, home, on_progress)


def _fit_device(checked: "CheckedModel", launch: Launch) -> "CheckedModel":
    """On the text thread: importing MLX takes a second or more that the loop must not stand still for."""
    import engine.model.loader
    import engine.roofline
    import engine.worker  # noqa: F401  # imported for the time it takes
    from engine.device import working_set_bytes
    from engine.startup import within_device

    return within_device(checked, launch, working_set_bytes())


def _roofline(checked: "CheckedModel", loaded: "LoadedModel") -> Roofline | None:
    """On the worker thread, when the weights are loaded and no context is: what contexts may take is free."""
    from engine.roofline import roofline

    return roofline(loaded.model, loaded.config, checked.preflight, checked.plan)


def _describe(checked: "CheckedModel", text_model: "Future[TextModel]") -> ModelStatus:
    """On the worker thread, when the weights are loaded. Raises Refused when the tokenizer could not be."""
    found = checked.preflight
    markup = text_model.result().markup
    return ModelStatus(
        id=found.name,
        path=str(found.path),
        architecture=found.architecture,
        quantization=found.quantization,
        is_demo=found.is_demo,
        maximum_context_tokens=checked.plan.maximum_context_tokens,
        native_context_tokens=found.native_context_tokens,
        has_thinking=markup.think_start is not None,
        has_tools=markup.call_start is not None,
    )
