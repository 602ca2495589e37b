"""What is read where only the message of an error is shown: which field is wrong, and what it should be."""

import json

import pytest

from control.dialects.chat import parse_chat
from control.dialects.completions import parse_completions
from control.dialects.error_answers import anthropic_error, openai_error
from control.dialects.messages import parse_count, parse_messages
from control.dialects.response_history import ResponseHistory
from control.dialects.responses import parse_responses
from control.errors import ApiError, ContextTooLong, InvalidRequest, UnknownModel

QUESTION = [{"role": "user", "content": "a"}]
VALID = {
    "chat": {"model": "m", "messages": QUESTION},
    "completions": {"model": "m", "prompt": "a"},
    "messages": {"model": "m", "messages": QUESTION, "max_tokens": 3},
    "count": {"model": "m", "messages": QUESTION},
    "responses": {"model": "m", "input": "a"},
}


def said(dialect, **fields) -> tuple[str, str | None]:
    """The message that the client is shown, and what `param` says."""
    history = ResponseHistory().of(1)
    parse = {
        "chat": parse_chat,
        "completions": parse_completions,
        "messages": parse_messages,
        "count": parse_count,
        "responses": lambda body, request_id: parse_responses(body, request_id, history=history),
    }[dialect]
    body = {key: value for key, value in (VALID[dialect] | fields).items() if value != "missing"}
    with pytest.raises(ApiError) as refused:
        parse(json.dumps(body).encode(), "id")
    shape = anthropic_error(refused.value, "id") if dialect in ("messages", "count") else openai_error(refused.value)
    return shape["error"]["message"], refused.value.param


@pytest.mark.parametrize("dialect", VALID)
def test_a_missing_field_is_named_in_the_sentence(dialect):
    assert said(dialect, model="missing") == ("model: this field is required.", "model")


@pytest.mark.parametrize("dialect", [name for name in VALID if name != "count"])
def test_a_number_out_of_its_range_is_named_with_the_range(dialect):
    most = "1.0" if dialect == "messages" else "2.0"

    assert said(dialect, temperature=3) == (f"temperature: expected a number of at most {most}.", "temperature")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"top_p": 0}, "top_p: expected a number above 0.0."),
        ({"max_tokens": "3"}, "max_tokens: expected an integer or null, got a text."),
        ({"messages": []}, "messages: expected a list with a length of at least 1."),
        ({"messages": [{"content": "a"}]}, "messages[0].role: this field is required."),
        ({"stop": {}}, "stop: expected a text or a list or null, got an object."),
        ({"stream": 1}, "stream: expected true or false or null, got an integer."),
        ({"tools": [3]}, "tools[0]: A tool is an object with a type."),
        ({"stop": ["x" * 1025]}, "stop: A stop sequence has at most 1024 characters."),
        ({"n": 2}, "n: Only one choice (n = 1) is supported."),
        ({"logit_bias": {"a": 1}}, "The keys of logit_bias are token ids."),
    ],
)
def test_what_is_wrong_is_said_in_words_behind_the_field(fields, message):
    assert said("chat", **fields)[0] == message


def test_a_field_that_the_sentence_names_is_named_once():
    error = InvalidRequest("max_tokens must be at least 1.", param="max_tokens")

    assert openai_error(error)["error"]["message"] == "max_tokens must be at least 1."


@pytest.mark.parametrize(
    "error", [ContextTooLong(prompt_tokens=9, maximum_context_tokens=8, param="messages"), UnknownModel("a")]
)
def test_sentences_that_clients_look_for_stay_as_they_are(error):
    assert openai_error(error)["error"]["message"] == str(error)
