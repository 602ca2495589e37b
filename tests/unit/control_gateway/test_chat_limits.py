"""Bodies made to hurt: too deep, too many, not what they claim to be. Each is understood or refused, by name."""

import msgspec
import pytest

from control.dialects.chat import parse_chat
from control.dialects.chat_fields import client_field
from control.dialects.limits import ITEMS_LIMIT, MODEL_NAME_LIMIT, TOOLS_LIMIT
from control.dialects.nesting import NESTING_LIMIT, is_too_deep
from control.errors import InvalidRequest
from engine import wire

USER = {"role": "user", "content": "hi"}


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def body(messages: str = '[{"role":"user","content":"hi"}]', **fields: str) -> bytes:
    """Of texts: what is too deep to be encoded is too deep to be made by an encoder."""
    more = "".join(f',"{name}":{text}' for name, text in fields.items())
    return f'{{"model":"demo","messages":{messages}{more}}}'.encode()


def called_with(arguments: str) -> str:
    return f'[{{"role":"assistant","tool_calls":[{{"function":{{"name":"look","arguments":{arguments}}}}}]}}]'


def refused(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_chat(body, "id")
    return caught.value


@pytest.mark.parametrize("arguments", ["[" * 100_000, nested(5000), nested(NESTING_LIMIT + 1), '{"a":' * 100_000])
def test_earlier_arguments_that_are_too_deep_stay_text(arguments):
    exchange = parse_chat(body(called_with(msgspec.json.encode(arguments).decode())), "id")

    [call] = exchange.generate.prompt.messages[0].tool_calls
    assert (call.arguments_raw, call.arguments) == (arguments, None)
    assert msgspec.json.decode(msgspec.json.encode(exchange.generate), type=wire.GenerateRequest) == exchange.generate


@pytest.mark.parametrize("depth", [NESTING_LIMIT + 1, 900, 5000, 100_000])
@pytest.mark.parametrize(
    ("make", "param"),
    [
        (lambda deep: body(chat_template_kwargs=deep), "chat_template_kwargs"),
        (
            lambda deep: body(tools=f'[{{"function":{{"name":"f","parameters":{deep}}}}}]'),
            "tools[0].function.parameters",
        ),
        (lambda deep: body(called_with(deep)), "messages[0].tool_calls[0].function.arguments"),
        (
            lambda deep: body(response_format=f'{{"type":"json_schema","json_schema":{{"schema":{deep}}}}}'),
            "response_format.json_schema.schema",
        ),
        (lambda deep: body(functions=f'[{{"name":"f","parameters":{deep}}}]'), "functions[0].parameters"),
    ],
)
def test_what_is_handed_on_and_too_deep_is_refused(make, param, depth):
    error = refused(make(nested(depth)))

    assert error.status == 400
    # Deeper than the decoder itself goes, it can't tell where.
    assert error.param == (param if depth < 1000 else None)


@pytest.mark.parametrize("depth", [500, 900, 5000, 100_000])
@pytest.mark.parametrize(
    "make",
    [
        lambda deep: body(response_format=f'{{"type":{deep}}}'),
        lambda deep: body(tool_choice=f'{{"type":"function","function":{{"name":{deep}}}}}'),
        lambda deep: body(f'[{{"role":"user","content":[{{"type":{deep}}}]}}]'),
        lambda deep: body(f'[{{"role":{deep}}}]'),
    ],
)
def test_what_is_refused_anyway_may_be_as_deep_as_it_likes(make, depth):
    assert refused(make(nested(depth))).status == 400


def test_as_deep_as_is_allowed_passes_as_it_is():
    exchange = parse_chat(body(chat_template_kwargs=nested(NESTING_LIMIT)), "id")

    assert exchange.generate.prompt.template_arguments == msgspec.json.decode(nested(NESTING_LIMIT))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", False),
        ([], False),
        ([[]] * 3, False),
        (msgspec.json.decode("[" * NESTING_LIMIT + "]" * NESTING_LIMIT), False),
        (msgspec.json.decode("[" * (NESTING_LIMIT + 1) + "]" * (NESTING_LIMIT + 1)), True),
        ({"a": [1, msgspec.json.decode(nested(NESTING_LIMIT))]}, True),
    ],
)
def test_depth_is_counted_in_objects_and_lists(value, expected):
    assert is_too_deep(value) is expected


@pytest.mark.parametrize(
    "url",
    ["data:image/png;base64,é", "data:image/png;base64,\u4f60", "data:image/png;base64,a\x00b=", "data:image/é,a"],
)
def test_an_image_in_letters_that_are_no_base64_is_refused(url):
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}

    error = refused(msgspec.json.encode({"model": "demo", "messages": [message]}))

    assert error.param == "messages[0].content[0].image_url"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [USER] * (ITEMS_LIMIT + 1)}, "messages"),
        ({"messages": [{"role": "user", "content": ["a"] * ITEMS_LIMIT}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}] * ITEMS_LIMIT}]}, "messages"),
        ({"tools": [{"function": {"name": "f"}}] * (TOOLS_LIMIT + 1)}, "tools"),
        (
            {
                "tools": [{"function": {"name": "f"}}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "f"}}] * (TOOLS_LIMIT + 1)},
                },
            },
            "tool_choice",
        ),
        ({"model": "m" * (MODEL_NAME_LIMIT + 1)}, "model"),
    ],
)
def test_too_many_of_anything_is_refused(fields, param):
    error = refused(msgspec.json.encode({"model": "demo", "messages": [USER], **fields}))

    assert (error.status, error.param) == (400, param)


@pytest.mark.parametrize(
    ("engine_field", "field"),
    [
        ("prompt.template_arguments.messages", "chat_template_kwargs.messages"),
        ("prompt.template_arguments", "chat_template_kwargs"),
        ("prompt.effort", "reasoning_effort"),
        ("prompt.messages[1].content[0]", "messages[1].content[0]"),
        ("prompt.messages[1].reasoning", "messages[1].reasoning_content"),
        ("prompt.messages[1].tool_calls[0].name", "messages[1].tool_calls[0].function.name"),
        ("prompt.messages[1].tool_calls[0].arguments", "messages[1].tool_calls[0].function.arguments"),
        ("prompt.messages[1].tool_calls[0].arguments_raw", "messages[1].tool_calls[0].function.arguments"),
        ("prompt.tools[2].parameters", "tools[2].function.parameters"),
        ("prompt.tool_choice.name", "tool_choice.function.name"),
        ("prompt.tool_choice", "tool_choice"),
        ("prompt", "messages"),
        ("sampling.logit_bias", "logit_bias"),
        ("sampling.logprobs", "top_logprobs"),
        ("grammar", "response_format"),
        ("grammar.schema", "response_format"),
        ("max_tokens", "max_tokens"),
        ("stop[3]", "stop[3]"),
        ("id", None),
        ("request_class", None),
    ],
)
def test_a_field_of_the_engine_is_named_as_the_client_named_it(engine_field, field):
    assert client_field(engine_field) == field
