"""A JSON value that arrives in pieces: what is passed on, when, and what is no JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.json_reader import JsonReader
from tests.unit.engine_text.outputs import cut

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
places = st.lists(st.integers(0, 300), max_size=30)


def read(pieces):
    reader = JsonReader()
    return "".join(reader.push(piece) for piece in pieces), reader


@given(
    values, st.booleans(), st.sampled_from([None, 0, 2]), places, st.sampled_from([" ", "}", ",x", "\n</tool_call>"])
)
def test_any_value_passes_as_it_was_written_however_it_was_cut(value, is_ascii, indent, at, behind):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)

    passed, reader = read(cut(text + behind, at))

    assert passed == text
    assert reader.is_complete
    assert reader.rest == behind


@given(values, st.integers(0, 300), places)
def test_what_has_passed_is_the_beginning_of_the_value_and_lags_behind_by_a_number_at_most(value, length, at):
    text = json.dumps(value)

    passed, reader = read(cut(text[:length], at))

    assert text.startswith(passed)
    assert not reader.is_broken
    assert len(reader.rest) < 400 and passed + reader.rest == text[:length]


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        *(("}", ""), ("x ", ""), ("NaN ", ""), ("01 ", ""), ("1. ", ""), ("+1 ", ""), ("'a'", ""), (",", "")),
        *(("[1,]", "[1,"), ("[,", "["), ("[1}", "[1"), ("[1 2", "[1 "), ('{"a" 1', '{"a" '), ('{"a"::', '{"a":')),
        *(('{"a":}', '{"a":'), ('{"a":1,}', '{"a":1,'), ("{1", "{"), ('{"a":True,', '{"a":'), ("[nul]", "[")),
        *((r'"\d"', '"'), (r'"\u12G4"', '"'), (r"""["it\'s"]""", '["it')),
    ],
)
def test_what_is_no_json_passes_up_to_the_mistake(text, passed):
    for at in ([], range(20)):
        found, reader = read(cut(text, at))

        assert (found, reader.is_broken, reader.is_complete) == (passed, True, False)
        assert reader.push('"') == ""


@pytest.mark.parametrize(
    ("written", "passed"),
    [
        ('"a\nb\tc\x01"', r'"a\nb\tc\u0001"'),
        (r'"\ud83d\ude42"', r'"\ud83d\ude42"'),
        (r'"\ud83d"', r'"\ufffd"'),
        (r'"\ud83dx"', r'"\ufffdx"'),
        (r'"\ud83d\n"', r'"\ufffd\n"'),
        (r'"\ud83d\u0041"', r'"\ufffd\u0041"'),
        (r'"\ud83d\ud83d\ude42"', r'"\ufffd\ud83d\ude42"'),
        (r'"\ude42"', r'"\ufffd"'),
        (r'"\\ud83d"', r'"\\ud83d"'),
    ],
)
def test_control_characters_are_escaped_and_half_a_pair_is_replaced(written, passed):
    for at in ([], range(40)):
        found, reader = read(cut(written, at))

        assert found == passed
        assert reader.is_complete
        json.loads(found).encode()


def test_a_string_passes_while_it_is_being_written():
    reader = JsonReader()

    assert [reader.push(piece) for piece in ('{"a": "lo', "ng", "er", '"', "}")] == ['{"a": "lo', "ng", "er", '"', "}"]
