"""The lengths at which a prompt's prefill must stop, so that a snapshot of its fixed layers is exact there.

It takes no snapshot and knows no cache: whether one is there already, and whether it is worth its bytes, is not asked.
"""

from typing import Final

from engine.blocks import floor_to_block
from engine.request import PromptMarks
from engine.wire import SnapshotKind

ROLLING_TOKENS: Final = 4_096  # what a prompt that breaks off or forks anywhere loses at most, once
ROLLING_MARGIN_TOKENS: Final = 2_048  # so near before the prompt's end, its own snapshot serves as well

DURABILITY: Final[tuple[SnapshotKind, ...]] = (
    "rolling",
    "decoded",
    "suspended",
    "message_start",
    "prompt_end",
    "sibling",
    "junction",
    "shared_end",
)
"""Least durable first: how likely it is that more than one request will come back to such a place."""


def more_durable(one: SnapshotKind, other: SnapshotKind) -> SnapshotKind:
    """The kind that a snapshot has which was asked for under both."""
    return max(one, other, key=DURABILITY.index)


def armed_boundaries(
    marks: PromptMarks, *, prompt_len: int, restored_len: int, junction_len: int | None
) -> dict[int, SnapshotKind]:
    """Lengths in tokens, ascending, each a multiple of a block, above `restored_len` and below `prompt_len`.

    Each sits at or before the token it is about, never behind it: what changes there must not be in the snapshot.
    """
    prompt_end = floor_to_block(prompt_len - max(marks.generation_len, 1))
    first_rolling = (restored_len // ROLLING_TOKENS + 1) * ROLLING_TOKENS
    rolling = range(first_rolling, prompt_end - ROLLING_MARGIN_TOKENS + 1, ROLLING_TOKENS)
    wanted: list[tuple[int, SnapshotKind]] = [(length, "rolling") for length in rolling]
    wanted += [(floor_to_block(start), "message_start") for start in marks.message_starts]
    wanted += [(prompt_end, "prompt_end"), (floor_to_block(marks.shared_len), "shared_end")]
    if junction_len is not None:
        wanted.append((floor_to_block(junction_len), "junction"))
    armed: dict[int, SnapshotKind] = {}
    for length, kind in sorted(wanted):
        if restored_len < length < prompt_len:
            armed[length] = more_durable(kind, armed.get(length, kind))
    return armed
