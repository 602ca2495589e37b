"""What the device does next: admit, prefill a slice, let the streams decode, refuse for memory. Pure policy, no MLX.

It does nothing itself and reads no clock: the worker asks `next_action(now)`, does it, and reports what it took.

1. At most `max_streams` requests run; the rest stand in line: interactive before batch, first come first served within
   a class; a batch request that waited 10 minutes goes first.
2. One prompt is prefilled at a time, slice by slice; a slice is as long as measured speed lets it be in 400 ms while
   anyone decodes, in 800 ms otherwise.
3. After a slice of t ms the streams decode for t * share / (1 - share) ms.
4. A request that does not fit in the memory pool beside the running ones waits, and everyone behind it; one that can
   never fit is refused. A full row grows by what the pool has left; when that is nothing, the youngest request fails,
   retryable unless it runs alone.
"""

from collections import deque
from dataclasses import dataclass

from engine.admission import BOUNDLESS, MemoryPool
from engine.errors import OutOfMemory
from engine.request import Request
from engine.wire import RequestClass

SLICE_WHILE_DECODING_MS = 400.0
SLICE_ALONE_MS = 800.0  # so that a cancel is seen within a second
DECODE_SHARE = 0.5
BATCH_PATIENCE_S = 600.0

FIRST_SLICE_TOKENS = 64
SMALLEST_SLICE_TOKENS = 16
LARGEST_SLICE_TOKENS = 2048  # bounds the scratch memory of a slice
LARGEST_SLICE_GROWTH = 2  # a speed measured on a short slice says little about a long one
# Neighbouring slices differ by a tenth on a quiet machine; aiming below the target costs no throughput.
AIM = 0.9
NUM_SPEEDS = 3  # one lucky slice must not lengthen the next one; a prompt only gets slower as it gets longer


@dataclass(frozen=True, slots=True)
class Prefill:
    """Append the next `num_tokens` tokens of the prompt to the request's caches."""

    request: Request
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Join:
    """The prompt is done but for its last token: the request joins the decoding streams."""

    request: Request


