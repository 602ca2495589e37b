"""The input of a custom tool, out of the arguments that a model wrote: whole, in pieces that end anywhere, broken."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.custom_input import CustomInput, arguments_of, input_of


def decoded(pieces: list[str]) -> list[str]:
    custom = CustomInput()
    return [*map(custom.feed, pieces), custom.finish()]


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@given(st.text(), st.booleans(), st.lists(st.integers(0, 10_000), max_size=8))
def test_the_text_comes_out_wherever_the_pieces_end(text: str, is_ascii: bool, places: list[int]):
    arguments = json.dumps({"input": text}, ensure_ascii=is_ascii)

    assert "".join(decoded(cut(arguments, places))) == text


@given(st.text())
def test_it_comes_out_a_character_at_a_time(text: str):
    assert "".join(decoded(list(json.dumps({"input": text})))) == text


@given(st.text())
def test_an_input_survives_the_way_into_history_and_back(text: str):
    assert input_of(arguments_of(text)) == text


@given(
    st.sampled_from(['{"input":"', ""]),
    st.text(alphabet='{}":\\ inputabuD83d0e\n', max_size=40),
    st.lists(st.integers(0, 100), max_size=5),
)
def test_whatever_the_model_writes_the_cuts_change_nothing_and_it_can_be_sent(head: str, text: str, places: list[int]):
    pieces = "".join(decoded(cut(head + text, places)))

    assert pieces == input_of(head + text)
    pieces.encode()


def test_text_comes_as_soon_as_it_is_known():
    pieces = ['{"inp', 'ut":"a', "b\\", "n\\ud83d", "\\ude00", 'c"}', "junk"]

    assert decoded(pieces) == ["", "a", "b", "\n", "😀", "c", "", ""]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"patch": "x"}', "x"),
        ('{"patch": "x", "path": "y"}', '{"patch": "x", "path": "y"}'),
        ('"just text"', '"just text"'),
        ('{"note": "n", "input": "x"}', "x"),
        ('{"input": 5}', '{"input": 5}'),
        ("{}", ""),
        ("", ""),
        ("{", "{"),
        ('{"input": "cut o', "cut o"),
        ('{"input": "cut \\u00', "cut "),
        ('{"input": "a\nb"}', "a\nb"),
        ('{"input": "\\ud83d"}', "\ufffd"),
        ('{"input": "half \\ud83dx"}', "half \ufffdx"),
        ('{"input": "two \\ud83d\\ud83d\\ude00"}', "two \ufffd😀"),
        ('{"input": "low \\ude00"}', "low \ufffd"),
        ('{"input": "no escape \\q \\uZZ"}', "no escape q \\uZZ"),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_a_call_in_another_form_has_the_input_that_can_be_found(arguments: str, text: str):
    assert "".join(decoded([arguments])) == text
    assert "".join(decoded(list(arguments))) == text
