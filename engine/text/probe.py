"""Learns at load how a model's chat template behaves, by rendering conversations of a few words.

It renders nothing that a client sent, and reads no template: templates are programs, so they are tried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.text.messages import AS_SENT, Turn, forms
from engine.text.positions import has_positions

LateSystem = Literal["native", "patched", "unsupported"]

# Nothing that a template would say by itself.
_STEM: Final = "qzx"
_WORD: Final = _STEM + "{}xzq"


@dataclass(frozen=True, slots=True)
class TemplateHabits:
    """`openings` are the texts with which the template begins a message of any role, longest first.

    `late_system`: what becomes of a system message behind other roles. It is rendered in its place (native), or as
    `detail` says (patched), or not at all.
    `has_positions`: the tokenizer can tell which token a character is in.
    """

    openings: tuple[str, ...] = ()
    late_system: LateSystem = "unsupported"
    detail: str = "the model has no chat template"
    has_positions: bool = False


def learn_habits(tokenizer: Any) -> TemplateHabits:
    """`tokenizer` is mlx-lm's wrapper."""
    if not tokenizer.has_chat_template:
        return TemplateHabits()
    late_system, detail = _late_system(tokenizer)
    return TemplateHabits(
        openings=_openings(tokenizer), late_system=late_system, detail=detail, has_positions=has_positions(tokenizer)
    )


def tail_turns(role: str) -> list[Turn]:
    """The shortest conversation that ends in a message of `role`."""
    if role == "user":
        return _conversation("user")
    return _conversation(*(("user", "call", "tool") if role == "tool" else ("user", role)))


def common_len(first: str, second: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _conversation(*roles: str) -> list[Turn]:
    return [_turn(role, position) for position, role in enumerate(roles)]


def _turn(role: str, position: int) -> Turn:
    """Call ids are nine letters and digits: some templates accept no others."""
    if role == "call":
        function = {"name": "probe", "arguments": {"word": _WORD.format(position)}}
        call = {"id": f"call{position + 1:05d}", "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    turn: Turn = {"role": role, "content": _WORD.format(position)}
    return turn | {"tool_call_id": f"call{position:05d}", "name": "probe"} if role == "tool" else turn


def _rendered(tokenizer: Any, turns: Sequence[Turn]) -> str | None:
    try:
        return str(tokenizer.apply_chat_template(list(turns), tokenize=False, tools=None))
    except Exception:  # a template is the model's own code, and raises what it likes
        return None


def _openings(tokenizer: Any) -> tuple[str, ...]:
    found: set[str] = set()
    for roles in (
        ("user", "assistant", "user"),
        ("system", "user", "assistant", "user"),
        ("user", "assistant", "system", "user", "system"),
        ("user", "call", "tool", "tool", "assistant", "user", "call", "tool", "user"),
    ):
        turns = _conversation(*roles)
        texts = [_rendered(tokenizer, turns[: num + 1]) for num in range(len(turns))]
        for position, role in enumerate(roles):
            # Longer conversations too: an answer opens in another way when there is a newer question.
            for whole in texts[position:]:
                part = texts[position - 1] if position else None
                if part is not None and whole is not None and role != "call":
                    found.update(_opening(part, whole, position))
    return tuple(sorted(found, key=len, reverse=True))


def _opening(part: str, whole: str, position: int) -> Iterator[str]:
    """What stands in `whole` between message `position` and the end of the one before, which `part` ends with.

    Two renderings are compared only behind the earlier message: before it, templates drop thoughts as they like.
    """
    before, word = _WORD.format(position - 1), _WORD.format(position)
    if before not in part or before not in whole or word not in whole:
        return
    ending = part[part.rindex(before) + len(before) :]
    between = whole[whole.rindex(before) + len(before) : whole.rindex(word)]
    opening = between[common_len(ending, between) :]
    if opening.strip() and _STEM not in opening:
        yield opening


def _late_system(tokenizer: Any) -> tuple[LateSystem, str]:
    """The form that a template needs for the most difficult of a few conversations."""
    names = []
    for roles in (("system", "user", "assistant", "system", "user"), ("system", "user", "system")):
        turns = _conversation(*roles)
        words = [turn["content"] for turn in turns[1:]]
        name = next((form.name for form in forms(turns) if _in_order(_rendered(tokenizer, form.turns), words)), None)
        if name is None:
            return "unsupported", "no form of a later system message is rendered in its place"
        names.append(name)
    rewrites = dict.fromkeys(name for name in names if name != AS_SENT)
    if not rewrites:
        return "native", "a later system message is rendered in its place"
    return "patched", "; ".join(rewrites)


def _in_order(text: str | None, words: Sequence[str]) -> bool:
    if text is None:
        return False
    places = [text.find(word) for word in words]
    return -1 not in places and places == sorted(places)
