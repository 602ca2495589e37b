"""Tokens into events: thoughts, calls, stop strings, log-probabilities, and the end of a text. Not the tokenizers."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.request import Finish, SampledToken
from engine.text.markup import ANSWER, THOUGHT, Marker, Markup
from engine.wire import ReasoningDelta, TextDelta
from tests.unit.engine_text.outputs import END, MARKUP, Played, cut, make_output

CALL_TEXT = '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'


def test_text_without_markup_comes_out_as_it_went_in():
    played = Played(["Hel", "lo,\n", " world", "\n"])

    assert played.text == "Hello,\n world\n"
    assert played.finish == Finish("stop")


def test_each_token_is_an_event_when_nothing_has_to_be_withheld():
    output = make_output(["a ", "b "])

    first = output.push(SampledToken(0))
    second = output.push(SampledToken(1))

    assert first == [TextDelta(text="a ")]
    assert second == [TextDelta(text="b ")]


def test_a_thought_and_the_answer_after_it_are_told_apart():
    played = Played(["<think>", "\nhm", "m\n", "</think>", "\n\n", "Yes"])

    assert played.thought == "hmm"
    assert played.text == "Yes"


def test_a_prompt_that_ends_in_an_open_thought_starts_in_the_thought():
    played = Played(["hm", "m</thi", "nk>Yes"], state=THOUGHT)

    assert played.thought == "hmm"
    assert played.text == "Yes"


def test_a_thought_that_is_cut_off_keeps_its_last_characters():
    played = Played(["hmm\n", "</thi"], state=THOUGHT, ends_by_itself=False)

    assert played.thought == "hmm\n</thi"
    assert played.finish == Finish("length")


def test_a_thought_that_is_cut_off_keeps_the_newline_at_its_end():
    played = Played(["hmm", "\n"], state=THOUGHT, ends_by_itself=False)

    assert played.thought == "hmm\n"


def test_reasoning_tokens_are_those_of_the_thought_and_its_markers():
    played = Played(["<think>", "a", "b", "</think>", "c", "d"])

    assert played.output.reasoning_tokens == 4


def test_a_tool_call_becomes_begin_arguments_end():
    played = Played(["Let me see.\n", *cut(CALL_TEXT, range(0, 200, 7))])

    assert played.order == ["TextDelta", "ToolCallBegin", "ToolCallDelta", "ToolCallEnd"]
    assert played.calls == [("call_0", "weather", '{"city": "Köln"}')]
    assert played.finish == Finish("tool_calls")


def test_parallel_calls_are_counted_and_the_newline_between_them_is_not_text():
    played = Played([CALL_TEXT, "\n", CALL_TEXT])

    assert [call[:2] for call in played.calls] == [("call_0", "weather"), ("call_1", "weather")]
    assert played.text == ""


def test_a_client_that_wants_one_call_gets_one_and_the_output_is_complete_there():
    played = Played([CALL_TEXT, CALL_TEXT], parallel=False)

    assert len(played.calls) == 1
    assert played.num_pushed == 1
    assert played.finish == Finish("tool_calls")


def test_the_one_call_comes_out_even_behind_withheld_text():
    played = Played(["now\n", CALL_TEXT], stops=["\n\n"], parallel=False)

    assert played.text == "now\n"
    assert len(played.calls) == 1


def test_a_call_that_does_not_parse_is_given_out_as_text():
    played = Played(["See ", "<tool_call>", "{bad", "</tool_call>", " ok"])

    assert played.text == "See <tool_call>{bad</tool_call> ok"
    assert played.calls == []
    assert played.finish == Finish("stop")


def test_a_call_from_within_an_unclosed_thought_ends_the_thought():
    played = Played(["let me look\n", CALL_TEXT, "Done"], state=THOUGHT)

    assert played.thought == "let me look"
    assert len(played.calls) == 1
    assert played.text == "Done"


@pytest.mark.parametrize(
    ("pieces", "num_calls", "text"),
    [
        ([CALL_TEXT, "\n</think>\n\nDone"], 1, "Done"),
        ([CALL_TEXT, CALL_TEXT, "</think>", "Done"], 2, "Done"),
        ([CALL_TEXT, "so ", "</think>", "Done"], 1, "so Done"),
        ([CALL_TEXT, "</think>", "a</think>b"], 1, "a</think>b"),
        ([CALL_TEXT, "<think>again</think>", "Done"], 1, "Done"),
        ([CALL_TEXT, "<tool_call>{bad</tool_call>", "</think>", "Done"], 1, "<tool_call>{bad</tool_call>Done"),
        ([CALL_TEXT, "<tool_call>{bad", "</think>", "Done"], 1, "<tool_call>{badDone"),
        ([CALL_TEXT, "</think>"], 1, ""),
    ],
)
def test_the_end_of_a_thought_behind_its_calls_is_not_shown_once(pieces, num_calls, text):
    played = Played(["think", *pieces], state=THOUGHT)

    assert played.thought.startswith("think")
    assert "</think>" not in played.thought
    assert len(played.calls) == num_calls
    assert played.text == text


def test_behind_a_call_of_the_answer_the_end_of_a_thought_is_text():
    played = Played([CALL_TEXT, "a</think>b"])

    assert played.text == "a</think>b"


def test_a_call_that_is_no_text_is_given_out_as_the_model_wrote_it():
    written = '<tool_call>{"name": "weather", "arguments": {"city": "\\ud83d"}}</tool_call>'
    played = Played([written])

    assert played.calls == []
    assert played.text == written


def test_a_thought_about_call_markers_stays_a_thought_and_the_answer_still_comes():
    played = Played(["write <tool_call> first", "\n</think>", "\nYes"], state=THOUGHT)

    assert played.thought == "write <tool_call> first"
    assert played.text == "Yes"


def test_a_bad_call_in_a_thought_stays_in_the_thought():
    played = Played(["a<tool_call>{bad</tool_call>b", "</think>", "c"], state=THOUGHT)

    assert played.thought == "a<tool_call>{bad</tool_call>b"
    assert played.text == "c"


def test_a_call_that_is_cut_off_is_text():
    played = Played(['<tool_call>{"name": "weather", ', '"arguments": {"city": "K'], ends_by_itself=False)

    assert played.text == '<tool_call>{"name": "weather", "arguments": {"city": "K'
    assert played.finish == Finish("length")


def test_a_call_that_is_cut_off_before_its_end_marker_is_text_even_if_it_would_parse():
    played = Played([CALL_TEXT.removesuffix("</tool_call>")], ends_by_itself=False)

    assert played.calls == []
    assert played.text == CALL_TEXT.removesuffix("</tool_call>")


def test_a_model_that_ends_without_closing_its_last_call_still_made_it():
    played = Played([CALL_TEXT.removesuffix("</tool_call>")])

    assert len(played.calls) == 1
    assert played.finish == Finish("tool_calls")


def test_where_no_tools_were_offered_a_call_is_text_and_is_not_withheld():
    output = make_output([CALL_TEXT], tools=None)

    events = output.push(SampledToken(0))

    assert events == [TextDelta(text=CALL_TEXT)]


def test_a_model_without_an_end_marker_may_make_its_call_last():
    markup = Markup(markers={ANSWER: (Marker("[CALL]", "tool"),)}, call_start="[CALL]")

    pieces = ["ok[CALL]", '{"name": "weather"}']
    played, cut_off = Played(pieces, markup=markup), Played(pieces, markup=markup, ends_by_itself=False)

    assert played.text == "ok"
    assert played.calls == [("call_0", "weather", "{}")]
    assert cut_off.calls == played.calls
    assert cut_off.finish == Finish("length")


def test_text_in_a_message_header_is_not_shown_but_a_bad_call_in_it_is():
    markup = Markup(
        markers={"header": (Marker("|text|", ANSWER), Marker("<c>", "tool")), "tool": (Marker("</c>", ANSWER),)},
        call_start="<c>",
        call_end="</c>",
        opens_in="header",
    )

    played = Played(["to=user|text|Hello"], markup=markup, state="header")
    broken = Played(["to=user<c>{bad</c> ok"], markup=markup, state="header")

    assert played.text == "Hello"
    assert broken.text == "<c>{bad</c> ok"


def test_a_stop_string_across_three_tokens_never_shows():
    played = Played(["one S", "TO", "P two"], stops=["STOP"])

    assert played.text == "one "
    assert played.finish == Finish("stop", "STOP")
    assert played.num_pushed == 3


def test_what_only_began_like_a_stop_string_comes_out_at_the_end():
    played = Played(["one S", "TO"], stops=["STOP"])

    assert played.text == "one STO"
    assert played.finish == Finish("stop")


def test_the_stop_string_that_is_complete_first_counts():
    played = Played(["abcd"], stops=["bcd", "bc"])

    assert played.text == "a"
    assert played.finish == Finish("stop", "bc")


def test_a_stop_string_is_found_in_visible_text_on_both_sides_of_a_thought():
    played = Played(["one ST", "<think>hm</think>", "OP two"], stops=["STOP"])

    assert played.text == "one "
    assert played.finish == Finish("stop", "STOP")


def test_stop_strings_do_not_end_a_thought_or_a_call():
    played = Played(["STOP</think>", CALL_TEXT.replace("Köln", "STOP"), "ok STOP"], state=THOUGHT, stops=["STOP"])

    assert played.thought == "STOP"
    assert len(played.calls) == 1
    assert played.text == "ok "
    assert played.finish == Finish("stop", "STOP")


def test_a_call_behind_withheld_text_comes_after_that_text():
    played = Played(["now\n", CALL_TEXT], stops=["\n\n"])

    assert played.order == ["TextDelta", "ToolCallBegin", "ToolCallDelta", "ToolCallEnd"]
    assert played.text == "now\n"


def test_the_end_token_is_not_text_and_ends_the_output():
    output = make_output(["a"])

    output.push(SampledToken(0))
    events = output.push(SampledToken(END))

    assert events == ()
    assert output.finish == Finish("stop")


def test_a_cancelled_output_gives_out_what_it_held_and_reports_the_cancellation():
    played = Played(["a </th"], ends_by_itself=False, reason="cancelled", state=THOUGHT)

    assert played.thought == "a </th"
    assert played.finish == Finish("cancelled")


def test_log_probabilities_come_with_the_text_of_their_tokens():
    played = Played(["a", "b ST", "x"], stops=["STOP"], logprobs=True)

    found = [([logprob.token for logprob in event.logprobs], event.text) for event in played.events]

    assert found == [(["a"], "a"), ([], "b "), (["b ST", "x"], "STx")]


def test_both_halves_of_a_character_bring_their_log_probabilities_with_it():
    played = Played(["", "é"], logprobs=True)

    assert [logprob.logprob for logprob in played.events[0].logprobs] == [0.0, -1.0]


def test_tokens_of_a_thought_bring_their_log_probabilities_and_its_markers_do_not():
    played = Played(["<think>", "hm", "</think>", "ok"], logprobs=True)

    kinds = [(type(event), [logprob.token for logprob in event.logprobs]) for event in played.events]

    assert kinds == [(ReasoningDelta, ["hm"]), (TextDelta, ["ok"])]


# --- Properties ----------------------------------------------------------------------------------------------------

FRAGMENTS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    '{"name": "weather", "arguments": {}}',
    "{bad",
    "STOP",
    "ST",
    "OP",
    "<thi",
    "<tool_",
    "\n",
    " ",
    "word",
    "é",
]
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
places = st.lists(st.integers(0, 200), max_size=40)
states = st.sampled_from([ANSWER, THOUGHT])
stop_lists = st.lists(st.sampled_from(["STOP", "TO", "\n\n", "word", "d<"]), max_size=3)


@given(texts, places, states, stop_lists, st.booleans())
@example("ST<think>\n</think>OP", [1, 2, 9], ANSWER, ["STOP"], True)
def test_the_events_do_not_depend_on_how_the_text_was_cut_into_tokens(text, at, state, stops, ends_by_itself):
    whole = Played([text] if text else [], state=state, stops=stops, ends_by_itself=ends_by_itself)
    pieces = Played(cut(text, at), state=state, stops=stops, ends_by_itself=ends_by_itself)

    assert (pieces.text, pieces.thought, pieces.calls) == (whole.text, whole.thought, whole.calls)
    assert pieces.order == whole.order
    assert pieces.finish == whole.finish


@given(texts, places, states, st.lists(st.sampled_from(["STOP", "TO", "word", "\n"]), min_size=1, max_size=3))
def test_a_stop_string_never_shows_in_the_visible_text(text, at, state, stops):
    played = Played(cut(text, at), state=state, stops=stops)

    assert not any(stop in played.text for stop in stops)


@given(st.text(max_size=60), places)
def test_text_without_any_marker_is_given_out_unchanged(text, at):
    played = Played(cut(text, at))

    if not any(marker.text in text for marker in MARKUP.markers[ANSWER]):
        assert played.text == text


@given(texts, places, states)
def test_no_word_of_the_model_is_lost(text, at, state):
    played = Played(cut(text, at), state=state)

    shown = played.text + played.thought + "".join(f"{name}{arguments}" for _, name, arguments in played.calls)

    # Not STOP: its halves, on both sides of a marker, would make one.
    assert len(re.findall("word|é|bad", shown)) == len(re.findall("word|é|bad", text))


@given(texts, places, states, stop_lists)
def test_every_token_of_visible_text_brings_its_log_probability_once(text, at, state, stops):
    played = Played(cut(text, at), state=state, stops=stops, logprobs=True)

    found = [logprob.logprob for event in played.events for logprob in getattr(event, "logprobs", ())]

    assert len(found) == len(set(found))
    assert played.calls or found == sorted(found, reverse=True)


@pytest.mark.parametrize("reason", ["length", "cancelled"])
def test_an_output_closed_before_its_first_token_says_nothing(reason):
    output = make_output([])

    events, finish = output.close(reason)

    assert (list(events), finish) == ([], Finish(reason))
