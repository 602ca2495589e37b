"""The tools of a chat request and which of them may be called, from OpenAI's form to the engine's neutral one.

It does not make the model obey: what is required and what is strict, the engine sees to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from control.dialects.limits import TOOLS_LIMIT, check_number
from control.dialects.skipped import SAME_NAME, Skipped
from control.dialects.tools import custom_tool, function_tool, none_to_call, not_among_the_tools, plain_choice
from control.errors import InvalidRequest
from engine import wire


@dataclass(frozen=True, slots=True)
class CallForm:
    """How the client reads calls: those of `custom` tools have plain text; `is_legacy`: one `function_call`, no id."""

    custom: frozenset[str] = frozenset()
    is_legacy: bool = False


@dataclass(frozen=True, slots=True)
class NeutralTools:
    tools: tuple[wire.Tool, ...]
    choice: wire.ToolChoice
    form: CallForm = CallForm()


def neutral_tools(tools: Sequence[Any], choice: object, skipped: Skipped, *, is_parallel: bool) -> NeutralTools:
    """Tools of an unknown type are left out, and so is a second of the same name. Raises InvalidRequest."""
    check_number(len(tools), TOOLS_LIMIT, "tools", "tools")
    read = (_tool(tool, f"tools[{index}]", skipped) for index, tool in enumerate(tools))
    kept = _different((each for each in read if each is not None), skipped)
    custom = frozenset(each.tool.name for each in kept if each.is_custom)
    known = offered = tuple(each.tool for each in kept)
    match plain_choice(choice):
        case None | "auto":
            chosen = wire.ToolChoice()
        case "none":
            chosen = wire.ToolChoice(mode="none")
        case "required":
            chosen = _required(known)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            check_number(len(allowed), TOOLS_LIMIT, "tools", "tool_choice")
            names = {_allowed_name(tool, known, skipped) for tool in allowed}
            offered = tuple(tool for tool in known if tool.name in names)
            chosen = _required(offered) if mode == "required" else wire.ToolChoice()
        case {"type": "function" | "custom" as kind}:
            chosen = wire.ToolChoice(mode="named", name=_name(choice, f"tool_choice.{kind}.name", known))
        case {"type": str(kind)} if kind != "allowed_tools":
            raise not_among_the_tools(kind, "tool_choice")
        case _:
            raise InvalidRequest(
                "tool_choice is auto, none, required, a tool by name, or allowed_tools.", param="tool_choice"
            )
    return NeutralTools(offered, msgspec.structs.replace(chosen, parallel=is_parallel), CallForm(custom))


def legacy_tools(functions: Sequence[Any], choice: object, skipped: Skipped) -> NeutralTools:
    """Of `functions` and `function_call`: such a client reads one call of an answer. Raises InvalidRequest."""
    check_number(len(functions), TOOLS_LIMIT, "tools", "functions")
    read = (_Read(function_tool(function, f"functions[{index}]")) for index, function in enumerate(functions))
    known = tuple(each.tool for each in _different(read, skipped))
    match choice:
        case None | "auto":
            chosen = wire.ToolChoice(parallel=False)
        case "none":
            chosen = wire.ToolChoice(mode="none", parallel=False)
        case {"name": str(name)} if any(tool.name == name for tool in known):
            chosen = wire.ToolChoice(mode="named", name=name, parallel=False)
        case _:
            raise InvalidRequest("function_call is auto, none, or one of the functions.", param="function_call")
    return NeutralTools(known, chosen, CallForm(is_legacy=True))


def _required(offered: tuple[wire.Tool, ...]) -> wire.ToolChoice:
    if not offered:
        raise none_to_call()
    return wire.ToolChoice(mode="required")


@dataclass(frozen=True, slots=True)
class _Read:
    tool: wire.Tool
    is_custom: bool = False


def _different(tools: Iterable[_Read], skipped: Skipped) -> Sequence[_Read]:
    """Of several with the same name the first counts."""
    known: dict[str, _Read] = {}
    for each in tools:
        if known.setdefault(each.tool.name, each) is not each:
            skipped.add("tool", SAME_NAME)
    return list(known.values())


def _tool(tool: object, field: str, skipped: Skipped) -> _Read | None:
    """None for one of an unknown type."""
    if not isinstance(tool, dict):
        raise InvalidRequest("A tool is an object with a type.", param=field)
    match tool.get("type"):
        case None | "function":
            return _Read(function_tool(tool.get("function"), f"{field}.function"))
        case "custom":
            return _Read(custom_tool(tool.get("custom"), f"{field}.custom"), is_custom=True)
        case str(kind):
            skipped.add("tool", kind)
            return None
    raise InvalidRequest("The type of a tool is a text.", param=f"{field}.type")


def _allowed_name(allowed: object, known: tuple[wire.Tool, ...], skipped: Skipped) -> str | None:
    """None for a tool of an unknown type, which was left out."""
    match allowed:
        case {"type": str(kind)} if kind not in ("function", "custom"):
            skipped.add("allowed_tool", kind)
            return None
    return _name(allowed, "tool_choice.allowed_tools.tools", known)


def _name(choice: object, field: str, known: tuple[wire.Tool, ...]) -> str:
    match choice:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            if any(tool.name == name for tool in known):
                return name
            raise not_among_the_tools(name, field)
    raise InvalidRequest("The name of a tool is expected here.", param=field)
