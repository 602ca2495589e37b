"""A control that does as it is told: the admin door of `control.wire` on a real socket, with a scripted overview.

It runs no engine and keeps no line; the test says what the overview is, and reads which orders came.
"""

import asyncio
import threading
import time
from dataclasses import dataclass, field

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from tests.fakes.ended_requests import MODEL_ID, listed
from tests.fakes.ended_requests import finished as finished

MIB = 1024**2
GIB = 1024**3

SECRET = "the-admin-secret"
MODEL = wire.ModelStatus(
    id=MODEL_ID,
    path="/models/Qwen3.8-27B-4bit",
    architecture="qwen3_next",
    quantization="4-bit, group 64",
    is_demo=False,
    maximum_context_tokens=262_144,
    native_context_tokens=262_144,
    has_thinking=True,
    has_tools=True,
)
PLAN = wire.MemoryPlan(
    weights_bytes=int(178.9 * GIB),
    fixed_bytes=int(3.1 * GIB),
    kv_bytes_per_token=65_536,
    state_bytes_per_sequence=48 * MIB,
    pool_bytes=16 * GIB,
    limit_bytes=int(222.7 * GIB),
    maximum_context_tokens=262_144,
    fits=True,
    verdict="fits",
    reserve_bytes=8 * GIB,
    snapshots_per_session=6,
    longest_context_tokens=245_000,
    warm_session_tokens=23_000,
    warm_sessions=6,
)
CACHE = wire.CacheStatus(
    is_on=True,
    budget_bytes=int(11.8 * GIB),
    used_bytes=int(8.2 * GIB),
    blocks=4_100,
    snapshots=58,
    lookups=1_204,
    hits=1_180,
    lookup_tokens=51_204_118,
    reused_tokens=47_671_034,
    hit_rate=0.931,
)
CLEARED = wire.CacheCleared(freed_bytes=int(8.2 * GIB), blocks=4_100, snapshots=58)
PROMISES = wire.PromiseStatus(max_gap_ms=500.0, decode_share=0.5, largest_gap_ms=412.0, gaps=18_204, windows=2_310)
GOVERNOR = wire.GovernorStatus(
    pool_bytes=16 * GIB, planned_pool_bytes=16 * GIB, available_bytes=28 * GIB, observed_bytes=int(194.6 * GIB)
)
ACTUAL = wire.MemoryActual(
    active_bytes=int(194.6 * GIB), peak_bytes=int(196.0 * GIB), kv_bytes=int(4.2 * GIB), process_bytes=int(195.9 * GIB)
)


def engine(state: wire.EngineState = "ready", **changes: object) -> wire.EngineView:
    """An engine in `state`, with a model, a plan and figures where that state has them."""
    is_loaded = state in ("ready", "draining")
    view = wire.EngineView(
        state=state,
        pid=None if state == "unloaded" else 4242,
        port=None if state == "unloaded" else 18_081,
        model_name=None if state == "unloaded" else MODEL.id,
        since_s=time.time() - 4_212.0,
        model=MODEL if is_loaded else None,
        layout=wire.LayoutStatus(kind="rows", reason="ragged equals plain within 0.02") if is_loaded else None,
        self_tests=(
            wire.SelfTest(name="ragged", passed=True, error=0.01, tolerance=0.05),
            wire.SelfTest(
                name="late_system",
                passed=True,
                error=None,
                tolerance=None,
                detail="native: a later system message is rendered in its place",
            ),
        )
        if is_loaded
        else (),
        memory_plan=None if state == "unloaded" else PLAN,
        memory_actual=ACTUAL if is_loaded else None,
        load=wire.LoadProgress(
            bytes_read=int(178.9 * GIB), bytes_total=int(178.9 * GIB), seconds=61.0, read_seconds=44.0
        )
        if is_loaded
        else None,
        cache=CACHE if is_loaded else None,
        promises=PROMISES if is_loaded else None,
        governor=GOVERNOR if is_loaded else None,
        status_age_s=0.2 if is_loaded else None,
    )
    return msgspec.structs.replace(view, **changes)


def engine_with_warnings() -> wire.EngineView:
    """It answers, though three self-tests did not pass and other programs need memory."""
    details = {
        "restore": "logits differ by 3.1e+00 from recomputing, beyond 1.0e-03",
        "late_system": "unsupported: no form of a later system message is rendered in its place",
        "gated_delta": "the kernel differs by 2.0e-01, beyond 1.0e-02",
    }
    return engine(
        cache=wire.CacheStatus(is_on=False, reason=f"the self-test failed: {details['restore']}"),
        self_tests=tuple(
            wire.SelfTest(name=name, passed=False, error=None, tolerance=None, detail=detail)
            for name, detail in details.items()
        ),
        promises=msgspec.structs.replace(PROMISES, largest_gap_ms=1_612.0, gap_violations=3),
        governor=msgspec.structs.replace(GOVERNOR, pool_bytes=6 * GIB, is_pressed=True),
    )


