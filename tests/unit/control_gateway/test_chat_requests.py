"""What clients really send to /v1/chat/completions, variant by variant: understood, or refused by name."""

import base64
import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.chat import parse_chat
from control.errors import InvalidRequest
from engine import wire

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
PIXEL = base64.b64encode(b"not really a picture").decode()
PIXEL_URL = f"data:image/png;base64,{PIXEL}"


def parse(messages=(USER,), **fields):
    return parse_chat(msgspec.json.encode({"model": "demo", "messages": list(messages), **fields}), "id")


def prompt(messages=(USER,), **fields) -> wire.Prompt:
    return parse(messages, **fields).generate.prompt


def refused(body) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_chat(body if isinstance(body, bytes) else msgspec.json.encode(body), "id")
    return caught.value


def text(*texts) -> tuple[wire.TextPart, ...]:
    return tuple(wire.TextPart(text=each) for each in texts)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("hi", text("hi")),
        (None, ()),
        ("", ()),
        ([], ()),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {}}], text("a", "b")),
        (["plain"], text("plain")),
        ([{"type": "refusal", "refusal": "no"}], text("no")),
    ],
)
def test_content_in_every_form(content, parts):
    assert prompt([{"role": "user", "content": content}]).messages[0].content == parts


@pytest.mark.parametrize("image_url", [PIXEL_URL, {"url": PIXEL_URL, "detail": "high"}])
def test_an_image_is_known_by_the_hash_of_its_bytes(image_url):
    [image] = prompt([{"role": "user", "content": [{"type": "image_url", "image_url": image_url}]}]).messages[0].content

    assert image.sha256 == hashlib.sha256(b"not really a picture").hexdigest()
    assert (image.media_type, image.data) == ("image/png", PIXEL)


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"type": "image_url", "image_url": "https://example.com/a.png"}, "image_url"),
        ({"type": "image_url", "image_url": "data:image/png;base64,!!"}, "image_url"),
        ({"type": "image_url"}, "image_url"),
        ({"type": "file", "file": {}}, "type"),
        ({"type": "input_audio", "input_audio": {}}, "type"),
        ({"type": "text", "text": 3}, "text"),
        ({}, "type"),
    ],
)
def test_a_part_that_is_not_understood_is_named(part, field):
    error = refused({"model": "m", "messages": [USER, {"role": "user", "content": ["x", part]}]})

    assert error.param == f"messages[1].content[1].{field}"


def test_roles_keep_their_place_and_developer_is_system():
    roles = ["system", "user", "user", "developer", "assistant", "user"]

    messages = prompt([{"role": role, "content": "x"} for role in roles]).messages

    assert [message.role for message in messages] == ["system", "user", "user", "system", "assistant", "user"]


@pytest.mark.parametrize(
    ("arguments", "raw", "parsed"),
    [
        ('{"at": 1}', '{"at": 1}', {"at": 1}),
        ({"at": 1}, '{"at":1}', {"at": 1}),
        ("", "{}", {}),
        (None, "{}", {}),
        ({}, "{}", {}),
        ('{"value": ', '{"value": ', None),
        ("[1]", "[1]", None),
    ],
)
def test_earlier_tool_calls_are_replayed_as_they_were(arguments, raw, parsed):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}

    [_, message] = prompt([USER, {"role": "assistant", "content": None, "tool_calls": [call]}]).messages

    assert message.content == ()
    assert message.tool_calls == (wire.ToolCall(id="c", name="look", arguments_raw=raw, arguments=parsed),)


@pytest.mark.parametrize("message", [{"role": "assistant"}, {"role": "assistant", "content": "", "tool_calls": None}])
def test_an_assistant_message_may_be_empty(message):
    assert prompt([USER, message]).messages[1] == wire.Message(role="assistant")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_earlier_reasoning_comes_under_both_names(field):
    assert prompt([USER, {"role": "assistant", "content": "x", field: "so"}]).messages[1].reasoning == "so"


@pytest.mark.parametrize("content", ["42", [{"type": "text", "text": "42"}]])
@pytest.mark.parametrize("ids", [{}, {"tool_call_id": "chatcmpl-tool-1"}])
def test_tool_results_come_as_text_or_parts_with_or_without_an_id(content, ids):
    message = prompt([USER, {"role": "tool", "content": content, **ids}]).messages[1]

    assert (message.role, message.content, message.tool_call_id) == ("tool", text("42"), ids.get("tool_call_id"))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, wire.ToolChoice()),
        ("auto", wire.ToolChoice()),
        ("none", wire.ToolChoice(mode="none")),
        ("required", wire.ToolChoice(mode="required")),
        ({"type": "function", "function": {"name": "look"}}, wire.ToolChoice(mode="named", name="look")),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}},
            wire.ToolChoice(mode="required"),
        ),
    ],
)
def test_tool_choice_in_every_form(choice, expected):
    asked = prompt(tools=[TOOL], tool_choice=choice)

    assert asked.tool_choice == expected
    assert asked.tools == (wire.Tool(name="look", description="d", parameters={"type": "object"}),)


