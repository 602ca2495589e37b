"""The tools of a Messages request and which of them may be called, from Anthropic's form to the engine's neutral one.

It drops the tools that only Anthropic's servers can run, and judges no schema: the engine does, where it enforces one.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from control.dialects.decoding import converted
from control.dialects.limits import TOOLS_LIMIT, check_number
from control.dialects.nesting import check_depth
from control.dialects.skipped import SAME_NAME, Skipped
from control.dialects.tools import Name, is_strict, none_to_call, not_among_the_tools
from control.errors import InvalidRequest
from engine import wire


class InputTool(msgspec.Struct, frozen=True):
    name: Name
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: Any = None


@dataclass(frozen=True, slots=True)
class NeutralTools:
    """`places` says of each tool where it stands in the client's body."""

    tools: tuple[wire.Tool, ...]
    places: tuple[str, ...]
    choice: wire.ToolChoice


def neutral_tools(tools: list[Any] | None, choice: dict[str, Any] | None, skipped: Skipped) -> NeutralTools:
    """Of several tools with the same name the first counts. Raises InvalidRequest that names the field."""
    check_number(len(tools or ()), TOOLS_LIMIT, "tools", "tools")
    known: dict[str, wire.Tool] = {}
    names: set[str] = set()
    dropped: list[str] = []
    for index, tool in enumerate(tools or ()):
        place = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise InvalidRequest("A tool is an object.", param=place)
        if not _is_custom(tool):
            dropped.append(str(tool["type"]))
            skipped.add("tool", dropped[-1])
            continue
        read = _tool(tool, place)
        if read.name in names:
            skipped.add("tool", SAME_NAME)
            continue
        names.add(read.name)
        known[place] = read
    tool_set = tuple(known.values())
    return NeutralTools(tool_set, tuple(known), _choice(choice, tool_set, dropped))


def _is_custom(tool: dict[str, Any]) -> bool:
    """Whatever its type: with a schema of its own, it is the client that runs it."""
    return tool.get("type") in (None, "custom") or isinstance(tool.get("input_schema"), dict)


def _tool(written: dict[str, Any], place: str) -> wire.Tool:
    tool = converted(written, InputTool, place)
    check_depth(tool.input_schema, f"{place}.input_schema")
    return wire.Tool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.input_schema or {},
        strict=is_strict(tool.strict),
    )


def _choice(choice: dict[str, Any] | None, tools: tuple[wire.Tool, ...], dropped: list[str]) -> wire.ToolChoice:
    if choice is None:
        return wire.ToolChoice()
    is_parallel = choice.get("disable_parallel_tool_use") is not True
    match choice.get("type"):
        case "auto":
            return wire.ToolChoice(parallel=is_parallel)
        case "none":
            return wire.ToolChoice(mode="none")
        case "any":
            if not tools:
                raise none_to_call(_why(dropped))
            return wire.ToolChoice(mode="required", parallel=is_parallel)
        case "tool":
            name = choice.get("name")
            if not isinstance(name, str) or name not in {tool.name for tool in tools}:
                raise not_among_the_tools(name, "tool_choice.name", _why(dropped))
            return wire.ToolChoice(mode="named", name=name, parallel=is_parallel)
    raise InvalidRequest("The type of tool_choice is auto, any, tool or none.", param="tool_choice.type")


def _why(dropped: list[str]) -> str:
    return (
        f" Tools that run on Anthropic's servers are not there: {', '.join(sorted(set(dropped)))}." if dropped else ""
    )
