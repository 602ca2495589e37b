"""Neutral messages as the dictionaries that chat templates expect, and the rewrites for templates that refuse them.

It renders nothing: `engine.text.template` tries the forms in the order in which they come out of here.

Templates differ in what they accept, and most of them raise. The forms, each on top of the one before:
 1. as sent, every message in its place;
 2. arguments of earlier calls that are not JSON are given as {"raw": text}, for templates that walk through them;
 3. the leading system messages are one; a later one becomes a user turn in its place, its text unchanged;
 4. neighbouring user turns are one, and so are neighbouring assistant turns, joined by an empty line;
 5. the leading system message stands before the text of the first user turn.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.wire import Message, TextPart, Tool, ToolCall

Turn = dict[str, Any]
_BETWEEN_TURNS = "\n\n"
AS_SENT: Final = "as sent"


@dataclass(frozen=True, slots=True)
class Form:
    """`name` says what the last rewrite was."""

    name: str
    turns: list[Turn]


def as_turns(messages: Sequence[Message]) -> list[Turn]:
    """Format: the messages of OpenAI chat completions, arguments parsed, `reasoning_content` for thoughts."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_turn(message, names) for message in messages]


def as_functions(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Format: the tools of OpenAI chat completions. `strict` is left out: no model was trained to read it."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def forms(turns: list[Turn], *, takes_late_system: bool = True) -> Iterator[Form]:
    """The turns as sent, then each rewrite that changes something.

    Without `takes_late_system`, a system message behind another role is given in no form: some templates take it, and
    move it to the front, where it changes the whole prompt with every turn.
    """
    is_given = takes_late_system or not _has_late_system(turns)
    if is_given:
        yield Form(AS_SENT, turns)
    for rewrite, name in _REWRITES:
        rewritten = rewrite(turns)
        is_given = is_given or rewrite is _with_systems_folded
        if rewritten != turns and is_given:
            yield Form(name, rewritten)
        turns = rewritten


def _turn(message: Message, names: dict[str, str]) -> Turn:
    # A model's own text is continued as it was written; texts of others stand on lines of their own.
    between = "" if message.role == "assistant" else "\n"
    turn: Turn = {
        "role": message.role,
        "content": between.join(part.text for part in message.content if isinstance(part, TextPart)),
    }
    if message.reasoning:
        turn["reasoning_content"] = message.reasoning
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    name = message.name or (names.get(message.tool_call_id or "") if message.role == "tool" else None)
    if name:
        turn["name"] = name
    return turn


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}


def _arguments(call: ToolCall) -> dict[str, Any] | str:
    if call.arguments is not None:
        return call.arguments
    if not call.arguments_raw.strip():
        return {}
    try:
        parsed = json.loads(call.arguments_raw)
        if "\\u" in call.arguments_raw:
            json.dumps(parsed, ensure_ascii=False).encode()  # half of a surrogate pair is no text for a tokenizer
    except (ValueError, RecursionError):
        return call.arguments_raw
    return parsed if isinstance(parsed, dict) else call.arguments_raw


def _with_raw_arguments(turns: list[Turn]) -> list[Turn]:
    return [
        turn | {"tool_calls": [_with_object(call) for call in turn["tool_calls"]]} if "tool_calls" in turn else turn
        for turn in turns
    ]


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    if isinstance(function["arguments"], dict):
        return call
    return call | {"function": function | {"arguments": {"raw": function["arguments"]}}}


def leading_system(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The system messages that stand before all others."""
    return turns[: next((i for i, turn in enumerate(turns) if turn["role"] != "system"), len(turns))]


def _has_late_system(turns: Sequence[Turn]) -> bool:
    return any(turn["role"] == "system" for turn in turns[len(leading_system(turns)) :])


def _with_systems_folded(turns: list[Turn]) -> list[Turn]:
    leading = leading_system(turns)
    later = turns[len(leading) :]
    folded = [turn | {"role": "user"} if turn["role"] == "system" else turn for turn in later]
    return [*_joined(leading), *folded]


def _with_neighbours_joined(turns: list[Turn]) -> list[Turn]:
    runs: list[list[Turn]] = []
    for turn in turns:
        if runs and _can_join(runs[-1][-1], turn):
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return [joined for run in runs for joined in _joined(run)]


def _can_join(first: Turn, second: Turn) -> bool:
    return first["role"] == second["role"] and first["role"] in ("user", "assistant") and "tool_calls" not in first


def _joined(turns: Sequence[Turn]) -> list[Turn]:
    """The turns as one: texts and thoughts joined, everything else from the last. Nothing for nothing."""
    if len(turns) < 2:
        return list(turns)
    joined = turns[-1] | {"content": _BETWEEN_TURNS.join(turn["content"] for turn in turns if turn["content"])}
    thoughts = [turn["reasoning_content"] for turn in turns if "reasoning_content" in turn]
    if thoughts:
        joined["reasoning_content"] = _BETWEEN_TURNS.join(thoughts)
    return [joined]


def _without_system(turns: list[Turn]) -> list[Turn]:
    if not turns or turns[0]["role"] != "system":
        return turns
    system, rest = turns[0], turns[1:]
    at = next((i for i, turn in enumerate(rest) if turn["role"] == "user"), None)
    if at is None:
        return [system | {"role": "user"}, *rest]
    return [*rest[:at], *_joined([system, rest[at]]), *rest[at + 1 :]]


_REWRITES: Final = (
    (_with_raw_arguments, "arguments that are no object wrapped in one"),
    (_with_systems_folded, "a later system message as a user turn"),
    (_with_neighbours_joined, "a later system message as a user turn, neighbouring turns joined"),
    (_without_system, "system messages as text of user turns, neighbouring turns joined"),
)
