"""Writes the grammar of tool calls in the manner in which the model writes them: of a whole answer, or of one call.

It knows the two families whose calls are JSON or XML between two markers; of the others it says that it does not.

An answer of calls holds nothing else: no text before them, between them or behind them. Arguments follow the tool's
schema, in its order. A schema that can't be compiled binds only a strict tool; the arguments of others are then free.
In XML the texts that are arguments are free but for an enumeration: patterns and lengths are not enforced there.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from llguidance import LLMatcher
from mlx_lm.tool_parsers import json_tools, qwen3_coder

from engine.errors import InvalidRequest
from engine.text.compiling import Deadline
from engine.text.grammar import Grammars, json_rule, text_rule
from engine.text.tokenizer import TextModel
from engine.text.tool_calls import ToolParser
from engine.wire import Tool

_PARAM: Final = "prompt.tools"
# Values that are written as JSON in XML; all others are texts.
_JSON_TYPES: Final = frozenset({"integer", "number", "boolean", "object", "array"})
_DEFINITIONS: Final = ("$defs", "definitions")
_PARAMETER_END: Final = "</parameter>"
_SHARED_RULES: Final = rf"""
text[suffix="{_PARAMETER_END}"]: /(.|\n)*/
NEWLINE: "\n"
NAME: /[^\s<>]+/
"""

WriteCall = Callable[[Tool], str]
"""The part of a rule that stands for one call of the tool, without its markers. Raises InvalidRequest."""


def has_call_grammar(model: TextModel) -> bool:
    return model.markup.call_start is not None and model.tokenizer.tool_parser in _FAMILIES


def calls_of(tools: Sequence[Tool], model: TextModel, grammars: Grammars, *, parallel: bool) -> LLMatcher:
    """At the beginning of an answer that calls at least one of the tools, and no more than one without `parallel`.

    Raises InvalidRequest when the schema of a strict tool can't be compiled.
    """
    write = _FAMILIES[model.tokenizer.tool_parser]

    def compiled(tools: Sequence[Tool]) -> LLMatcher:
        return grammars.compile(_rules([write(tool) for tool in tools], model, parallel=parallel), param=_PARAM)

    try:
        return compiled(tools)
    except InvalidRequest:
        # All of them together: those that are left when it is over stay free.
        trying = Deadline()
        return compiled(
            [tool if tool.strict or _can_compile(tool, write, grammars, trying) else _freed(tool) for tool in tools]
        )


def call_of(tools: Sequence[Tool], model: TextModel, grammars: Grammars) -> LLMatcher:
    """Behind the marker of a call that the model has begun by itself, up to its end; only strict tools are bound.

    Raises InvalidRequest when the schema of a strict tool can't be compiled.
    """
    write = _FAMILIES[model.tokenizer.tool_parser]
    calls = [write(tool if tool.strict else _freed(tool)) for tool in tools]
    return grammars.compile(f"start: {_behind_marker(calls, model)}", param=_PARAM)


def _rules(calls: Sequence[str], model: TextModel, *, parallel: bool) -> str:
    start = "start: call (NEWLINE? call)*" if parallel else "start: call"
    return f"{start}\ncall: {_marker(model.markup.call_start, model)} {_behind_marker(calls, model)}"


def _behind_marker(calls: Sequence[str], model: TextModel) -> str:
    """The rest of the rule of a call, and the rules below it."""
    names = [f"tool_{position}" for position in range(len(calls))]
    rules = [
        f"NEWLINE? ({' | '.join(names)}) NEWLINE? {_marker(model.markup.call_end, model)}",
        *(f"{name}: {call}" for name, call in zip(names, calls, strict=True)),
    ]
    return "\n".join(rules) + _SHARED_RULES


def _marker(text: str | None, model: TextModel) -> str:
    """A marker that is one token is that token: no text that looks like it stands for it."""
    if not text:
        return ""
    token = model.tokenizer.get_vocab().get(text)
    return text_rule(text) if token is None else f"<[{token}]>"


def _can_compile(tool: Tool, write: WriteCall, grammars: Grammars, deadline: Deadline) -> bool:
    try:
        grammars.compile(f"start: {write(tool)}{_SHARED_RULES}", param=_PARAM, deadline=deadline)
    except InvalidRequest:
        return False
    return True


def _freed(tool: Tool) -> Tool:
    return msgspec.structs.replace(tool, parameters={"type": "object"})


def _schema_of(tool: Tool) -> dict[str, Any]:
    return {"type": "object"} | (tool.parameters or {"properties": {}})


def _json_call(tool: Tool) -> str:
    begin = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": '
    return f"{text_rule(begin)} {json_rule(_schema_of(tool), param=_PARAM)} {text_rule('}')}"


def _xml_call(tool: Tool) -> str:
    schema = _schema_of(tool)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        definitions: dict[str, Any] = {name: schema[name] for name in _DEFINITIONS if name in schema}
        required = schema.get("required", ())
        parameters = " ".join(
            f"({text_rule(f'<parameter={name}>')} NEWLINE {_xml_value(value, definitions)} NEWLINE)"
            + ("" if name in required else "?")
            for name, value in properties.items()
        )
    else:
        parameters = '("<parameter=" NAME ">" NEWLINE text NEWLINE)*'
    return f"{text_rule(f'<function={tool.name}>')} NEWLINE {parameters} {text_rule('</function>')}"


def _xml_value(schema: Any, definitions: dict[str, Any]) -> str:
    """What stands between the newline behind a parameter's tag and the one behind its end."""
    if not isinstance(schema, Mapping):
        return "text"
    end = text_rule("\n" + _PARAMETER_END)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if choices and all(isinstance(choice, str) for choice in choices):
        return f"({' | '.join(map(text_rule, choices))}) {end}"
    if schema.get("type") in _JSON_TYPES:
        return f"{json_rule(dict(schema) | definitions, param=_PARAM)} {end}"
    return "text"


_FAMILIES: Final[Mapping[ToolParser | None, WriteCall]] = {
    json_tools.parse_tool_call: _json_call,
    qwen3_coder.parse_tool_call: _xml_call,
}
