"""The lengths at which a prompt's prefill must stop, so that a snapshot of its fixed layers is exact there.

It takes no snapshot and knows no cache: whether one is there already, and whether it is worth its bytes, is not asked.
"""

from typing import Final, Literal, get_args

from engine.blocks import floor_to_block
from engine.request import PromptMarks
from engine.wire import SnapshotKind

ROLLING_TOKENS: Final = 4_096  # what a prompt that breaks off or forks anywhere loses at most, once
ROLLING_MARGIN_TOKENS: Final = 2_048  # so near before the prompt's end, its own snapshot serves as well

Policy = Literal["live", "rolling_2048", "rolling_8192", "no_rolling", "no_message_starts", "ends_only"]
"""Where snapshots go. The engine runs `live`; the others are what a replay compares it with."""
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
_ROLLING: Final[dict[Policy, int | None]] = {
    "rolling_2048": 2_048,
    "rolling_8192": 8_192,
    "no_rolling": None,
    "ends_only": None,
}

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
    marks: PromptMarks, *, prompt_len: int, restored_len: int, junction_len: int | None, policy: Policy = "live"
) -> dict[int, SnapshotKind]:
    """Lengths in tokens, ascending, each a multiple of a block, above `restored_len` and below `prompt_len`.

    Each sits at or before the token it is about, never behind it: what changes there must not be in the snapshot.
    """
    prompt_end = floor_to_block(prompt_len - max(marks.generation_len, 1))
    wanted: list[tuple[int, SnapshotKind]] = []
    if (rolling_tokens := _ROLLING.get(policy, ROLLING_TOKENS)) is not None:
        first_rolling = (restored_len // rolling_tokens + 1) * rolling_tokens
        rolling = range(first_rolling, prompt_end - ROLLING_MARGIN_TOKENS + 1, rolling_tokens)
        wanted += [(length, "rolling") for length in rolling]
    if policy not in ("no_message_starts", "ends_only"):
        wanted += [(floor_to_block(start), "message_start") for start in marks.message_starts]
    wanted += [(prompt_end, "prompt_end"), (floor_to_block(marks.shared_len), "shared_end")]
    if junction_len is not None:
        wanted.append((floor_to_block(junction_len), "junction"))
    armed: dict[int, SnapshotKind] = {}
    for length, kind in sorted(wanted):
        if restored_len < length < prompt_len:
            armed[length] = more_durable(kind, armed.get(length, kind))
    return armed
