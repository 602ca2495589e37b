"""A device in simulated time that does what the scheduler says, and checks of each action that it keeps the rules.

It shares nothing with the scheduler's own bookkeeping: gaps, shares, overtaking and waits are worked out from what
happened.
"""

import random
from dataclasses import dataclass, field

from engine.admission import MemoryPool
from engine.line import BATCH_OVERTAKEN_LIMIT, is_overdue
from engine.pace import FIRST_SLICE_TOKENS, LARGEST_SLICE_TOKENS
from engine.promises import Promises
from engine.request import Request
from engine.scheduler import Action, Decode, Idle, Join, Prefill, Refuse, Scheduler, Start, Suspend
from engine.wire import RequestClass
from tests.unit.engine.conversations import a_request

DOCUMENT_TOKENS = 4096
MOST_ACTIONS = 400_000


def floor32(length: int) -> int:
    return length // 32 * 32


@dataclass(frozen=True)
class Visit:
    """A request as it comes. Those of a `family` begin alike for `shared` tokens, with the same `tail` all along."""

    shared: int
    own: int
    family: int
    tail: int
    max_tokens: int
    request_class: RequestClass
    arrived_at: float
    leaves_after_s: float | None

    def request(self, request_id: str) -> Request:
        return a_request(
            request_id,
            prompt=(self.family,) * self.shared + (self.tail,) * self.own,
            max_tokens=self.max_tokens,
            request_class=self.request_class,
            arrived_at=self.arrived_at,
        )


