"""What clients send to /v1/completions: understood, or refused by name."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.completions import parse_completions
from control.errors import InvalidRequest
from engine import wire


def parse(**fields):
    return parse_completions(msgspec.json.encode({"model": "demo", "prompt": "Once", **fields}), "id")


def refused(**fields) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Once", wire.Prompt(text="Once")),
        ("", wire.Prompt(text="")),
        (["Once"], wire.Prompt(text="Once")),
        ([1, 2, 3], wire.Prompt(tokens=(1, 2, 3))),
        ([7], wire.Prompt(tokens=(7,))),
        ([[1, 2]], wire.Prompt(tokens=(1, 2))),
    ],
)
def test_one_prompt_in_every_form(prompt, expected):
    assert parse(prompt=prompt).generate.prompt == expected


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        (None, "prompt"),
        ([], "prompt"),
        ([[]], "prompt"),
        (["a", "b"], "prompt"),
        ([[1], [2]], "prompt"),
        ([1, "a"], "prompt"),
        ([1, [2]], "prompt"),
        ([-1], "prompt[0]"),
        ([[1, 2**40]], "prompt[0][1]"),
        ([True], "prompt[0]"),
        ({"a": 1}, "prompt"),
        (3, "prompt"),
    ],
)
def test_anything_but_one_prompt_is_refused(prompt, field):
    assert refused(prompt=prompt).param == field


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "the end"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True, "logprobs": 0}, "echo"),
        ({"echo": True, "prompt": [1, 2]}, "echo"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stop": [str(n) for n in range(17)]}, "stop"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ],
)
def test_a_bad_field_is_named(fields, param):
    assert refused(**fields).param == param


@pytest.mark.parametrize(("sent", "expected"), [({}, 16), ({"max_tokens": None}, 16), ({"max_tokens": -1}, None)])
def test_without_a_limit_an_answer_is_as_short_as_openais(sent, expected):
    assert parse(**sent).generate.max_tokens == expected


def test_what_has_no_effect_here_is_ignored():
    ignored = {
        "best_of": 1,
        "n": 1,
        "suffix": "",
        "echo": False,
        "logprobs": None,
        "stream_options": None,
        "user": "u",
        "something": {"else": [1]},
    }

    assert parse(**ignored) == parse()


def test_sampling_and_stops_are_handed_on():
    asked = parse(temperature=0.5, top_p=0.9, seed=3, presence_penalty=1, logit_bias={"5": -1}, stop="END", logprobs=3)

    assert asked.generate.sampling == wire.Sampling(
        temperature=0.5, top_p=0.9, seed=3, presence_penalty=1, logit_bias={5: -1.0}, logprobs=3
    )
    assert asked.generate.stop == ("END",)


@pytest.mark.parametrize(
    ("engine_field", "field"),
    [
        ("prompt", "prompt"),
        ("prompt.text", "prompt"),
        ("prompt.tokens[3]", "prompt[3]"),
        ("sampling.logprobs", "logprobs"),
        ("sampling.logit_bias", "logit_bias"),
        ("stop[1]", "stop[1]"),
        ("id", None),
        ("request_class", None),
    ],
)
def test_a_field_of_the_engine_is_named_as_the_client_named_it(engine_field, field):
    assert parse().field(engine_field) == field


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"model":"m","prompt":' + b"[" * 100_000])
def test_what_is_not_a_json_object_is_refused(body):
    with pytest.raises(InvalidRequest):
        parse_completions(body, "id")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("model", "prompt", "stream", "stream_options", "max_tokens", "stop", "n", "best_of", "echo", "suffix")


@given(
    fields=st.dictionaries(st.sampled_from((*FIELDS, "logprobs", "logit_bias", "seed", "unknown")), JUNK, max_size=4)
)
def test_junk_in_any_field_is_understood_or_refused_never_a_crash(fields):
    try:
        exchange = parse(**fields)
    except InvalidRequest as error:
        assert str(error)
        return

    assert msgspec.json.decode(msgspec.json.encode(exchange.generate), type=wire.GenerateRequest) == exchange.generate