def padded_engine() -> wire.EngineView:
    """Its caches are of a kind that has no rows: that is how the model is, and nothing is wrong."""
    why = "no rows for caches of kind ChunkedKVCache"
    unsupported = wire.SelfTest(name="rows", passed=False, error=None, tolerance=None, detail=why, is_supported=False)
    layout = wire.LayoutStatus(kind="padded", reason=f"equal to plain decoding in the self-test; rows: {why}")
    passed = wire.SelfTest(name="padded", passed=True, error=0.01, tolerance=0.05)
    return engine(layout=layout, self_tests=(unsupported, passed))


def prefilling(
    number: int = 4812,
    *,
    slot: int = 1,
    prefilled: int = 100_832,
    cached: int = 56_807,
    prompt: int = 142_018,
    eta_s: float | None = 9.0,
    key: str = "claude",
) -> wire.Slot:
    return wire.Slot(
        slot=slot,
        id=f"r{number}",
        number=number,
        key=key,
        dialect="chat",
        phase="prefill",
        prompt_tokens=prompt,
        cached_tokens=cached,
        prefilled_tokens=prefilled,
        output_tokens=0,
        tokens_per_second=2_940.0,
        eta_s=eta_s,
        elapsed_s=31.0,
    )


def decoding(number: int = 4809, *, slot: int = 2, output: int = 812, key: str = "codex") -> wire.Slot:
    return wire.Slot(
        slot=slot,
        id=f"r{number}",
        number=number,
        key=key,
        dialect="chat",
        phase="decode",
        prompt_tokens=60_392,
        cached_tokens=57_000,
        prefilled_tokens=60_392,
        output_tokens=output,
        tokens_per_second=52.1,
        eta_s=None,
        elapsed_s=72.0,
    )


def paused(slot: wire.Slot) -> wire.Slot:
    """The same request after it gave its memory to others."""
    return msgspec.structs.replace(slot, is_suspended=True, tokens_per_second=0.0, eta_s=None)


def waiting(
    number: int, position: int, *, phase: wire.RequestPhase = "waiting", waited_s: float = 14.0
) -> wire.Waiting:
    return wire.Waiting(
        id=f"r{number}",
        number=number,
        position=position,
        key="opencode",
        dialect="chat",
        phase=phase,
        request_class="batch" if number % 2 else "interactive",
        prompt_tokens=31_204,
        waited_s=waited_s,
    )


def overview(
    *,
    slots: tuple[wire.Slot, ...] = (),
    line: tuple[wire.Waiting, ...] = (),
    view: wire.EngineView | None = None,
    concurrency: int = 4,
    quitting: bool = False,
    today: wire.Today | None = None,
) -> wire.Overview:
    by_number = {slot.slot: slot for slot in slots}
    decode = [slot.tokens_per_second or 0.0 for slot in slots if slot.phase == "decode" and not slot.is_suspended]
    return wire.Overview(
        sampled_at_s=time.time(),
        engine=view or engine(),
        concurrency=concurrency,
        slots=tuple(by_number.get(number) for number in range(1, wire.NUM_SLOTS + 1)),
        waiting=line,
        decode_tokens_per_second=sum(decode) if decode else None,
        decoding=len(decode),
        today=today
        or wire.Today(
            requests=1_204,
            prompt_tokens=51_204_118,
            cached_tokens=47_671_034,
            completion_tokens=402_118,
            hit_rate=0.931,
        ),
        quitting=quitting,
        api_base="http://127.0.0.1:8888/v1",
        version="0.1.0",
    )