@dataclass
class ToyCache:
    """Keys of blocks, and of those at which there is a snapshot; the oldest go when there are too many."""

    needs_snapshots: bool
    most_blocks: int
    blocks: dict[bytes, None] = field(default_factory=dict)
    snapshots: dict[bytes, None] = field(default_factory=dict)

    def restorable(self, request: Request) -> int:
        keys = request.blocks.keys[: (request.input_len - 1) // 32]
        matched = next((i for i, key in enumerate(keys) if key not in self.blocks), len(keys))
        if self.needs_snapshots:
            matched = next((i for i in range(matched, 0, -1) if keys[i - 1] in self.snapshots), 0)
        return matched * 32

    def publish(self, request: Request, length: int, *, takes_snapshot: bool) -> None:
        keys = request.blocks.keys[: length // 32]
        self.blocks |= dict.fromkeys(keys)
        if takes_snapshot and keys:
            self.snapshots[keys[-1]] = None
        while len(self.blocks) > self.most_blocks:
            del self.blocks[next(iter(self.blocks))]


@dataclass
class ToyDevice:
    """`noise` 0.1: everything takes from 0.9 to 1.1 times as long as it should."""

    visits: list[Visit]
    pool: MemoryPool
    max_streams: int = 4
    promises: Promises = field(default_factory=Promises)
    ms_per_token: float = 0.3
    equal_cost_tokens: int = 10_000  # so many tokens before a slice make it twice as slow
    step_ms: float = 20.0
    pause_ms: float = 10.0
    noise: float = 0.1
    seed: int = 0
    needs_snapshots: bool = False
    most_cached_blocks: int = 10_000
    pool_changes: list[tuple[float, float]] = field(default_factory=list)  # at this second, to this part of the plan

    def __post_init__(self) -> None:
        self.cache = ToyCache(self.needs_snapshots, self.most_cached_blocks)
        self.scheduler = Scheduler(
            max_streams=self.max_streams,
            pool=self.pool,
            promises=self.promises,
            restorable=self.cache.restorable,
            needs_snapshots=self.needs_snapshots,
        )
        self.now = 0.0
        self.random = random.Random(self.seed)
        self.requests = [visit.request(str(i)) for i, visit in enumerate(self.visits)]
        self.to_come = sorted(self.requests, key=lambda request: request.arrived_at)
        self.leaves_at = {
            request: visit.arrived_at + visit.leaves_after_s
            for request, visit in zip(self.requests, self.visits, strict=True)
            if visit.leaves_after_s is not None
        }
        self.arrivals: dict[Request, int] = {}
        self.ended: list[Request] = []
        self.refused: list[Request] = []
        self.covered: dict[Request, int] = {}
        self.last_token_at: dict[Request, float] = {}
        self.largest_gap_ms = 0.0
        self.passes: dict[Request, int] = {}
        self.class_passes: dict[Request, int] = {}
        self.batch_passed: dict[Request, bool] = {}
        self.has_sliced = False
        self.pool_now = self.pool
        self.has_waited = False  # the streams, since their last step
        self.decode_ms = self.other_ms = self.credit_ms = 0.0
        self.steps_ms: list[float] = []
        self.window_streams: frozenset[Request] | None = None

    # --- time --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(MOST_ACTIONS):
            self.arrive_and_leave()
            self.check_always()
            if not self.scheduler.decoding:
                self.decode_ms = self.other_ms = self.credit_ms = 0.0
            action = self.scheduler.next_action(self.now)
            self.check_pool(action)
            if isinstance(action, Idle):
                assert not self.scheduler.requests
                if not self.to_come:
                    return
                self.now = self.to_come[0].arrived_at
            else:
                self.do(action)
        raise AssertionError("not everyone ended")

    def arrive_and_leave(self) -> None:
        while self.to_come and self.to_come[0].arrived_at <= self.now:
            request = self.to_come.pop(0)
            self.arrivals[request] = len(self.arrivals)
            self.scheduler.enter(request)
        for request in [each for each, leaves_at in self.leaves_at.items() if leaves_at <= self.now]:
            if request in self.scheduler.requests:
                self.end(request)
        while self.pool_changes and self.pool_changes[0][0] <= self.now:
            _, part = self.pool_changes.pop(0)
            nbytes = int(self.pool.pool_bytes * part)
            self.pool_now = MemoryPool(nbytes, self.pool.kv_bytes_per_token, self.pool.state_bytes_per_sequence)
            self.scheduler.set_pool_bytes(nbytes)

    def takes(self, ms: float) -> float:
        elapsed_ms = ms * self.random.uniform(1 - self.noise, 1 + self.noise)
        self.now += elapsed_ms / 1000
        self.has_waited = bool(self.scheduler.decoding)
        return elapsed_ms

    def pause(self) -> None:
        elapsed_ms = self.takes(self.pause_ms)
        self.other_ms += elapsed_ms
        self.scheduler.observe_pause(elapsed_ms)

    # --- actions -----------------------------------------------------------------------------------------------------

    def do(self, action: Action) -> None:
        match action:
            case Start(request):
                self.check_start(request)
                request.prefilled_len = request.cached_len = self.cache.restorable(request)
                request.boundaries = {floor32(request.prompt_len - 4): "prompt_end"} if request.prompt_len > 4 else {}
                self.covered[request] = request.prefilled_len
                self.pause()
            case Prefill(request, num_tokens):
                self.check_slice(request, num_tokens)
                self.close_window()
                depth = request.prefilled_len + num_tokens / 2
                elapsed_ms = self.takes(num_tokens * self.ms_per_token * (1 + depth / self.equal_cost_tokens))
                self.window_streams = frozenset(self.scheduler.decoding)
                self.decode_ms, self.other_ms = 0.0, elapsed_ms
                self.scheduler.observe_prefill(request, num_tokens, elapsed_ms)
                self.covered[request] = request.prefilled_len
                self.publish(request, takes_snapshot=request.prefilled_len in request.boundaries)
                self.has_sliced = True
            case Join(request):
                assert self.covered[request] == request.input_len - 1
                assert request.prefilled_len == request.input_len
                self.pause()
            case Decode():
                self.decode()
            case Suspend(request):
                assert (request.phase, request.prefilled_len, request.room_len) == ("queued", 0, 0)
                assert request in self.scheduler.waiting
                self.last_token_at.pop(request, None)
                if request.tokens:
                    covered = [*request.prompt, *request.tokens][: max(self.covered[request], request.input_len - 1)]
                    request.blocks.extend(covered[request.blocks.length :])
                    self.covered[request] = len(covered)
                self.publish(request, takes_snapshot=self.covered[request] % 32 == 0)
                self.pause()
            case Refuse(request, error):
                assert error.needed_bytes > error.pool_bytes
                alone = self.scheduler.running in ([], [request])
                assert alone or self.pool.largest_room <= request.input_len
                self.refused.append(request)
                self.end(request)

    def decode(self) -> None:
        elapsed_ms = self.takes(self.step_ms)
        self.decode_ms += elapsed_ms
        self.steps_ms.append(elapsed_ms)
        self.has_waited = False
        for request in list(self.scheduler.decoding):
            request.tokens.append(7)
            assert request.input_len <= request.room_len
            if request in self.last_token_at:
                self.largest_gap_ms = max(self.largest_gap_ms, (self.now - self.last_token_at[request]) * 1000)
            self.last_token_at[request] = self.now
            if len(request.tokens) == request.max_tokens:
                self.end(request)
        self.scheduler.observe_decode(elapsed_ms)

    def publish(self, request: Request, *, takes_snapshot: bool) -> None:
        self.cache.publish(request, self.covered[request], takes_snapshot=takes_snapshot)
        self.scheduler.prefix_changed()

    def end(self, request: Request) -> None:
        self.scheduler.remove(request)
        self.ended.append(request)
        self.last_token_at.pop(request, None)

    # --- rules -------------------------------------------------------------------------------------------------------

    def check_always(self) -> None:
        scheduler = self.scheduler
        present = scheduler.requests
        assert len(scheduler.running) <= self.max_streams
        assert len(set(present)) == len(present)
        assert set(present) | set(self.ended) == set(self.arrivals)
        assert not set(present) & set(self.ended)
        for kind in ("interactive", "batch"):
            assert len([each for each in scheduler.prefilling if each.request_class == kind and is_document(each)]) <= 1

    def check_pool(self, action: Action) -> None:
        """Never exceeded; once it shrank, those who run give way one after the other until one is left."""
        running = self.scheduler.running
        is_giving_way = isinstance(action, Suspend) or len(running) == 1
        if self.pool_now == self.pool or not is_giving_way:
            assert self.pool_now.used_bytes(running) <= self.pool_now.pool_bytes

    def check_slice(self, request: Request, num_tokens: int) -> None:
        scheduler = self.scheduler
        end = request.prefilled_len + num_tokens
        assert request in scheduler.prefilling
        assert 1 <= num_tokens <= LARGEST_SLICE_TOKENS and end <= request.input_len - 1
        assert not any(request.prefilled_len < boundary < end for boundary in request.boundaries)
        assert end % 32 == 0 or end == request.input_len - 1 or end in request.boundaries or num_tokens < 64
        assert self.has_sliced or num_tokens <= FIRST_SLICE_TOKENS
        assert not scheduler.decoding or not self.has_waited
        for other in scheduler.prefilling:
            if other is request or other.request_class == request.request_class:
                continue
            if request.request_class == "batch":  # it goes on only if it must
                assert is_overdue(request, self.now) or self.has_waiting_sibling(request)
            elif is_overdue(other, self.now):
                assert not is_document(request) or not is_document(other) or self.has_waiting_sibling(request)

    def check_start(self, request: Request) -> None:
        scheduler = self.scheduler
        assert request.phase == "prefill" and not request.is_suspended
        assert request.input_len < request.room_len
        others = [each for each in scheduler.prefilling if each is not request]
        assert self.producer_of(request, others) is None
        is_first_start = not request.was_suspended
        for each in [*scheduler.waiting, *others]:
            if self.arrivals[each] > self.arrivals[request] or self.producer_of(each, others) is not None:
                continue
            if each.request_class == request.request_class and is_first_start and not is_overdue(request, self.now):
                if each.phase == "queued":
                    assert self.num_uncached(each) > DOCUMENT_TOKENS and not each.is_suspended
                self.passes[each] = self.passes.get(each, 0) + 1
                assert self.passes[each] <= 3
            elif each.request_class == "batch" and is_first_start and each.phase == "queued":
                self.class_passes[each] = self.class_passes.get(each, 0) + 1
                num_batch = sum(each.request_class == "batch" for each in self.requests)
                assert self.class_passes[each] <= BATCH_OVERTAKEN_LIMIT + 1 + num_batch
            elif each.request_class == "interactive" and request.request_class == "batch":
                assert is_overdue(request, self.now)
                assert not self.batch_passed.get(each)
                self.batch_passed[each] = True
        if request.request_class == "interactive":
            self.batch_passed.clear()
            assert request.num_overtaken <= 3

    def close_window(self) -> None:
        """The share of those who decoded from the start of the last slice until now.

        What they had too much before is theirs, up to two usual steps: so over all windows they have their share.
        """
        had_ms = self.decode_ms + self.credit_ms
        share = self.promises.decode_share
        if self.window_streams and self.window_streams & set(self.scheduler.decoding):
            assert had_ms >= (share - 0.001) * (had_ms + self.other_ms)
        excess_ms = had_ms - self.other_ms * share / (1 - share)
        usual_ms = sorted(self.steps_ms[-5:])[-2] if len(self.steps_ms) > 1 else 0.0
        self.credit_ms = max(0.0, min(excess_ms, 2 * usual_ms))

    def num_uncached(self, request: Request) -> int:
        return request.input_len - 1 - self.cache.restorable(request)

    def has_waiting_sibling(self, producer: Request) -> bool:
        return any(self.producer_of(each, [producer]) for each in self.scheduler.waiting)

    def producer_of(self, request: Request, prefilling: list[Request]) -> Request | None:
        """Who computes more of the request's input than can be restored of it, worked out block by block."""
        for producer in prefilling:
            pairs = zip(request.blocks.keys, producer.blocks.keys, strict=False)
            common = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            if common is None:
                common = min(request.blocks.num_blocks, producer.blocks.num_blocks)
            shared = floor32(min(common * 32, request.input_len - 1, producer.input_len - 1))
            if shared > producer.prefilled_len and shared >= self.cache.restorable(request) + 64:
                return producer
        return None


def is_document(request: Request) -> bool:
    return request.input_len - 1 - request.prefilled_len > DOCUMENT_TOKENS
