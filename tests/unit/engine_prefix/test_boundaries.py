"""Where a prompt's prefill stops for snapshots: at page floors, before what changes, the more durable kind first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.prefix.boundaries import ROLLING_MARGIN_TOKENS, armed_boundaries
from engine.request import PromptMarks

CASES = [
    ("nothing known, short", PromptMarks(), 31, 0, None, {}),
    ("the last token is never covered", PromptMarks(), 32, 0, None, {}),
    ("one token behind a block", PromptMarks(), 33, 0, None, {32: "prompt_end"}),
    ("the generation prompt stays out", PromptMarks(generation_len=5), 100, 0, None, {64: "prompt_end"}),
    ("a generation prompt in the same block", PromptMarks(generation_len=4), 100, 0, None, {96: "prompt_end"}),
    (
        "end of tools, then the messages, then the prompt",
        PromptMarks(shared_len=330, message_starts=(330, 500, 700)),
        800,
        0,
        None,
        {320: "shared_end", 480: "message_start", 672: "message_start", 768: "prompt_end"},
    ),
    (
        "what was restored is not taken again",
        PromptMarks(shared_len=320, message_starts=(320, 512)),
        600,
        320,
        None,
        {512: "message_start", 576: "prompt_end"},
    ),
    (
        "a junction beats a message start",
        PromptMarks(message_starts=(500,)),
        520,
        0,
        480,
        {480: "junction", 512: "prompt_end"},
    ),
    ("the shared end beats a junction", PromptMarks(490), 520, 0, 480, {480: "shared_end", 512: "prompt_end"}),
    ("the prompt's end beats a message start", PromptMarks(message_starts=(599,)), 601, 0, None, {576: "prompt_end"}),
    ("a mark behind the prompt is ignored", PromptMarks(message_starts=(5_000,)), 40, 0, None, {32: "prompt_end"}),
    ("rolling ones on an absolute grid", PromptMarks(), 12_001, 5_000, None, {8_192: "rolling", 12_000: "prompt_end"}),
    ("none just before the end", PromptMarks(), 10_240, 4_096, None, {10_208: "prompt_end"}),
    ("one at the margin", PromptMarks(), 10_241, 4_096, None, {8_192: "rolling", 10_240: "prompt_end"}),
    (
        "any kind beats rolling",
        PromptMarks(message_starts=(4_100,)),
        9_000,
        0,
        None,
        {4_096: "message_start", 8_992: "prompt_end"},
    ),
]


@pytest.mark.parametrize(
    ("marks", "prompt_len", "restored_len", "junction_len", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_boundaries_are(marks, prompt_len, restored_len, junction_len, expected):
    armed = armed_boundaries(marks, prompt_len=prompt_len, restored_len=restored_len, junction_len=junction_len)

    assert armed == expected


def test_a_message_at_50_412_is_cut_at_50_400_and_not_behind_it():
    marks = PromptMarks(message_starts=(50_412,), generation_len=4)

    armed = armed_boundaries(marks, prompt_len=50_700, restored_len=0, junction_len=None)

    assert armed[50_400] == "message_start"
    assert not [length for length in armed if 50_400 < length <= 50_432]


@given(
    marks=st.builds(
        PromptMarks,
        shared_len=st.integers(0, 20_000),
        message_starts=st.lists(st.integers(0, 20_000), max_size=4).map(tuple),
        generation_len=st.integers(0, 300),
    ),
    prompt_len=st.integers(1, 20_000),
    restored_len=st.integers(0, 600).map(lambda blocks: blocks * 32),
    junction_len=st.none() | st.integers(0, 20_000),
)
def test_every_boundary_is_a_page_floor_between_what_was_restored_and_the_last_token(
    marks, prompt_len, restored_len, junction_len
):
    armed = armed_boundaries(marks, prompt_len=prompt_len, restored_len=restored_len, junction_len=junction_len)

    assert list(armed) == sorted(armed)
    assert all(length % 32 == 0 and restored_len < length <= prompt_len - 1 for length in armed)
    end = (prompt_len - max(marks.generation_len, 1)) // 32 * 32
    assert end <= restored_len or end in armed
    assert all(end - length >= ROLLING_MARGIN_TOKENS for length, kind in armed.items() if kind == "rolling")
