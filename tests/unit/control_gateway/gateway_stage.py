"""The gateway on real sockets, before a small engine that plays scripts; its supervisor is a value that a test sets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from control.dialects.exchange import default_heartbeat
from control.engine_client import EngineClient
from control.fifo import Line
from control.gate import loopback_hosts
from control.http_protocol import HttpProtocol
from control.keys import KeyRing, load_keys
from control.metrics.database import open_database, open_for_reading
from control.metrics.questions import Questions
from control.metrics.writer import Writer
from control.public_api import public_api
from control.relay import Relay
from engine import wire
from tests.fakes.newest_rows import newest_rows

SECRET = "engine secret"
DEMO = wire.ModelStatus(
    id="demo",
    path="/models/demo",
    architecture="demo",
    quantization=None,
    is_demo=True,
    maximum_context_tokens=4096,
    native_context_tokens=4096,
    has_thinking=True,
    has_tools=True,
)
USAGE = wire.Usage(prompt=7, cached=4, completion=5, reasoning=2)
TIMINGS = wire.Timings(wait_ms=1.0, prefill_ms=20.0, decode_ms=30.0, first_emission_tokens=1)
FINISHED = wire.Finished(reason="stop", usage=USAGE, timings=TIMINGS)


class TestServer(uvicorn.Server):
    """Leaves the signals of the test process alone, and sees at once that it shall end."""

    __test__ = False

    def __init__(self, config, port: int) -> None:
        super().__init__(config)
        self.port = port
        self.ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self):
        yield

    async def main_loop(self) -> None:
        await self.ending.wait()


@contextlib.asynccontextmanager
async def serving(make_app: Callable[[int], object], http="httptools") -> AsyncIterator[TestServer]:
    """A real server on a free port of this machine. `make_app` is given the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    # As uvloop has it, on which Splash runs; asyncio's loop has not, and then each answer takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        make_app(port),
        http=http,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = TestServer(config, port)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await eventually(lambda: server.started)
    try:
        yield server
    finally:
        server.ending.set()
        await task
        listener.close()


class Died(Exception):
    """The script's engine breaks its connection off."""


def accepted(request: wire.GenerateRequest) -> list[wire.Event]:
    return [wire.Accepted(id=request.id, prompt_tokens=7), wire.Prefill(processed=7, cached=4, total=7)]


def says(*events: wire.Event, finished: wire.Finished = FINISHED):
    """A script that answers at once."""

    async def script(request):
        yield accepted(request)
        yield [*events, finished]

    return script