def test_allowed_tools_leaves_the_others_out():
    other = {"function": {"name": "other", "strict": "true"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [other]}}

    assert prompt(tools=[TOOL, other], tool_choice=choice).tools == (wire.Tool(name="other", strict=True),)


def test_one_call_at_a_time_is_handed_on():
    assert prompt(tools=[TOOL], parallel_tool_calls=False).tool_choice == wire.ToolChoice(parallel=False)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": -1}, None),
        ({"max_tokens": None}, None),
    ],
)
def test_the_limit_of_tokens_under_both_names(fields, expected):
    assert parse(**fields).generate.max_tokens == expected


@pytest.mark.parametrize(
    ("stop", "expected"), [(None, ()), ("END", ("END",)), (["a", "b"], ("a", "b")), ("", ()), ([], ())]
)
def test_stop_in_every_form(stop, expected):
    assert parse(stop=stop).generate.stop == expected


def test_sampling_is_handed_on_whole():
    fields = {
        "temperature": 0,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": -1,
        "frequency_penalty": 1,
        "seed": -3,
    }

    sampling = parse(**fields, top_k=-1, logit_bias={"12": -100}, logprobs=True, top_logprobs=5).generate.sampling

    assert sampling == wire.Sampling(**fields, top_k=0, logit_bias={12: -100.0}, logprobs=5)


def test_logprobs_without_a_number_reports_the_token_alone():
    assert parse(logprobs=True).generate.sampling.logprobs == 0
    assert parse(logprobs=False).generate.sampling.logprobs is None


def test_what_has_no_effect_here_is_ignored():
    ignored = {
        "user": "u",
        "metadata": {},
        "store": True,
        "service_tier": "flex",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "verbosity": "low",
        "reasoning_effort": "extreme",
        "modalities": ["text"],
        "response_format": {"type": "text"},
        "stream_options": None,
        "n": 1,
        "something": {"else": [1]},
    }

    assert parse(**ignored) == parse()


def test_effort_and_template_arguments_are_handed_on():
    asked = prompt(reasoning_effort="high", chat_template_kwargs={"enable_thinking": False})

    assert (asked.effort, asked.template_arguments) == ("high", {"enable_thinking": False})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"model": 3}, "model"),
        ({"model": None}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_completion_tokens": "many"}, "max_completion_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": 0}, "top_p"),
        ({"seed": 2**70}, "seed"),
        ({"stop": 3}, "stop"),
        ({"stop": [str(n) for n in range(17)]}, "stop"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tools": [{"type": "custom", "custom": {"name": ""}}]}, "tools[0].custom.name"),
        ({"tools": [{"type": 3}]}, "tools[0].type"),
        ({"tools": [None]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "custom", "custom": {"name": "x"}}}, "tool_choice.custom.name"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice.function.name"),
        ({"functions": [{"name": ""}]}, "functions[0].name"),
        ({"functions": [{"name": "f"}], "function_call": "sometimes"}, "function_call"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call"),
        ({"functions": [{"name": "f"}], "tools": [TOOL]}, "functions"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"strict": "true"}}},
            "response_format.json_schema.schema",
        ),
        ({"modalities": ["text", "audio"]}, "modalities"),
    ],
)
def test_a_bad_field_is_named(fields, param):
    error = refused({"model": "demo", "messages": [USER], **fields})

    assert error.param == param
    assert error.status == 400


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_field_is_named(missing):
    body = {"model": "demo", "messages": [USER]}
    del body[missing]

    assert refused(body).param == missing


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'"text"', b'{"model": "\xff"}', b"[" * 100_000])
def test_what_is_not_a_json_object_is_refused(body):
    assert refused(body).status == 400


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    [
        "messages",
        "stream",
        "stop",
        "tools",
        "tool_choice",
        "response_format",
        "logit_bias",
        "modalities",
        "function_call",
    ]
)
MESSAGE_FIELDS = st.sampled_from(["role", "content", "tool_calls", "name", "reasoning", "tool_call_id"])


@given(field=FIELDS, message_field=MESSAGE_FIELDS, junk=JUNK)
def test_junk_in_any_field_is_understood_or_refused_never_a_crash(field, message_field, junk):
    for body in (
        {"model": "demo", "messages": [USER], field: junk},
        {"model": "demo", "messages": [{**USER, message_field: junk}]},
        {"model": "demo", "messages": [{"role": "user", "content": [junk]}], "tools": [junk]},
    ):
        try:
            parse_chat(msgspec.json.encode(body), "id")
        except InvalidRequest as error:
            assert str(error)
