"""Which reader reads the calls of a model: told by the parser that mlx-lm chose for it.

It reads nothing itself. A family without a reader of its own is read whole, at the end of each call.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mlx_lm.tool_parsers import json_tools, mistral, qwen3_coder

from engine.text.call_reader import CallReader
from engine.text.json_calls import JsonObjectCalls, NamedArgumentsCalls
from engine.text.tool_calls import ToolParser
from engine.text.xml_calls import XmlCalls

_READERS: Final[Mapping[ToolParser, type[CallReader]]] = {
    json_tools.parse_tool_call: JsonObjectCalls,
    mistral.parse_tool_call: NamedArgumentsCalls,
    qwen3_coder.parse_tool_call: XmlCalls,
}


def new_reader(parser: ToolParser, tools: Sequence[dict[str, Any]]) -> CallReader:
    return _READERS.get(parser, CallReader)(parser, tools)
