"""Agent sessions without a model: prompts as clients send them, driven through the index and the boundaries alone.

It measures no time, and makes no claim about any model: tokens from the cache depend on policy and sizes only.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.blocks import BLOCK_TOKENS, TokenBlocks, floor_to_block
from engine.prefix.boundaries import armed_boundaries
from engine.prefix.index import PrefixIndex
from engine.request import PromptMarks

GENERATION_LEN = 4
NUM_TURNS = 30


@dataclass(frozen=True)
class Sizes:
    """Bytes that a model's state takes."""

    kv_bytes_per_token: int
    snapshot_bytes: int


BIG_SNAPSHOTS = Sizes(kv_bytes_per_token=20_000, snapshot_bytes=64_000_000)
SMALL_SNAPSHOTS = Sizes(kv_bytes_per_token=1_024, snapshot_bytes=114 * 1_024)
NO_SNAPSHOTS = Sizes(kv_bytes_per_token=20_000, snapshot_bytes=0)


@dataclass(frozen=True)
class Turn:
    """One request of a client. `answer` is what the model generates after it."""

    client: str
    prompt: tuple[int, ...]
    marks: PromptMarks
    answer: tuple[int, ...]


@dataclass
class Client:
    """A conversation that grows. With a counter tag, a new one is written before the newest message each turn."""

    name: str
    head: tuple[int, ...]
    source: random.Random
    has_tag: bool
    messages: list[tuple[int, ...]] = field(default_factory=list)

    def tokens(self, shortest: int, longest: int) -> tuple[int, ...]:
        return tuple(self.source.randrange(1_000, 150_000) for _ in range(self.source.randint(shortest, longest)))

    def turn(self) -> Turn:
        """The user or a tool says something; the answer becomes part of the conversation."""
        newest = self.tokens(50, 800)
        tag = (7, 7, 7, len(self.messages), 7) if self.has_tag else ()
        turn = self._request((*tag, *newest), self.tokens(40, 400))
        self.messages += [newest, turn.answer]
        return turn

    def aside(self, messages: int) -> Turn:
        """A request beside the conversation that shares its first messages: a summary, a title."""
        kept = self.messages
        self.messages = kept[:messages]
        turn = self._request(self.tokens(200, 300), self.tokens(400, 800))
        self.messages = kept
        return turn

    def _request(self, newest: tuple[int, ...], answer: tuple[int, ...]) -> Turn:
        prompt = list(self.head)
        starts = []
        for message in (*self.messages, newest):
            starts.append(len(prompt))
            prompt += message
        prompt += [9] * GENERATION_LEN
        marks = PromptMarks(shared_len=len(self.head), message_starts=tuple(starts[-3:]), generation_len=GENERATION_LEN)
        return Turn(self.name, tuple(prompt), marks, answer)


def an_agents_day(seed: int = 1, num_turns: int = NUM_TURNS) -> Iterator[Turn]:
    """An agent of 30 turns on 12k tokens of tools, a compaction and a title in between, and two other clients."""
    source = random.Random(seed)
    head = tuple(source.randrange(1_000, 150_000) for _ in range(12_000))
    other_head = tuple(source.randrange(1_000, 150_000) for _ in range(3_000))
    agent = Client("agent", head, source, has_tag=True)
    sibling = Client("sibling", head, source, has_tag=False)
    stranger = Client("stranger", other_head, source, has_tag=False)
    for number in range(num_turns):
        yield agent.turn()
        if number % 3 == 1:
            yield sibling.turn()
        if number % 4 == 2:
            yield stranger.turn()
        if number == num_turns // 3:
            yield agent.aside(2 * number)
        if number == 2 * num_turns // 3:
            yield agent.aside(0)


@dataclass
class Served:
    """What became of one turn, lengths in tokens."""

    turn: Turn
    restored_len: int
    best_len: int  # no cache could have restored more


def best_possible(prompt: TokenBlocks, earlier: list[tuple[int, ...]]) -> int:
    """The longest prefix, in whole blocks, that any earlier sequence has computed; without the last token."""
    own = tuple(token for block in range(prompt.num_blocks + 1) for token in prompt.tail(block))[:-1]
    return floor_to_block(max((same_len(own, sequence) for sequence in earlier), default=0))


def same_len(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many leading tokens are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((position for position, (a, b) in pairs if a != b), min(len(one), len(other)))


class FakeEngine:
    """Serves one request at a time as the worker would, without tensors."""

    def __init__(self, sizes: Sizes, *, budget_bytes: int, takes_decoded: bool = True) -> None:
        self.sizes = sizes
        self.takes_decoded = takes_decoded
        self.index = PrefixIndex(budget_bytes=budget_bytes, needs_snapshots=sizes.snapshot_bytes > 0, clock=lambda: 0.0)
        self.earlier: list[tuple[int, ...]] = []
        self.served: list[Served] = []

    def serve(self, turn: Turn, *, compare: bool = True) -> Served:
        request_id = f"{turn.client}-{len(self.served)}"
        blocks = TokenBlocks(turn.prompt)
        match = self.index.match(blocks, limit_len=len(turn.prompt) - 1, request_id=request_id)
        best_len = best_possible(blocks, self.earlier) if compare else 0
        if self.sizes.snapshot_bytes:
            armed = armed_boundaries(
                turn.marks,
                prompt_len=len(turn.prompt),
                restored_len=match.restore_len,
                junction_len=match.junction_len,
            )
            for length, kind in armed.items():
                self._publish(blocks, length)
                self._take_snapshot(blocks, length, kind, request_id)
        blocks.extend(turn.answer[:-1])
        self._publish(blocks, blocks.length)
        if self.takes_decoded and self.sizes.snapshot_bytes:
            self._take_snapshot(blocks, floor_to_block(blocks.length), "decoded", request_id)
        self.index.release(request_id)
        self.index.take_dropped()
        if compare:
            self.earlier.append((*turn.prompt, *turn.answer[:-1]))
        served = Served(turn, match.restore_len, best_len)
        self.served.append(served)
        return served

    def _publish(self, blocks, length):
        for run in self.index.missing(blocks, upto_len=length):
            nbytes = run.num_blocks * BLOCK_TOKENS * self.sizes.kv_bytes_per_token
            self.index.add_extent(blocks, run, nbytes=nbytes)

    def _take_snapshot(self, blocks, length, kind, owner):
        self.index.add_snapshot(blocks, length, nbytes=self.sizes.snapshot_bytes, kind=kind, owner=owner)

    @property
    def share_from_cache(self) -> float:
        return sum(one.restored_len for one in self.served) / sum(len(one.turn.prompt) for one in self.served)
