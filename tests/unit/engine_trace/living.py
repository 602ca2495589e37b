"""A cache without tensors that serves one request at a time, as the worker would, and is traced meanwhile."""

from types import SimpleNamespace

from engine.blocks import BLOCK_TOKENS, floor_to_block
from engine.prefix.cache import PrefixCache
from engine.prefix.index import PrefixIndex
from engine.prefix.state import state_of
from engine.replay.replay import SizedStore
from engine.replay.trace import Sizes, Trace
from engine.request import Request, SamplingParameters
from engine.trace.events import MAGIC
from engine.trace.recorder import TraceRecorder
from tests.unit.engine_prefix import sessions

SLICE_TOKENS = 3_000


class Living:
    def __init__(self, sizes: sessions.Sizes, *, budget_bytes: int) -> None:
        needs_snapshots = sizes.snapshot_bytes > 0
        known = Sizes(sizes.kv_bytes_per_token, ((BLOCK_TOKENS, sizes.snapshot_bytes),))
        stand_in = SimpleNamespace(opened=SimpleNamespace(needs_snapshots=needs_snapshots), sizes=known)
        self.store = SizedStore(stand_in)
        self.budget_bytes = budget_bytes
        self.cache = PrefixCache(PrefixIndex(budget_bytes=0, needs_snapshots=needs_snapshots), self.store)
        self.cache.set_budget(budget_bytes)
        self.restored: list[int] = []
        self.written = bytearray(MAGIC)
        self._num_requests = 0

    def begin_trace(self) -> None:
        recorder = TraceRecorder(self.written.extend, salt=b"salt")
        state = state_of(self.cache.index, key_of=recorder.key_of, owner_of=recorder.owner_of)
        recorder.opened(
            model="toy",
            needs_snapshots=self.store.needs_snapshots,
            block_tokens=BLOCK_TOKENS,
            pool_bytes=self.budget_bytes,
            state=state,
        )
        self.cache.recorder = recorder

    def trace(self) -> Trace:
        return Trace(bytes(self.written))

    def a_request(self, turn: sessions.Turn) -> Request:
        self._num_requests += 1
        return Request(
            id=f"{turn.client}-{self._num_requests}",
            prompt=turn.prompt,
            sampling=SamplingParameters(),
            max_tokens=1_000,
            request_class="interactive",
            output=None,
            deliver=lambda events: None,
            arrived_at=0.0,
            marks=turn.marks,
        )

    def begin(self, turn: sessions.Turn, *, row_bytes: int = 0) -> Request:
        request = self.a_request(turn)
        request.prefilled_len = self.cache.restore(request, None, budget_bytes=self.budget_bytes - row_bytes)
        self.restored.append(request.prefilled_len)
        return request

    def slice(self, request: Request) -> bool:
        """Whether there was anything left to prefill."""
        end = min(request.prefilled_len + SLICE_TOKENS, request.prompt_len - 1)
        if end <= request.prefilled_len:
            return False
        stops = [length for length in request.boundaries if request.prefilled_len < length < end]
        end = stops[0] if stops else end
        self.cache.publish_slice(
            request, None, start=request.prefilled_len, end=end, took_ms=1.0 * (end - request.prefilled_len)
        )
        request.prefilled_len = end
        return True

    def end(self, request: Request, answer: tuple[int, ...]) -> None:
        request.tokens.extend(answer)
        length = request.input_len - 1
        request.blocks.extend(request.inputs(request.blocks.length, length))
        covered = floor_to_block(length)
        checkpoint = (
            self.store.capture(None, covered) if self.store.needs_snapshots and covered > request.prompt_len else None
        )
        self.cache.publish_rest(request, None, length=length, checkpoint=checkpoint)
        self.cache.forget(request)
        self.cache.set_budget(self.budget_bytes)

    def give_up(self, request: Request) -> None:
        """It is cancelled, or suspended, while its prompt is read."""
        self.cache.publish_rest(request, None, length=request.prefilled_len, checkpoint=None)
        self.cache.forget(request)

    def resume(self, request: Request) -> Request:
        request.was_suspended = True
        request.prefilled_len = self.cache.restore(request, None, budget_bytes=self.budget_bytes)
        self.restored.append(request.prefilled_len)
        return request

    def serve(self, turn: sessions.Turn) -> None:
        request = self.begin(turn)
        while self.slice(request):
            pass
        self.end(request, turn.answer)
