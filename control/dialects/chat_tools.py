"""The tools of a chat request and which of them may be called, from OpenAI's form to the engine's neutral one.

It does not make the model obey: `required` and a named tool are handed on, and are a wish until grammars exist.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from control.dialects.nesting import NESTING_LIMIT, is_too_deep
from control.errors import InvalidRequest
from engine import wire

# OpenAI's own limit is 128; a client with many MCP servers has some hundreds.
TOOLS_LIMIT: Final = 1000


class ChatFunction(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Any = None


class ChatTool(msgspec.Struct):
    function: ChatFunction | None = None
    type: str = "function"


@dataclass(frozen=True, slots=True)
class NeutralTools:
    tools: tuple[wire.Tool, ...]
    choice: wire.ToolChoice


def neutral_tools(tools: list[ChatTool] | None, choice: object, *, is_parallel: bool) -> NeutralTools:
    """Raises InvalidRequest that names the field."""
    if len(tools or ()) > TOOLS_LIMIT:
        raise InvalidRequest(f"At most {TOOLS_LIMIT} tools are supported.", param="tools")
    known = tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ()))
    match choice:
        case None | "auto" | "none" | "required":
            return NeutralTools(known, wire.ToolChoice(mode=_mode(choice, known), parallel=is_parallel))
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            if len(allowed) > TOOLS_LIMIT:
                raise InvalidRequest(f"At most {TOOLS_LIMIT} tools are supported.", param="tool_choice")
            names = {_name(tool, "tool_choice.allowed_tools.tools", known) for tool in allowed}
            chosen = tuple(tool for tool in known if tool.name in names)
            return NeutralTools(chosen, wire.ToolChoice(mode=mode, parallel=is_parallel))
        case {"type": "function"}:
            name = _name(choice, "tool_choice.function.name", known)
            return NeutralTools(known, wire.ToolChoice(mode="named", name=name, parallel=is_parallel))
    raise InvalidRequest(
        "tool_choice is auto, none, required, a function by name, or allowed_tools.", param="tool_choice"
    )


def _mode(choice: object, known: tuple[wire.Tool, ...]) -> Literal["auto", "none", "required"]:
    if choice == "required":
        if not known:
            raise InvalidRequest("tool_choice required needs tools.", param="tool_choice")
        return "required"
    return "none" if choice == "none" else "auto"


def _tool(tool: ChatTool, field: str) -> wire.Tool:
    if tool.type != "function":
        raise InvalidRequest(f"Tools of type {tool.type!r} are not supported.", param=f"{field}.type")
    function = tool.function
    if function is None:
        raise InvalidRequest("A function tool needs its function.", param=f"{field}.function")
    if not function.name:
        raise InvalidRequest("A function needs a name.", param=f"{field}.function.name")
    if is_too_deep(function.parameters):
        raise InvalidRequest(f"At most {NESTING_LIMIT} levels are supported.", param=f"{field}.function.parameters")
    return wire.Tool(
        name=function.name,
        description=function.description or "",
        parameters=function.parameters or {},
        # Some clients send it as text.
        strict=function.strict in (True, "true"),
    )


def _name(choice: object, field: str, known: tuple[wire.Tool, ...]) -> str:
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in {tool.name for tool in known}:
        raise InvalidRequest(f"tool_choice names {name!r}, which is not among the tools.", param=field)
    return name
