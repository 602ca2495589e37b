"""The tools of a chat request and which of them may be called, from OpenAI's form to the engine's neutral one.

It does not make the model obey: what is required and what is strict, the engine sees to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from control.dialects.limits import TOOLS_LIMIT, check_number
from control.dialects.skipped import Skipped
from control.dialects.tools import custom_tool, function_tool
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
    """Tools of an unknown type are left out. Raises InvalidRequest that names the field."""
    check_number(len(tools), TOOLS_LIMIT, "tools", "tools")
    custom: set[str] = set()
    found = [_tool(tool, f"tools[{index}]", custom, skipped) for index, tool in enumerate(tools)]
    known = tuple(tool for tool in found if tool is not None)
    offered = known
    match choice:
        case None | "auto":
            chosen = wire.ToolChoice()
        case "none":
            chosen = wire.ToolChoice(mode="none")
        case "required":
            if not tools:
                raise InvalidRequest("tool_choice required needs tools.", param="tool_choice")
            chosen = _required(known)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            check_number(len(allowed), TOOLS_LIMIT, "tools", "tool_choice")
            names = {_name(tool, "tool_choice.allowed_tools.tools", known) for tool in allowed}
            offered = tuple(tool for tool in known if tool.name in names)
            chosen = _required(offered) if mode == "required" else wire.ToolChoice()
        case {"type": "function" | "custom" as kind}:
            chosen = wire.ToolChoice(mode="named", name=_name(choice, f"tool_choice.{kind}.name", known))
        case {"type": str(kind)} if kind != "allowed_tools":
            skipped.add("tool_choice", kind)
            chosen = wire.ToolChoice()
        case _:
            raise InvalidRequest(
                "tool_choice is auto, none, required, a tool by name, or allowed_tools.", param="tool_choice"
            )
    return NeutralTools(offered, msgspec.structs.replace(chosen, parallel=is_parallel), CallForm(frozenset(custom)))


def legacy_tools(functions: Sequence[Any], choice: object) -> NeutralTools:
    """Of `functions` and `function_call`: such a client reads one call of an answer. Raises InvalidRequest."""
    check_number(len(functions), TOOLS_LIMIT, "tools", "functions")
    known = tuple(function_tool(function, f"functions[{index}]") for index, function in enumerate(functions))
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


def _required(known: tuple[wire.Tool, ...]) -> wire.ToolChoice:
    """Where all that were sent are of unknown types, there is none to be called, and the model goes on without."""
    return wire.ToolChoice(mode="required") if known else wire.ToolChoice()


def _tool(tool: object, field: str, custom: set[str], skipped: Skipped) -> wire.Tool | None:
    if not isinstance(tool, dict):
        raise InvalidRequest("A tool is an object with a type.", param=field)
    match tool.get("type"):
        case None | "function":
            return function_tool(tool.get("function"), f"{field}.function")
        case "custom":
            known = custom_tool(tool.get("custom"), f"{field}.custom")
            custom.add(known.name)
            return known
        case str(kind):
            skipped.add("tool", kind)
            return None
    raise InvalidRequest("The type of a tool is a text.", param=f"{field}.type")


def _name(choice: object, field: str, known: tuple[wire.Tool, ...]) -> str | None:
    """None for a tool of an unknown type, which was left out."""
    match choice:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            pass
        case {"type": str(kind)} if kind not in ("function", "custom"):
            return None
        case _:
            raise InvalidRequest("The name of a tool is expected here.", param=field)
    if not any(tool.name == name for tool in known):
        raise InvalidRequest(f"tool_choice names {name!r}, which is not among the tools.", param=field)
    return name
