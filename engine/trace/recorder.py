"""What the prefix cache tells of its life: to nobody, or into a trace, all names replaced by ones that say nothing.

It opens no file: it hands frames to whoever writes them. Worker thread only.
"""

import hashlib
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Protocol

from engine.blocks import TokenBlocks
from engine.request import PromptMarks
from engine.trace.events import (
    KEY_BYTES,
    AnyEvent,
    Began,
    Budgeted,
    Cleared,
    Closed,
    Entered,
    ExtentSize,
    IndexState,
    Left,
    Opened,
    Rested,
    Sliced,
    SnapshotSize,
    framed,
)
from engine.wire import RequestClass, SnapshotKind


class CachedRequest(Protocol):
    """What the prefix cache knows of a request: `engine.request`, or one of a replay."""

    id: str
    request_class: RequestClass
    arrived_at: float
    blocks: TokenBlocks
    marks: PromptMarks
    room_len: int
    was_suspended: bool
    boundaries: dict[int, SnapshotKind]

    @property
    def input_len(self) -> int: ...

    @property
    def num_generated(self) -> int: ...


class Recorder:
    """Told in the order of what happens, before the index is changed by it; this one forgets it."""

    def began(self, request: CachedRequest, restored_len: int, *, budget_bytes: int) -> None:
        """A request was looked up, `restored_len` tokens will be restored."""

    def sliced(self, request: CachedRequest, *, start: int, end: int, took_ms: float) -> None:
        """Tokens [start, end) of it were prefilled."""

    def rested(self, request: CachedRequest, *, length: int, checkpoint_len: int | None) -> None:
        """Its row is given up at `length` tokens."""

    def left(self, request: CachedRequest) -> None:
        """It is over, or was suspended."""

    def budgeted(self, budget_bytes: int) -> None: ...

    def cleared(self) -> None: ...

    def extent_size(self, *, num_tokens: int, nbytes: int) -> None: ...

    def snapshot_size(self, *, length: int, nbytes: int) -> None: ...


NO_RECORDER: Final = Recorder()


class TraceRecorder(Recorder):
    """`write` takes one frame. `salt` stays in memory: without it no key can be computed from a text."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        *,
        salt: bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._salt = salt
        self._clock = clock
        self._began_at = clock()
        self._known: set[bytes] = set()
        self._numbers: dict[str, int] = {}
        self._running: set[str] = set()  # those of which the trace has the blocks
        self._bytes_per_token: int | None = None
        self._snapshot_sizes: dict[int, int] = {}

    def key_of(self, key: bytes) -> bytes:
        """The name of a block in the trace."""
        return hashlib.blake2b(key, digest_size=KEY_BYTES, key=self._salt).digest()

    def owner_of(self, request_id: str) -> str:
        """The number of a request, as the index of a replay knows it."""
        return str(self._number_of(request_id))

    def opened(
        self, *, model: str, needs_snapshots: bool, block_tokens: int, pool_bytes: int, state: IndexState
    ) -> None:
        """The first call. `state` was made with `key_of` and `owner_of`."""
        self._known.update(block.key for block in state.blocks)
        self._tell(Opened(time.time(), model, needs_snapshots, block_tokens, pool_bytes, state))

    def closed(self, reason: str) -> None:
        self._tell(Closed(self._now_ms(), reason))

    def began(self, request: CachedRequest, restored_len: int, *, budget_bytes: int) -> None:
        blocks = request.blocks
        known, new_keys = self._new_keys(blocks.keys)
        self._running.add(request.id)
        self._tell(
            Began(
                request=self._number_of(request.id),
                at_ms=self._now_ms(),
                waited_ms=(self._clock() - request.arrived_at) * 1000,
                request_class=request.request_class,
                known=known,
                new_keys=new_keys,
                length=blocks.length,
                shared_len=request.marks.shared_len,
                message_starts=request.marks.message_starts,
                generation_len=request.marks.generation_len,
                is_resumed=request.was_suspended,
                budget_bytes=budget_bytes,
                restored_len=restored_len,
            )
        )

    def sliced(self, request: CachedRequest, *, start: int, end: int, took_ms: float) -> None:
        self._enter(request, start)
        self._tell(Sliced(self._number_of(request.id), self._now_ms(), start, end, took_ms))

    def rested(self, request: CachedRequest, *, length: int, checkpoint_len: int | None) -> None:
        self._enter(request, length)
        _, new_keys = self._new_keys(request.blocks.keys)
        number = self._number_of(request.id)
        self._tell(Rested(number, self._now_ms(), new_keys, length, request.num_generated, checkpoint_len))

    def left(self, request: CachedRequest) -> None:
        self._running.discard(request.id)
        self._tell(Left(self._number_of(request.id), self._now_ms()))

    def budgeted(self, budget_bytes: int) -> None:
        self._tell(Budgeted(self._now_ms(), budget_bytes))

    def cleared(self) -> None:
        self._tell(Cleared(self._now_ms()))

    def extent_size(self, *, num_tokens: int, nbytes: int) -> None:
        if self._bytes_per_token is None:
            self._bytes_per_token = nbytes // num_tokens
            self._tell(ExtentSize(self._bytes_per_token))

    def snapshot_size(self, *, length: int, nbytes: int) -> None:
        if self._snapshot_sizes.get(length) != nbytes:
            self._snapshot_sizes[length] = nbytes
            self._tell(SnapshotSize(length, nbytes))

    def _enter(self, request: CachedRequest, prefilled_len: int) -> None:
        """It began before the trace did."""
        if request.id in self._running:
            return
        self._running.add(request.id)
        known, new_keys = self._new_keys(request.blocks.keys)
        boundaries = tuple(request.boundaries.items())
        number = self._number_of(request.id)
        self._tell(Entered(number, self._now_ms(), known, new_keys, request.blocks.length, prefilled_len, boundaries))

    def _tell(self, event: AnyEvent) -> None:
        self._write(framed(event))

    def _now_ms(self) -> float:
        return (self._clock() - self._began_at) * 1000

    def _number_of(self, request_id: str) -> int:
        # Kept beyond its end: a suspended request comes back, and what it left in the cache is still its own.
        return self._numbers.setdefault(request_id, len(self._numbers) + 1)

    def _new_keys(self, keys: list[bytes]) -> tuple[bytes, bytes]:
        """The written key of the last block that is known, and those behind it, which are known from now on.

        A block is written after all that come before it, so what is known is found by bisection.
        """
        place = bisect_left(range(len(keys)), True, key=lambda index: self.key_of(keys[index]) not in self._known)
        new_keys = [self.key_of(key) for key in keys[place:]]
        self._known.update(new_keys)
        return (self.key_of(keys[place - 1]) if place else b""), b"".join(new_keys)
