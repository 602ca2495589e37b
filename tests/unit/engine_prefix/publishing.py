"""Short hands of the index tests: sequences of tokens, and what a worker publishes of them, by plain calls."""

from engine.blocks import BLOCK_TOKENS, TokenBlocks
from engine.prefix.index import Match, PrefixIndex

TOKEN_BYTES = 10
BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
SNAPSHOT_BYTES = 1_000


def an_index(*, budget_bytes: int = 10_000_000, needs_snapshots: bool = False) -> PrefixIndex:
    return PrefixIndex(budget_bytes=budget_bytes, needs_snapshots=needs_snapshots, clock=lambda: 1234.5)


def some_tokens(num_tokens: int, *, of: int = 1) -> tuple[int, ...]:
    """Tokens that agree with no other sequence's anywhere."""
    return tuple(of * 1_000_000 + number for number in range(num_tokens))


def publish(index: PrefixIndex, tokens, *, snapshots=(), owner: str = "earlier", kind="prompt_end") -> TokenBlocks:
    """A request computed all its blocks and took snapshots at these lengths; it is over."""
    blocks = TokenBlocks(tokens)
    for run in index.missing(blocks, upto_len=blocks.length):
        index.add_extent(blocks, run, nbytes=run.num_blocks * BLOCK_BYTES)
    for length in snapshots:
        index.add_snapshot(blocks, length, nbytes=SNAPSHOT_BYTES, kind=kind, owner=owner)
    index.release(owner)
    return blocks


def look_up(index: PrefixIndex, tokens, *, request_id: str = "later") -> Match:
    """As a request does: the last token is never restored."""
    return index.match(TokenBlocks(tokens), limit_len=len(tokens) - 1, request_id=request_id)


def restorable(index: PrefixIndex, tokens) -> int:
    return index.peek(TokenBlocks(tokens), limit_len=len(tokens) - 1)
