"""The tools of a Responses request, both ways: what the model may call, and what its call is to the client.

To the model every tool is a function. A function in a namespace gets a name made of both; a custom tool, which takes
plain text, takes an object with that text as `input`. Tools of other types work only at OpenAI: they are left out,
and noted. It does not make the model obey a tool choice.
"""

import hashlib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from control.dialects.decoding import converted
from control.dialects.limits import TOOLS_LIMIT, check_number
from control.dialects.skipped import SAME_NAME, Skipped
from control.dialects.tools import (
    Name,
    custom_tool,
    function_tool,
    none_to_call,
    not_among_the_tools,
    plain_choice,
)
from control.errors import InvalidRequest
from engine import wire

# OpenAI's own limit of a function's name; templates and models were made with it in mind.
NAME_LIMIT: Final = 64
_HASH_LEN: Final = 8
_JOINT: Final = "__"

Kind = Literal["function", "custom"]
Mode = Literal["auto", "none", "required", "named"]


class NamespaceTool(msgspec.Struct, frozen=True):
    name: Name
    tools: list[Any] | None = None


Identity = tuple[str, str | None]
"""Name and namespace."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What the client calls a tool."""

    kind: Kind
    name: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class RawTool:
    """As the client sent it. `field` is where."""

    tool: object
    field: str


@dataclass(frozen=True, slots=True)
class NeutralTools:
    """`fields` says where the client sent each of `tools`."""

    tools: tuple[wire.Tool, ...]
    choice: wire.ToolChoice
    fields: tuple[str, ...]
    origins: dict[str, Origin]
    flats: dict[Identity, str]

    def origin(self, flat: str) -> Origin:
        """Of the name that the model called. One that it made up is a function of that name."""
        return self.origins.get(flat) or Origin("function", flat)

    def flat(self, name: str, namespace: str | None) -> str:
        """The name that the model knows. A tool that is not there any more has the name that it most likely had."""
        return self.flats.get((name, namespace)) or _joined(name, namespace)


def neutral_tools(raw: Sequence[RawTool], choice: object, skipped: Skipped, *, is_parallel: bool) -> NeutralTools:
    """Of several tools with the same name the first counts. Raises InvalidRequest that names the field."""
    placed = _flattened(raw, skipped)
    plain = {each.origin.name for each in placed if each.origin.namespace is None}
    tools: list[wire.Tool] = []
    fields: list[str] = []
    origins: dict[str, Origin] = {}
    flats: dict[Identity, str] = {}
    for each in placed:
        identity = (each.origin.name, each.origin.namespace)
        if identity in flats:
            skipped.add("tool", SAME_NAME)
            continue
        flat = each.origin.name if each.origin.namespace is None else _free_name(each.origin, plain | origins.keys())
        tools.append(msgspec.structs.replace(each.tool, name=flat))
        fields.append(each.field)
        origins[flat] = each.origin
        flats[identity] = flat
    known = NeutralTools(tuple(tools), wire.ToolChoice(parallel=is_parallel), tuple(fields), origins, flats)
    return _chosen(known, choice, skipped)


# --- What the model may call ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    tool: wire.Tool
    origin: Origin
    field: str


def _flattened(raw: Sequence[RawTool], skipped: Skipped) -> list[_Placed]:
    placed = [each for tool in raw for each in _placed(tool, None, skipped)]
    check_number(len(placed), TOOLS_LIMIT, "tools", "tools")
    return placed


def _placed(raw: RawTool, namespace: str | None, skipped: Skipped) -> Iterator[_Placed]:
    if not isinstance(raw.tool, dict):
        raise InvalidRequest("A tool is an object with a type.", param=raw.field)
    match raw.tool.get("type"):
        case "function" | "custom" as kind:
            tool = (function_tool if kind == "function" else custom_tool)(raw.tool, raw.field)
            yield _Placed(tool, Origin(kind, tool.name, namespace), raw.field)
        case "namespace" if namespace is None:
            parsed = converted(raw.tool, NamespaceTool, raw.field)
            for index, each in enumerate(parsed.tools or ()):
                yield from _placed(RawTool(each, f"{raw.field}.tools[{index}]"), parsed.name, skipped)
        case str(kind):
            skipped.add("tool", kind)
        case _:
            raise InvalidRequest("A tool needs a type.", param=f"{raw.field}.type")


def _joined(name: str, namespace: str | None) -> str:
    if namespace is None:
        return name
    # Some namespaces end with the joint already: mcp__server__.
    joined = f"{namespace}{name}" if namespace.endswith(_JOINT) else f"{namespace}{_JOINT}{name}"
    return joined if len(joined) <= NAME_LIMIT else _hashed(joined, namespace, name)


def _hashed(joined: str, *identity: str) -> str:
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:_HASH_LEN]
    return f"{joined[: NAME_LIMIT - _HASH_LEN - 1]}_{digest}"


def _free_name(origin: Origin, taken: Set[str]) -> str:
    flat = _joined(origin.name, origin.namespace)
    number = 0
    while flat in taken:
        number += 1
        flat = _hashed(flat, origin.namespace or "", origin.name, str(number))
    return flat


# --- Which of them it may call now ---------------------------------------------------------------------------------


def _chosen(known: NeutralTools, choice: object, skipped: Skipped) -> NeutralTools:
    chosen = known
    match plain_choice(choice):
        case None | "auto":
            pass
        case "none" | "required" as mode:
            chosen = _with_mode(known, mode)
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(allowed)}:
            names = _allowed(allowed, known, skipped)
            kept = [(tool, place) for tool, place in zip(known.tools, known.fields, strict=True) if tool.name in names]
            chosen = replace(
                _with_mode(known, mode), tools=tuple(tool for tool, _ in kept), fields=tuple(place for _, place in kept)
            )
        case {"type": "function" | "custom"}:
            chosen = _with_mode(known, "named", _named(choice, "tool_choice.name", known))
        case {"type": str(kind)} if kind != "allowed_tools":
            raise not_among_the_tools(kind, "tool_choice")
        case _:
            raise InvalidRequest(
                "tool_choice is auto, none, required, a function or custom tool by name, or allowed_tools.",
                param="tool_choice",
            )
    if chosen.choice.mode == "required" and not chosen.tools:
        raise none_to_call()
    return chosen


def _with_mode(known: NeutralTools, mode: Mode, name: str | None = None) -> NeutralTools:
    return replace(known, choice=msgspec.structs.replace(known.choice, mode=mode, name=name))


def _allowed(allowed: list[Any], known: NeutralTools, skipped: Skipped) -> set[str]:
    check_number(len(allowed), TOOLS_LIMIT, "tools", "tool_choice.tools")
    names: set[str] = set()
    for index, each in enumerate(allowed):
        place = f"tool_choice.tools[{index}]"
        match each:
            case {"type": "function" | "custom"}:
                names.add(_named(each, f"{place}.name", known))
            case {"type": "namespace", "name": str(namespace)}:
                names.update(flat for flat, origin in known.origins.items() if origin.namespace == namespace)
            case {"type": str(kind)}:
                skipped.add("allowed_tool", kind)
            case _:
                raise InvalidRequest("An allowed tool is an object with a type.", param=place)
    return names


def _named(choice: Any, place: str, known: NeutralTools) -> str:
    name, namespace = choice.get("name"), choice.get("namespace")
    for flat, origin in known.origins.items():
        if origin.name == name and namespace in (None, origin.namespace):
            return flat
    raise not_among_the_tools(name, place)
