"""Finds where the parts of a rendered prompt begin: the shared front, the newest messages, the generation prompt.

It renders and tokenises nothing. Marks are hints for the prefix cache: a wrong one costs time, never an answer; where
one can't be told, there is none.
"""

from collections.abc import Sequence
from typing import Final

from engine.request import PromptMarks
from engine.text.messages import Turn
from engine.text.positions import Encoded

NEWEST_MESSAGES: Final = 4
# Enough to recognise a message by, and short enough to be looked for in a long prompt in no time.
_LONGEST_BEGINNING: Final = 64


def find_marks(
    text: str,
    encoded: Encoded,
    *,
    turns: Sequence[Turn],
    openings: Sequence[str],
    shared_chars: int,
    generation_prompt: str,
) -> PromptMarks:
    """`text` is the rendering of `turns`, and `encoded` its tokens. `openings`: `TemplateHabits`.

    `shared_chars`: how much of it any conversation with the same system messages and tools begins with; this may
    contain the opening of the first message. `generation_prompt`: what the text may end with.
    """
    opening = next((opening for opening in openings if text.endswith(opening, 0, shared_chars)), "")
    shared_len = encoded.token_at(shared_chars - len(opening)) or 0
    end = len(text) - (len(generation_prompt) if text.endswith(generation_prompt) else 0)
    generation_start = encoded.token_at(end)
    starts = {encoded.token_at(start) for start in _message_starts(text, end, turns, openings)}
    return PromptMarks(
        shared_len=shared_len,
        message_starts=tuple(sorted(start for start in starts if start)),
        generation_len=0 if generation_start is None else len(encoded.tokens) - generation_start,
    )


def _message_starts(text: str, end: int, turns: Sequence[Turn], openings: Sequence[str]) -> list[int]:
    """Of the newest messages, newest first: each is looked for before the one behind it.

    A message is found by its own text, so that an opening which somebody wrote into it is not taken for one.
    """
    starts: list[int] = []
    for turn in reversed(turns[-NEWEST_MESSAGES:]):
        content = turn["content"].strip()
        beginning = content[:_LONGEST_BEGINNING]
        latest = max(0, end - len(content) + len(beginning))
        at = text.rfind(beginning, 0, latest) if content else -1
        start = _last_opening(text, at if at >= 0 else end, openings)
        if start is None:
            break
        starts.append(start)
        end = start
    return starts


def _last_opening(text: str, end: int, openings: Sequence[str]) -> int | None:
    """Where the last opening before `end` begins. One may end with another: then the longer one stands there."""
    found = [(at + len(opening), -at) for opening in openings if (at := text.rfind(opening, 0, end)) >= 0]
    return -max(found)[1] if found else None
