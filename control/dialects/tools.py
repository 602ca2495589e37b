"""Tools as OpenAI's clients send them, to the functions that the model sees.

It decides nothing on which of them may be called, but says what all dialects say of a choice. To the model a custom
tool, which takes plain text, is a function with one text (`custom_input` gets it back); its grammar is only words for
the model, the engine does not enforce it.
"""

from typing import Annotated, Any, Final

import msgspec

from control.dialects.decoding import converted
from control.dialects.nesting import check_depth
from control.errors import InvalidRequest
from engine import wire

Name = Annotated[str, msgspec.Meta(min_length=1)]

_CUSTOM_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}


class FunctionTool(msgspec.Struct, frozen=True):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Any = None


class CustomTool(msgspec.Struct, frozen=True):
    name: Name
    description: str | None = None
    format: Any = None


def function_tool(written: object, field: str) -> wire.Tool:
    """Raises InvalidRequest that names the field."""
    tool = converted(written, FunctionTool, field)
    check_depth(tool.parameters, f"{field}.parameters")
    return wire.Tool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.parameters or {},
        strict=is_strict(tool.strict),
    )


def custom_tool(written: object, field: str) -> wire.Tool:
    """Raises InvalidRequest that names the field."""
    tool = converted(written, CustomTool, field)
    return wire.Tool(
        name=tool.name,
        description="\n\n".join(part for part in (tool.description, _rules(tool.format)) if part),
        parameters=_CUSTOM_PARAMETERS,
    )


def is_strict(strict: object) -> bool:
    """Some clients send it as text."""
    return strict in (True, "true")


def plain_choice(choice: object) -> object:
    """Some clients write `{"type": "auto"}` for `auto`, as Anthropic's do."""
    match choice:
        case {"type": "auto" | "none" | "required" as mode}:
            return mode
    return choice


def none_to_call(why: str = "") -> InvalidRequest:
    """Of a choice that requires a call: to go on without would be a lie."""
    return InvalidRequest(f"A call is required, but no tool can be called.{why}", param="tool_choice")


def not_among_the_tools(name: object, field: str, why: str = "") -> InvalidRequest:
    """Of a tool that is chosen and was not sent, or was left out because only its maker can run it."""
    return InvalidRequest(f"tool_choice names {name!r}, which is not among the tools.{why}", param=field)


def _rules(form: object) -> str | None:
    """The grammar stands beside its type in Responses, and one level below in Chat."""
    match form:
        case {"type": "grammar", "grammar": dict(grammar)} | {"type": "grammar", **grammar}:
            definition, syntax = grammar.get("definition"), grammar.get("syntax")
            if isinstance(definition, str):
                named = syntax if isinstance(syntax, str) else "given"
                return f"The input follows this {named} grammar:\n{definition}"
    return None
