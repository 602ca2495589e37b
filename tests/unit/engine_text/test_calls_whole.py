"""Tool calls that are read as they are written, with mlx-lm's parsers, which read them whole, as the judge."""

import json

from hypothesis import given
from hypothesis import strategies as st

from engine.request import Finish
from engine.text.markup import ANSWER, THOUGHT
from engine.text.tool_calls import parse_calls
from engine.wire import ToolCallBegin, ToolCallDelta, ToolCallEnd
from tests.unit.engine_text.calls_by_hand import (
    JSON,
    MISTRAL,
    MISTRAL_MARKUP,
    TOOLS,
    XML,
    arguments,
    function,
    play,
    tagged,
)

texts = st.text(max_size=12) | st.sampled_from(
    [
        '"',
        "\\",
        "}",
        "</tool_call>",
        "</think>",
        "null",
        "\n",
        "\n\n",
        "</parameter",
        "</function>",
        "🙂é",
        "<parameter=",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
places = st.lists(st.integers(0, 300), max_size=60)
names = st.sampled_from(["write", "other", "a.b-c"])


def has_marker(text):
    """Within a thought, and before its name is known, a call ends there."""
    return "</tool_call>" in text or "</think>" in text


@st.composite
def json_bodies(draw):
    call = {"name": draw(names)}
    given_arguments = draw(st.dictionaries(texts, values, max_size=3))
    if draw(st.booleans()):
        key = draw(st.sampled_from(["arguments", "parameters"]))
        call[key] = draw(st.sampled_from([given_arguments, json.dumps(given_arguments)]))
    if draw(st.booleans()):
        call["id"] = draw(values)
    order = list(call) if has_marker(json.dumps(call)) else draw(st.permutations(list(call)))
    is_ascii, indent = draw(st.booleans()), draw(st.sampled_from([None, 1]))
    return json.dumps({key: call[key] for key in order}, ensure_ascii=is_ascii, indent=indent)


@st.composite
def xml_bodies(draw):
    keys = draw(st.lists(st.sampled_from(["text", "count", "force", "list", "map", "any", "unknown"]), max_size=4))
    raw = texts.filter(lambda text: "</parameter>" not in text and "<tool_call" not in text)
    parameters = [(key, draw(raw | values.map(json.dumps))) for key in keys]
    return function(draw(st.sampled_from(["write", "other"])), *parameters)


def judged(body, parser):
    return [(call.name, json.loads(call.arguments)) for call in parse_calls(body, parser, TOOLS)]


@given(json_bodies(), places, st.sampled_from([ANSWER, THOUGHT]))
def test_calls_in_json_are_what_mlx_lm_makes_of_the_whole_text(body, at, state):
    played = play(tagged(body), at, parser=JSON, state=ANSWER if has_marker(body) else state)

    assert arguments(played) == judged(body, JSON)
    assert (played.text, played.thought, played.finish) == ("", "", Finish("tool_calls"))


@given(xml_bodies(), places, st.sampled_from([ANSWER, THOUGHT]))
def test_calls_in_xml_are_what_mlx_lm_makes_of_the_whole_text(body, at, state):
    judgement = judged(body, XML)
    played = play(tagged(body), at, parser=XML, state=state if judgement and not has_marker(body) else ANSWER)

    assert not judgement or arguments(played) == judgement
    assert isinstance(json.loads(played.calls[0][2]), dict)
    assert (played.text, played.thought, len(played.calls)) == ("", "", 1)


@given(
    st.lists(
        st.tuples(names.filter(lambda n: "." not in n), st.dictionaries(texts, values, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    places,
)
def test_calls_with_names_before_arguments_are_what_mlx_lm_makes_of_the_whole_text(calls, at):
    body = "".join(f"{name}[ARGS]{json.dumps(given)}" for name, given in calls)

    played = play("[TOOL_CALLS]" + body, at, parser=MISTRAL, markup=MISTRAL_MARKUP)

    assert arguments(played) == judged(body, MISTRAL) == calls


@given(
    st.one_of(json_bodies().map(lambda b: (JSON, b)), xml_bodies().map(lambda b: (XML, b))), st.integers(1, 300), places
)
def test_a_call_that_is_cut_off_has_a_beginning_of_its_arguments_and_never_more(call, length, at):
    parser, body = call
    text = tagged(body)
    (whole,) = play(text, parser=parser).calls

    played = play(text[:length], at, parser=parser, ends_by_itself=False)

    assert played.finish == Finish("length")
    if played.calls:
        assert played.text == ""
        assert whole[2].startswith(played.calls[0][2])
        assert isinstance(played.events[-1], ToolCallEnd)
    else:
        assert played.text.strip("\n") in text


@given(
    st.sampled_from([JSON, XML]),
    st.lists(
        st.sampled_from(
            [
                '{"name": "write"',
                ', "arguments": {',
                '"text": ',
                '"a',
                '"',
                "}",
                "}}",
                "<function=write>",
                "</function>",
                "<parameter=text>",
                "</parameter>",
                "<tool_call>",
                "</tool_call>",
                "</think>",
                "\n",
                "word",
                "null",
                "🙂",
            ]
        ),
        max_size=16,
    ).map("".join),
    places,
    st.sampled_from([ANSWER, THOUGHT]),
    st.booleans(),
    st.booleans(),
)
def test_whatever_a_model_writes_the_events_are_in_order_and_do_not_depend_on_the_cuts(
    parser, text, at, state, ends_by_itself, parallel
):
    how = {"parser": parser, "state": state, "ends_by_itself": ends_by_itself, "parallel": parallel}

    whole, pieces = play(text, **how), play(text, at, **how)

    assert (pieces.text, pieces.thought, pieces.calls) == (whole.text, whole.thought, whole.calls)
    assert (pieces.order, pieces.finish) == (whole.order, whole.finish)
    of_calls = [event for event in pieces.events if isinstance(event, ToolCallBegin | ToolCallDelta | ToolCallEnd)]
    for index in range(len(pieces.calls)):
        kinds = [type(event) for event in of_calls if event.index == index]
        assert kinds[0] is ToolCallBegin
        assert kinds[-1] is ToolCallEnd
        assert set(kinds[1:-1]) <= {ToolCallDelta}
    assert [event.index for event in of_calls] == sorted(event.index for event in of_calls)
