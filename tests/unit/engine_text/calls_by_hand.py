"""What the tests of tool calls share: tools, the parsers of the families, and how calls are written and played."""

import json

from mlx_lm.tool_parsers import json_tools, mistral, qwen3_coder

from engine.text.markup import ANSWER, CALL, Marker, Markup
from tests.unit.engine_text.outputs import Played, cut

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write",
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "count": {"type": "integer"},
                    "size": {"type": "number"},
                    "force": {"type": "boolean"},
                    "list": {"type": "array"},
                    "map": {"type": "object"},
                    "maybe": {"type": ["string", "null"]},
                    "any": {"description": "of no type"},
                    "all": True,
                },
            },
        },
    }
]
JSON = json_tools.parse_tool_call
XML = qwen3_coder.parse_tool_call
MISTRAL = mistral.parse_tool_call
MISTRAL_MARKUP = Markup(markers={ANSWER: (Marker("[TOOL_CALLS]", CALL),), CALL: ()}, call_start="[TOOL_CALLS]")


def play(text, at=(), *, parser, **how):
    return Played(cut(text, at) if text else [], parser=parser, tools=TOOLS, **how)


def tagged(*bodies):
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def function(name, *parameters, end="</function>"):
    return f"<function={name}>\n" + "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in parameters) + end


def arguments(played):
    return [(name, json.loads(joined)) for _, name, joined in played.calls]
