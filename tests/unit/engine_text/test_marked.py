"""Cutting text with its marks, and finding markers in it: the two tools that the output is built on."""

from engine.text.marked import Mark, MarkedText, num_withheld
from engine.text.markup import Marker, Markup, Splitter
from engine.wire import TokenLogprob


def mark(end, token):
    return Mark(end, TokenLogprob(token=token, bytes=(), logprob=0.0))


def tokens(piece):
    return [logprob.token for logprob in piece.logprobs]


def test_a_mark_goes_with_the_character_where_its_token_ends():
    whole = MarkedText("abcd", [mark(2, "ab"), mark(4, "cd")])

    first = whole.take(2)

    assert (first.text, tokens(first)) == ("ab", ["ab"])
    assert (whole.text, tokens(whole)) == ("cd", ["cd"])


def test_a_token_that_is_cut_through_goes_with_its_end():
    whole = MarkedText("abcd", [mark(3, "abc"), mark(4, "d")])

    first = whole.take(2)

    assert (first.text, tokens(first)) == ("ab", [])
    assert [one.end for one in whole.marks] == [1, 2]


def test_appended_text_brings_its_marks_to_their_new_place():
    whole = MarkedText("ab", [mark(2, "ab")])

    whole.append(MarkedText("c", [mark(1, "c")]))

    assert [one.end for one in whole.marks] == [2, 3]


def test_the_longest_end_that_may_begin_a_pattern_is_withheld():
    assert num_withheld("one S", ("STOP",)) == 1
    assert num_withheld("one STO", ("STOP",)) == 3
    assert num_withheld("aab", ("abc", "bx")) == 2
    assert num_withheld("one", ("STOP",)) == 0
    assert num_withheld("", ("STOP",)) == 0


def test_of_two_markers_that_overlap_the_one_that_is_complete_first_counts():
    markup = Markup(markers={"normal": (Marker("<abc>", "long"), Marker("b", "short"))})

    at_once, in_pieces = Splitter(markup, "normal"), Splitter(markup, "normal")
    at_once.push(MarkedText("<abc>"))
    in_pieces.push(MarkedText("<ab"))

    assert at_once.next().ended_by.next_state == in_pieces.next().ended_by.next_state == "short"
