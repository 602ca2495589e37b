"""The life of the prefix cache as it lies in a trace file: what was looked up, computed, kept and given up, and when.

No text, no token and no key of a client is in it. It decides nothing and opens no file.

Format: MAGIC, then frames: 4 bytes, little-endian, that say how long the frame is, and one event in MessagePack, an
array that begins with the event's name. A frame that is cut off ends the trace.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from engine.wire import RequestClass, SnapshotKind

MAGIC: Final = b"splash-trace 1\n"
FRAME_HEAD: Final = struct.Struct("<I")
KEY_BYTES: Final = 8
"""Of a block's key as it is written: salted, so that it matches no text. One of 2^32 blocks has a double."""


class Event(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`request` numbers requests from 1, in the order of their first lookup. `at_ms`: since the trace began."""


class KnownBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block that the cache knew when the trace began. `parent` is its parent's place in the list, -1 at the root."""

    parent: int
    key: bytes
    had_snapshot: bool


class KnownExtent(msgspec.Struct, frozen=True, array_like=True):
    """`blocks` are places in the list of known blocks, in order. See `engine.prefix.tree.Extent`."""

    id: int
    first_block: int
    blocks: tuple[int, ...]
    nbytes: int
    uses: int
    age: float
    last_use: int


class KnownSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """`block` is a place in the list of known blocks; `owner` a request's number, 0: one that was over."""

    id: int
    block: int
    length: int
    nbytes: int
    kind: SnapshotKind
    owner: str
    uses: int
    is_left_behind: bool
    age: float
    last_use: int


class IndexState(msgspec.Struct, frozen=True, array_like=True):
    """All that the index knew. `ghosts`: places of blocks that were evicted, oldest first. `rolling`: owner, id."""

    budget_bytes: int
    blocks: tuple[KnownBlock, ...] = ()
    extents: tuple[KnownExtent, ...] = ()
    snapshots: tuple[KnownSnapshot, ...] = ()
    ghosts: tuple[int, ...] = ()
    rolling: tuple[tuple[str, int], ...] = ()
    running: tuple[str, ...] = ()
    snapshot_bytes: int = 0
    last_id: int = 0
    uses: int = 0
    age: float = 0.0


class Opened(Event, frozen=True):
    """The first event. `pool_bytes`: what requests and cache share, 0 when nothing bounds it."""

    began_at_s: float
    model: str
    needs_snapshots: bool
    block_tokens: int
    pool_bytes: int
    state: IndexState


class Began(Event, frozen=True):
    """A request was looked up, and `restored_len` tokens were restored with `budget_bytes` for the cache.

    Its blocks are those up to the one whose key is `known` (empty: none), then `new_keys`. `length`: its tokens.
    """

    request: int
    at_ms: float
    waited_ms: float
    request_class: RequestClass
    known: bytes
    new_keys: bytes
    length: int
    shared_len: int
    message_starts: tuple[int, ...]
    generation_len: int
    is_resumed: bool
    budget_bytes: int
    restored_len: int


class Entered(Event, frozen=True):
    """A request that began before the trace did is met for the first time; as in Began. `boundaries` are armed."""

    request: int
    at_ms: float
    known: bytes
    new_keys: bytes
    length: int
    prefilled_len: int
    boundaries: tuple[tuple[int, SnapshotKind], ...]


class Sliced(Event, frozen=True):
    """Tokens [start, end) were prefilled in `took_ms`."""

    request: int
    at_ms: float
    start: int
    end: int
    took_ms: float


class Rested(Event, frozen=True):
    """Its row was given up at `length` tokens, after `num_generated` tokens; `new_keys` are of blocks that it grew.

    `checkpoint_len`: where its last copy of the fixed state was taken while it decoded; None: it did not decode.
    """

    request: int
    at_ms: float
    new_keys: bytes
    length: int
    num_generated: int
    checkpoint_len: int | None


class Left(Event, frozen=True):
    """The request is over, or was suspended."""

    request: int
    at_ms: float


class Budgeted(Event, frozen=True):
    at_ms: float
    budget_bytes: int


class Cleared(Event, frozen=True):
    at_ms: float


class ExtentSize(Event, frozen=True):
    """What a token of the growing layers takes."""

    bytes_per_token: int


class SnapshotSize(Event, frozen=True):
    """What the fixed layers take after `length` tokens."""

    length: int
    nbytes: int


class Closed(Event, frozen=True):
    """The last event. `reason`: stopped, full, or ended with the engine."""

    at_ms: float
    reason: str


AnyEvent = Opened | Began | Entered | Sliced | Rested | Left | Budgeted | Cleared | ExtentSize | SnapshotSize | Closed
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(AnyEvent)


class TraceUnreadable(Exception):
    """The file is no trace, or of another version; the message says which."""


def framed(event: AnyEvent) -> bytes:
    content = _ENCODER.encode(event)
    return FRAME_HEAD.pack(len(content)) + content


def events_of(content: bytes) -> Iterator[AnyEvent]:
    """All events of a file, as far as it is whole. Raises TraceUnreadable."""
    if not content.startswith(MAGIC):
        raise TraceUnreadable("it does not begin as a trace of this version of Splash does")
    place = len(MAGIC)
    while place + FRAME_HEAD.size <= len(content):
        (length,) = FRAME_HEAD.unpack_from(content, place)
        place += FRAME_HEAD.size
        if place + length > len(content):
            return
        try:
            yield _DECODER.decode(content[place : place + length])
        except msgspec.DecodeError as error:
            raise TraceUnreadable(f"a frame at byte {place:,} is damaged: {error}") from error
        place += length


def keys_of(packed: bytes) -> list[bytes]:
    return [packed[place : place + KEY_BYTES] for place in range(0, len(packed), KEY_BYTES)]
