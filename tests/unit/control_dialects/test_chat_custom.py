"""The input of a custom tool, as it comes out of the arguments that the model wrote: whole, in pieces, broken."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.chat_custom import InputReader, arguments_of, input_of


def in_pieces(arguments: str, cuts: list[int]) -> str:
    reader = InputReader()
    edges = [0, *sorted(cut % (len(arguments) + 1) for cut in cuts), len(arguments)]
    pieces = [arguments[begin:end] for begin, end in itertools.pairwise(edges)]
    return "".join(reader.push(piece) for piece in pieces) + reader.end()


@given(text=st.text(), cuts=st.lists(st.integers(0, 500), max_size=6), is_ascii=st.booleans())
def test_the_input_is_the_text_wherever_the_pieces_are_cut(text, cuts, is_ascii):
    arguments = json.dumps({"input": text}, ensure_ascii=is_ascii)

    assert in_pieces(arguments, cuts) == text


@given(arguments=st.text(alphabet='{}":input\\ud83dea\n '), cuts=st.lists(st.integers(0, 500), max_size=4))
def test_whatever_the_model_wrote_comes_out_the_same_in_pieces_and_can_be_sent(arguments, cuts):
    assert in_pieces(arguments, cuts) == input_of(arguments)
    input_of(arguments).encode()


@given(st.text())
def test_an_input_survives_the_way_into_history_and_back(text):
    assert input_of(arguments_of(text)) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "cut o', "cut o"),
        ('{"input": "cut \\u00', "cut "),
        ('{"input": "a\nb"}', "a\nb"),
        ('{"input": "\\ud83d"}', "\ufffd"),
        ('{"patch": "x"}', "x"),
        ('{"why": "y", "input": "x"}', "x"),
        ('{"n": 1}', '{"n": 1}'),
        ('"bare"', '"bare"'),
        ("no JSON", "no JSON"),
        ("{}", ""),
        ("", ""),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_call_in_another_form_has_the_input_that_can_be_found(arguments, text):
    assert input_of(arguments) == text


def test_text_comes_as_soon_as_it_is_certain():
    reader = InputReader()

    pieces = [reader.push(piece) for piece in ('{"inp', 'ut":"a', "b\\", "n\\ud83d", "\\ude00", 'c"}', "junk")]

    assert pieces == ["", "a", "b", "\n", "😀", "c", ""]
    assert reader.end() == ""
