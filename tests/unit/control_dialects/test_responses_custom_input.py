"""The input of a custom tool, out of JSON pieces that end anywhere."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.dialects.responses_custom import CustomInput


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


@given(st.text(alphabet='{}":\\ inputabuD83d0n', max_size=40), st.lists(st.integers(0, 100), max_size=5))
def test_whatever_the_model_writes_the_cuts_change_nothing_and_nothing_breaks(text: str, places: list[int]):
    text = '{"input":"' + text

    pieces = "".join(decoded(cut(text, places)))

    assert pieces == "".join(decoded([text]))
    pieces.encode()


def test_text_comes_as_soon_as_it_is_known():
    assert decoded(['{"inp', 'ut": "a', "b\\", "n\\ud83d", '\\ude00"', "}"]) == ["", "a", "b", "\n", "😀", "", ""]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('"just text"', '"just text"'),
        ('{"note": 1, "input": "x"}', "x"),
        ('{"input": 5}', '{"input": 5}'),
        ("", ""),
        ("{", "{"),
        ('{"input": "cut \\u00', "cut "),
        ('{"input": "half \\ud83d"}', "half \ufffd"),
        ('{"input": "half \\ud83dx"}', "half \ufffdx"),
        ('{"input": "two \\ud83d\\ud83d\\ude00"}', "two \ufffd😀"),
        ('{"input": "low \\ude00"}', "low \ufffd"),
        ('{"input": "no escape \\q \\uZZ"}', "no escape q \\uZZ"),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_arguments_of_another_form_are_not_lost(arguments: str, text: str):
    assert "".join(decoded([arguments])) == text
    assert "".join(decoded(list(arguments))) == text
