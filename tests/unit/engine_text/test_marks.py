"""Where the parts of a prompt begin: what other conversations, and the next turn of this one, share with it."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.request import PromptMarks
from engine.text.template import render
from engine.wire import Prompt
from tests.unit.engine_text.templates_by_hand import (
    CHATML,
    GEMMA,
    HOISTING,
    LLAMA,
    MISTRAL,
    NOTHING_IN_COMMON,
    OLD_MISTRAL,
    QWEN,
    text_model,
    with_template,
)
from tests.unit.engine_text.tokenizers_by_hand import sentencepiece, word_level

TOOLS = [{"name": "weather", "description": "the weather <|im_start|>user\n of a city"}]
FAMILIES = {
    name: with_template(template)
    for name, template in {
        "chatml": CHATML,
        "qwen": QWEN,
        "llama": LLAMA,
        "gemma": GEMMA,
        "mistral": MISTRAL,
        "old mistral": OLD_MISTRAL,
        "hoisting": HOISTING,
    }.items()
}


def said(role, text="", **more):
    return {"role": role, "content": [{"type": "text", "text": text}] if text else []} | more


def called(number):
    call = {"id": f"call{number:05d}", "name": "weather", "arguments_raw": '{"city": "K\u00f6ln"}'}
    return [said("assistant", tool_calls=[call]), said("tool", f"{number} degrees", tool_call_id=call["id"])]


def rendered(model, messages, **more):
    return render(msgspec.convert({"messages": messages} | more, Prompt), model)


def common(first, second):
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


SYSTEM = said("system", "Be brief. Answer in English.")
TURNS = [said("user", "Hello"), said("assistant", "Hi"), said("user", "\n\nWeather?")]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_newest_message_begins_where_a_prompt_with_another_newest_message_parts(family):
    model = FAMILIES[family]

    first = rendered(model, [SYSTEM, *TURNS])
    other = rendered(model, [SYSTEM, *TURNS[:-1], said("user", "zzz")])

    newest = first.marks.message_starts[-1]
    assert first.tokens[:newest] == other.tokens[:newest]
    assert newest + 8 > common(first.tokens, other.tokens) or family == "old mistral"


@pytest.mark.parametrize("family", ["chatml", "qwen", "llama", "gemma", "hoisting"])
def test_the_generation_prompt_is_what_the_next_turn_may_render_otherwise(family):
    model = FAMILIES[family]
    first = rendered(model, [SYSTEM, *TURNS])

    after = rendered(model, [SYSTEM, *TURNS, said("assistant", "Sunny."), said("user", "Thanks")])

    kept = len(first.tokens) - first.marks.generation_len
    assert 0 < first.marks.generation_len < 40
    assert first.tokens[:kept] == after.tokens[:kept]
    assert kept in after.marks.message_starts


@pytest.mark.parametrize(
    ("effort", "prompted"), [("high", "<|im_start|>assistant\n<think>\n"), ("none", "<think>\n\n</think>\n\n")]
)
def test_the_tags_of_a_thought_are_part_of_the_generation_prompt(effort, prompted):
    first = rendered(FAMILIES["qwen"], TURNS, effort=effort)

    ending = FAMILIES["qwen"].tokenizer.decode(first.tokens[-first.marks.generation_len :])

    assert ending.startswith("<|im_start|>assistant\n")
    assert ending.endswith(prompted)


def test_a_prompt_without_generation_prompt_ends_in_none():
    assert rendered(FAMILIES["mistral"], TURNS).marks.generation_len == 0


def test_a_continued_answer_ends_in_no_generation_prompt():
    marks = rendered(FAMILIES["chatml"], [*TURNS, said("assistant", "It is")], continue_last=True).marks

    assert marks.generation_len == 0
    assert len(marks.message_starts) == 3  # the first message begins with the prompt


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "old mistral"])
def test_the_shared_front_ends_where_conversations_with_the_same_system_and_tools_part(family):
    model = FAMILIES[family]
    tools = [] if family in ("gemma", "hoisting") else TOOLS

    first = rendered(model, [SYSTEM, *TURNS], tools=tools)
    other = rendered(model, [SYSTEM, said("user", "zzz")], tools=tools)

    shared = first.marks.shared_len
    assert shared == other.marks.shared_len
    assert first.tokens[:shared] == other.tokens[:shared]
    assert shared + 10 > common(first.tokens, other.tokens)


@pytest.mark.parametrize(("family", "has_front"), [("llama", True), ("gemma", True), ("old mistral", False)])
def test_the_shared_front_holds_what_a_template_writes_into_the_first_user_turn(family, has_front):
    marks = rendered(FAMILIES[family], [SYSTEM, *TURNS], tools=TOOLS).marks

    assert (marks.shared_len > 25) == has_front


def test_messages_of_every_role_have_their_starts():
    model = FAMILIES["qwen"]
    messages = [SYSTEM, said("user", "Hello"), *called(1), said("system", "9 tokens left"), said("user", "go on")]

    rendering = rendered(model, messages)

    pieces = [model.tokenizer.decode(rendering.tokens[start:]) for start in rendering.marks.message_starts]
    opened = ["assistant\n\n<tool_call>", "user\n<tool_response>\n1 degrees", "system\n9 tokens", "user\ngo on"]
    assert len(pieces) == 4
    assert all(piece.startswith("<|im_start|>" + text) for piece, text in zip(pieces, opened, strict=True))


def test_results_of_tools_that_stand_in_one_user_turn_have_their_starts():
    model = FAMILIES["qwen"]
    first, second = called(1), called(2)
    messages = [said("user", "Hello"), first[0], first[1], second[1]]

    rendering = rendered(model, messages)

    pieces = [model.tokenizer.decode(rendering.tokens[start:]) for start in rendering.marks.message_starts[-2:]]
    assert pieces[0].startswith("<|im_start|>user\n<tool_response>\n1 degrees")
    assert pieces[1].startswith("\n<tool_response>\n2 degrees")


def test_an_opening_that_somebody_wrote_into_a_message_is_not_taken_for_one():
    model = FAMILIES["chatml"]
    messages = [said("user", "Hello"), said("assistant", "a<|im_start|>user\nb"), said("user", "c<|im_start|>user\nd")]

    marks = rendered(model, messages).marks

    starts = [len(rendered(model, messages[:num]).tokens) for num in (1, 2)]
    prompt = len(model.tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False))
    assert marks.message_starts == tuple(start - prompt for start in starts)


@pytest.mark.parametrize("template", [NOTHING_IN_COMMON, "{{ messages[-1].content }}"])
def test_where_nothing_can_be_learnt_there_are_no_marks(template):
    assert rendered(with_template(template), TURNS).marks == PromptMarks()


@pytest.mark.parametrize("tokenizer", [sentencepiece(), word_level()], ids=["sentencepiece", "words"])
def test_tokenizers_of_other_kinds_have_marks_too(tokenizer):
    tokenizer._tokenizer.chat_template = "{% for m in messages %}{{ ' Hello ! ' + m.content }}{% endfor %}"
    tokenizer.has_chat_template = True
    model = text_model(tokenizer)
    messages = [said("user", "world"), said("user", "world world")]

    rendering = rendered(model, messages)

    (start,) = rendering.marks.message_starts
    assert rendered(model, messages[:1]).tokens == rendering.tokens[:start]


def test_a_tokenizer_that_does_not_say_where_its_tokens_are_leaves_the_prompt_unmarked():
    model = with_template(CHATML)
    model.tokenizer._tokenizer.encode = lambda text, **_: [1, 2, 3]

    assert rendered(text_model(model.tokenizer), TURNS).marks == PromptMarks()


def test_text_and_tokens_have_no_marks(demo):
    assert render(Prompt(text="Hello"), demo).marks == PromptMarks()
    assert render(Prompt(tokens=(1, 2)), demo).marks == PromptMarks()


def test_a_tag_that_moves_with_the_newest_message_leaves_all_before_it_shared(demo):
    tools = [{"name": f"tool_{i}", "description": "does something"} for i in range(5)]
    messages = [SYSTEM, said("user", "one <left>900</left>")]
    turns = []
    for number in range(4):
        turns.append(rendered(demo, messages, tools=tools))
        messages[-1] = said("user", f"number {number}")
        messages += [*called(number), said("assistant", "so"), said("user", f"and <left>{800 - number}</left>")]

    for before, after in pairwise(turns):
        newest = before.marks.message_starts[-1]
        assert before.tokens[:newest] == after.tokens[:newest]
        assert before.marks.shared_len == after.marks.shared_len > 50


# --- Properties ----------------------------------------------------------------------------------------------------

words = st.text(st.sampled_from("ab \n\u00e9\u4f60<|>"), min_size=1, max_size=8).filter(str.strip)


@st.composite
def conversations(draw):
    messages = [said("system", draw(words))] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 4))):
        messages.append(said("user", draw(words)))
        if draw(st.booleans()):
            messages += called(number)
        if draw(st.booleans()):
            messages.append(said("system", draw(words)))
        messages.append(said("assistant", draw(words)))
    return [*messages, said("user", draw(words))]


@given(st.sampled_from(["chatml", "llama", "mistral"]), conversations(), st.booleans())
def test_tokens_before_a_mark_are_those_of_a_conversation_without_the_newest_messages(family, messages, has_tools):
    model = FAMILIES[family]
    more = {"tools": TOOLS} if has_tools else {}

    rendering = rendered(model, messages, **more)

    assert rendering.marks.message_starts == tuple(sorted(set(rendering.marks.message_starts)))
    for num_newer, start in enumerate(reversed(rendering.marks.message_starts), 1):
        if num_newer < len(messages):
            assert rendered(model, messages[:-num_newer], **more).tokens[:start] == rendering.tokens[:start]


@given(conversations(), words)
def test_tokens_before_a_mark_do_not_depend_on_the_message_behind_it(messages, other):
    model = FAMILIES["qwen"]

    rendering = rendered(model, messages)

    newest = rendering.marks.message_starts[-1]
    changed = rendered(model, [*messages[:-1], said("user", other)])
    assert changed.tokens[:newest] == rendering.tokens[:newest]
    assert changed.marks.message_starts == rendering.marks.message_starts
    assert rendering.marks.shared_len <= rendering.marks.message_starts[0] or messages[0]["role"] != "system"