@dataclass
class ScriptedEngine:
    """Each /generate plays the next script: an async generator of lists of events. The last one is played again."""

    scripts: list = field(default_factory=list)
    received: list[wire.GenerateRequest] = field(default_factory=list)
    counted: list[wire.CountRequest] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    prompt_tokens: int = 7
    refusal: wire.ErrorAnswer | None = None
    count_refusal: wire.ErrorAnswer | None = None
    count_opened: asyncio.Event | None = None

    def app(self, _port: int = 0) -> Starlette:
        return Starlette(
            routes=[
                Route(wire.GENERATE, _asgi(self._generate), methods=["POST"]),
                Route(wire.COUNT, self._count, methods=["POST"]),
                Route(wire.CANCEL, self._cancel, methods=["POST"]),
                Route(wire.HEALTHZ, self._healthz),
            ]
        )

    async def _generate(self, scope, receive, send) -> None:
        try:
            request = msgspec.json.decode(await Request(scope, receive).body(), type=wire.GenerateRequest)
        except ClientDisconnect:
            return
        self.received.append(request)
        if self.refusal is not None:
            await Response(msgspec.json.encode(self.refusal), status_code=400)(scope, receive, send)
            return
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        headers = [(b"content-type", wire.NDJSON.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        play = asyncio.create_task(self._play(script(request), send))
        watch = asyncio.create_task(_gone(receive))
        await asyncio.wait({play, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not play.done():
            self.cancelled.append(request.id)
            play.cancel()
        watch.cancel()
        await asyncio.wait({play, watch})
        if not play.cancelled() and play.exception() is not None:
            raise play.exception()

    async def _play(self, script, send) -> None:
        async with contextlib.aclosing(script) as batches:
            async for events in batches:
                lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
                await send({"type": "http.response.body", "body": lines, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _count(self, request: Request) -> Response:
        self.counted.append(msgspec.json.decode(await request.body(), type=wire.CountRequest))
        if self.count_opened is not None:
            await self.count_opened.wait()
        if self.count_refusal is not None:
            return Response(msgspec.json.encode(self.count_refusal), status_code=400)
        answer = wire.CountAnswer(prompt_tokens=self.prompt_tokens, maximum_context_tokens=4096)
        return Response(msgspec.json.encode(answer))

    async def _cancel(self, request: Request) -> Response:
        self.cancelled.append(request.path_params["id"])
        return Response(msgspec.json.encode(wire.CancelAnswer(id=request.path_params["id"], found=True)))

    async def _healthz(self, request: Request) -> Response:
        if request.headers["authorization"] != f"Bearer {SECRET}":
            answer = wire.ErrorAnswer(code="unauthorized", message="no")
            return Response(msgspec.json.encode(answer), status_code=401)
        return Response(msgspec.json.encode(wire.Health(pid=1, nonce="n", state="ready")))


class _asgi:  # noqa: N801  # it stands where Starlette expects an ASGI app and not a function
    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        await self.app(scope, receive, send)


async def _gone(receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass
class Source:
    """An `EngineSource`."""

    engine: EngineClient | None = None
    availability: str = "ready"
    model: wire.ModelStatus | None = DEMO
    wanted_model: str | None = "demo"
    on_look: Callable[[], None] = lambda: None

    def look(self) -> None:
        self.on_look()


@dataclass
class Stage:
    engine: ScriptedEngine
    source: Source
    line: Line
    relay: Relay
    keys: KeyRing
    writer: Writer
    questions: Questions
    server: "TestServer"
    key: str
    client: httpx.AsyncClient

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def connections(self) -> set:
        """Those that clients have with the gateway now."""
        return self.server.server_state.connections

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def rows(self, num_rows=1):
        """All rows, the oldest first, when there are so many: one is written just after its client has the answer."""
        async with asyncio.timeout(3):
            while len(rows := await newest_rows(self.questions)) < num_rows:  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(0.005)
        return list(reversed(rows))


@contextlib.asynccontextmanager
async def staged(
    tmp_path,
    *,
    concurrency=4,
    limit=256,
    heartbeat_s=15.0,
    grace_s=1.0,
    count_patience_s=20.0,
    notice_limit_s=0.3,
    heartbeat_of=default_heartbeat,
    engine=None,
    http=HttpProtocol,
    **api,
) -> AsyncIterator[Stage]:
    path = tmp_path / "splash.db"
    database = open_database(path)
    writer = Writer(database)
    keys = load_keys(database, writer)
    questions = Questions(open_for_reading(path))
    engine, source, line = (
        engine or ScriptedEngine(scripts=[says(wire.TextDelta(text="hello"))]),
        Source(),
        Line(concurrency, limit=limit),
    )
    relay = Relay(
        line=line,
        source=source,
        record=writer.record,
        heartbeat_s=heartbeat_s,
        grace_s=grace_s,
        count_patience_s=count_patience_s,
        notice_limit_s=notice_limit_s,
        heartbeat_of=heartbeat_of,
    )
    key = (await keys.create("test")).key
    try:
        async with (
            serving(engine.app) as engine_server,
            serving(
                lambda port: public_api(keys=keys, relay=relay, source=source, hosts=loopback_hosts(port), **api), http
            ) as server,
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{server.port}",
                headers={"authorization": f"Bearer {key}"},
                trust_env=False,
                verify=False,
            ) as client,
        ):
            source.engine = EngineClient(port=engine_server.port, secret=SECRET, is_there=lambda: True)
            line.open()
            try:
                yield Stage(engine, source, line, relay, keys, writer, questions, server, key, client)
            finally:
                await source.engine.aclose() if source.engine else None
    finally:
        questions.close()
        writer.close()


def chat_body(**fields) -> dict:
    return {"model": "demo", "messages": [{"role": "user", "content": "hi"}], **fields}


def chunks(text: str) -> list[dict]:
    """The JSON of each data frame of a stream, without comments and [DONE]."""
    frames = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame.startswith("data: ")]
    return [msgspec.json.decode(frame) for frame in frames if frame != "[DONE]"]


def assert_refused(answer, status, code):
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    assert "access-control-allow-origin" not in answer.headers


async def eventually(claim: Callable[[], bool], *, within_s: float = 3.0) -> None:
    """Until `claim` holds."""
    async with asyncio.timeout(within_s):
        while not claim():  # noqa: ASYNC110  # what is waited for has no event: it happens behind a socket
            await asyncio.sleep(0.005)