@dataclass(slots=True)
class FakeControl:
    """`orders` are (method, path, body) of what was not a question. `is_silent`: answers 503 without a reason.

    `answers_after_s`: an order is followed at once and confirmed that much later. `answers`: what any other question
    gets, by its path without the query; bytes as they are, an AdminError as a 400; `order_answers` the same for orders.
    `questions` are (path, query) of those. `tries` are (password, address); `too_many_s`: none is taken for so long.
    """

    overview: wire.Overview = field(default_factory=overview)
    requests: tuple[wire.RequestRow, ...] = ()
    models: tuple[wire.ModelOnDisk, ...] = ()
    unusable: tuple[wire.UnusableModel, ...] = ()
    keys: list[wire.KeyView] = field(default_factory=list)
    links: set[str] = field(default_factory=set)
    orders: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)
    refusal: wire.AdminError | None = None
    is_silent: bool = False
    answers_after_s: float = 0.0
    cleared: wire.CacheCleared = CLEARED
    answers: dict[str, msgspec.Struct | bytes] = field(default_factory=dict)
    order_answers: dict[str, msgspec.Struct | bytes] = field(default_factory=dict)
    questions: list[tuple[str, str]] = field(default_factory=list)
    password: str | None = None
    tries: list[tuple[str, str]] = field(default_factory=list)
    too_many_s: int | None = None
    port: int = 0
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    def reset(self) -> None:
        """As new; the socket stays."""
        self.overview, self.requests, self.models, self.unusable = overview(), (), (), ()
        self.keys, self.links, self.orders = [], set(), []
        self.refusal, self.is_silent, self.answers_after_s = None, False, 0.0
        self.cleared = CLEARED
        self.answers, self.order_answers, self.questions = {}, {}, []
        self.password, self.tries, self.too_many_s = None, [], None

    def start(self, port: int = 0) -> None:
        """Serve from a thread of its own; 0 takes a free port."""
        self._server = uvicorn.Server(
            uvicorn.Config(self.app(), port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
            self._server = self._thread = None

    def app(self) -> Starlette:
        routes = [
            Route(wire.OVERVIEW, self._question(lambda: self.overview)),
            Route(wire.REQUESTS, self._requests),
            Route(wire.MODELS, self._question(lambda: wire.ModelList(models=self.models, refused=self.unusable))),
            Route(wire.KEYS, self._question(lambda: wire.KeyList(keys=tuple(self.keys)))),
            Route(wire.REDEEM, self._redeem, methods=["POST"]),
            Route(wire.PASSWORD_LOGIN, self._check_password, methods=["POST"]),
            Route(wire.KEYS, self._create_key, methods=["POST"]),
            Route(wire.CACHE_CLEAR, self._clear_cache, methods=["POST"]),
        ]
        orders = Route("/{path:path}", self._order, methods=["POST", "PUT", "PATCH", "DELETE"])
        return Starlette(routes=[*routes, Route("/{path:path}", self._answer), orders])

    async def _answer(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        path = request.scope["path"]
        self.questions.append((path, request.url.query))
        if path not in self.answers:
            return _json(wire.AdminError(code="not_found", message=f"{path} is not there"), 404)
        return _answered(self.answers[path], 200)

    async def _requests(self, request: Request) -> Response:
        """`answers[wire.REQUESTS]`, when the test has set it; else `requests`, as the page *Now* lists them."""
        if wire.REQUESTS in self.answers and "limit=12" not in request.url.query:
            return await self._answer(request)
        return self._refused(request) or _json(wire.RequestPage(requests=tuple(map(listed, self.requests))))

    def _question(self, answer):
        async def endpoint(request: Request) -> Response:
            return self._refused(request) or _json(answer())

        return endpoint

    async def _order(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        if self.refusal is not None:
            return _json(self.refusal, 409)
        path = request.scope["path"]
        self.orders.append((request.method, path, msgspec.json.decode(await request.body() or b"{}")))
        await asyncio.sleep(self.answers_after_s)
        return _answered(self.order_answers.get(path, wire.Accepted(message="begun")), 202)

    async def _redeem(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        token = msgspec.json.decode(await request.body(), type=wire.Redeem).token
        if token not in self.links:
            return _json(wire.AdminError(code="not_found", message="unknown, used or expired"), 404)
        self.links.remove(token)
        return Response(status_code=200)

    async def _check_password(self, request: Request) -> Response:
        if (refused := self._refused(request)) is not None:
            return refused
        order = msgspec.json.decode(await request.body(), type=wire.PasswordLogin)
        self.tries.append((order.password, order.address))
        code, status = ("no_password", 404) if self.password is None else ("wrong_password", 403)
        if self.too_many_s is not None:
            code, status = "too_many_attempts", 429
        elif order.password == self.password:
            return Response(status_code=204)
        answer = _json(wire.AdminError(code=code, message="no"), status)
        answer.headers["Retry-After"] = str(self.too_many_s or 0)
        return answer

    async def _clear_cache(self, request: Request) -> Response:
        answer = await self._order(request)
        return answer if answer.status_code != 202 else _json(self.cleared)

    async def _create_key(self, request: Request) -> Response:
        answer = await self._order(request)
        if answer.status_code != 202:
            return answer
        order = msgspec.json.decode(await request.body(), type=wire.NewKey)
        view = wire.KeyView(
            id=len(self.keys) + 1,
            name=order.name,
            request_class=order.request_class,
            hint="sk-splash-AbC…9xYz",
            created_at_s=1_795_000_000.0,
        )
        self.keys.append(view)
        return _json(wire.CreatedKey(key="sk-splash-AbCdEfGhIjKlMnOpQrStUvWx9xYz", view=view), 201)

    def _refused(self, request: Request) -> Response | None:
        if self.is_silent:
            return Response(status_code=503)
        if request.headers.get("authorization") != f"Bearer {SECRET}":
            return _json(wire.AdminError(code="unauthorized", message="the admin secret is missing or wrong"), 401)
        return None


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _answered(answer: msgspec.Struct | bytes, status: int) -> Response:
    if isinstance(answer, wire.AdminError):
        status = 400
    return Response(answer, status) if isinstance(answer, bytes) else _json(answer, status)