@dataclass(frozen=True, slots=True)
class Decode:
    """One token for every decoding stream."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request ends here for lack of memory."""

    request: Request
    error: OutOfMemory


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until a request arrives."""


Action = Prefill | Join | Decode | Refuse | Idle


class PrefillPace:
    """How many tokens fit in a slice of so many ms: at the slowest of the last speeds that slices really had."""

    def __init__(self) -> None:
        self._tokens_per_ms: deque[float] = deque(maxlen=NUM_SPEEDS)
        self._last_tokens = FIRST_SLICE_TOKENS

    def slice_tokens(self, target_ms: float) -> int:
        if not self._tokens_per_ms:
            return FIRST_SLICE_TOKENS
        fitting = int(min(self._tokens_per_ms) * target_ms * AIM)
        wanted = min(fitting, self._last_tokens * LARGEST_SLICE_GROWTH)
        return max(SMALLEST_SLICE_TOKENS, min(wanted, LARGEST_SLICE_TOKENS))

    def observe(self, num_tokens: int, elapsed_ms: float, *, target_ms: float) -> None:
        """The short end of a prompt is slow by the token; it must not shrink the slices of the next prompt."""
        is_short_end = num_tokens < self.slice_tokens(target_ms) // 2 and elapsed_ms <= target_ms
        if not self._tokens_per_ms or not is_short_end:
            self._tokens_per_ms.append(num_tokens / max(elapsed_ms, 0.001))
            self._last_tokens = max(num_tokens, SMALLEST_SLICE_TOKENS)


class Scheduler:
    """Owns who waits, who is prefilled and who decodes, and of each request its phase and prefilled length."""

    def __init__(self, *, max_streams: int, pool: MemoryPool | None = None, share: float = DECODE_SHARE) -> None:
        self._max_streams = max_streams
        self._pool = BOUNDLESS if pool is None else pool
        self._window_per_slice = share / (1.0 - share)
        self._pace = PrefillPace()
        self._waiting: dict[RequestClass, deque[Request]] = {"interactive": deque(), "batch": deque()}
        self._window_ms = 0.0  # decoding owed to the streams since the last slice
        self.prefilling: Request | None = None
        self.decoding: list[Request] = []
        self._blocked: Request | None = None

    @property
    def is_blocked_by_memory(self) -> bool:
        """Whether the first in line could run but for memory."""
        return self._blocked is not None

    @property
    def running(self) -> list[Request]:
        """Oldest first; the one being prefilled is the youngest."""
        return self.decoding if self.prefilling is None else [*self.decoding, self.prefilling]

    @property
    def waiting(self) -> list[Request]:
        return [*self._waiting["interactive"], *self._waiting["batch"]]

    @property
    def requests(self) -> list[Request]:
        return [*self.running, *self.waiting]

    def enter(self, request: Request) -> None:
        """Stand in line."""
        self._waiting[request.request_class].append(request)

    def remove(self, request: Request) -> None:
        """Forget a request, wherever it is: it finished, failed or was cancelled."""
        if request is self.prefilling:
            self.prefilling = None
        elif request in self.decoding:
            self.decoding.remove(request)
        else:
            self._waiting[request.request_class].remove(request)
            if request is self._blocked:
                self._blocked = None
        if not self.decoding:
            self._window_ms = 0.0

    def next_action(self, now: float) -> Action:
        """`now` is monotonic seconds. Admitting and joining take effect here; the rest when it is observed."""
        refused = self._grow()
        if refused is not None:
            return refused
        candidate = self.prefilling
        if candidate is not None and self._num_left(candidate) <= 0:
            return self._join(candidate)
        if self.decoding and self._window_ms > 0:
            return Decode()
        if candidate is None and len(self.decoding) < self._max_streams:
            admitted = self._admit(now)
            if isinstance(admitted, Refuse):
                return admitted
            candidate = admitted
        if candidate is None:
            return Decode() if self.decoding else Idle()
        if self._num_left(candidate) <= 0:
            return self._join(candidate)
        return Prefill(candidate, min(self._pace.slice_tokens(self._target_ms), self._num_left(candidate)))

    def observe_prefill(self, request: Request, num_tokens: int, elapsed_ms: float) -> None:
        """A slice was done in `elapsed_ms`."""
        request.prefilled_len += num_tokens
        self._pace.observe(num_tokens, elapsed_ms, target_ms=self._target_ms)
        if self.decoding:
            self._window_ms = elapsed_ms * self._window_per_slice

    def observe_decode(self, elapsed_ms: float) -> None:
        """A step of the decoding streams was done in `elapsed_ms`."""
        self._window_ms = max(0.0, self._window_ms - elapsed_ms)

    @property
    def _target_ms(self) -> float:
        return SLICE_WHILE_DECODING_MS if self.decoding else SLICE_ALONE_MS

    @staticmethod
    def _num_left(request: Request) -> int:
        """Tokens to prefill. The last token of a prompt is the first input of decoding, so it is not among them."""
        return request.prompt_len - 1 - request.prefilled_len

    def _join(self, request: Request) -> Join:
        self.prefilling = None
        request.phase = "decode"
        request.prefilled_len = request.prompt_len
        self.decoding.append(request)
        return Join(request)

    def _first_in_line(self, now: float) -> Request | None:
        interactive, batch = self._waiting["interactive"], self._waiting["batch"]
        if batch and (not interactive or now - batch[0].arrived_at >= BATCH_PATIENCE_S):
            return batch[0]
        return interactive[0] if interactive else None

    def _admit(self, now: float) -> Request | Refuse | None:
        first = self._first_in_line(now)
        self._blocked = None
        if first is None:
            return None
        room_len = self._pool.room_of(first)
        if room_len <= first.prompt_len:
            return self._refuse(first, "the request", self._pool.bytes_of(first.prompt_len + 1), retryable=False)
        if self._pool.used_bytes(self.running) + self._pool.bytes_of(room_len) > self._pool.pool_bytes:
            self._blocked = first
            return None
        self._waiting[first.request_class].popleft()
        first.phase = "prefill"
        first.prefill_began_at = now
        first.prefilled_len = first.cached_len
        first.room_len = room_len
        self.prefilling = first
        return first

    def _grow(self) -> Refuse | None:
        """Give each row that the next step would overfill more room. A step launches one token ahead of the known."""
        running = self.running
        for request in self.decoding:
            while request.prompt_len + len(request.tokens) + 1 > request.room_len:
                growth = self._pool.growth_of(request, running)
                if growth == 0:
                    is_alone = len(running) == 1
                    who = "the request" if is_alone else "all running requests"
                    needed_bytes = self._pool.used_bytes(running) + self._pool.kv_bytes_per_token
                    return self._refuse(running[-1], who, needed_bytes, retryable=not is_alone)
                request.room_len += growth
        return None

    def _refuse(self, request: Request, who: str, needed_bytes: int, *, retryable: bool) -> Refuse:
        pool_bytes = self._pool.pool_bytes
        message = f"out of memory: {who} would need {needed_bytes:,} bytes of a pool of {pool_bytes:,}"
        error = OutOfMemory(message, needed_bytes=needed_bytes, pool_bytes=pool_bytes, retryable=retryable)
        return Refuse(request, error)
