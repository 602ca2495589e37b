"""Neutral prompts into tokens: what the template is given, what happens when it refuses, where it leaves the model."""

import copy
from dataclasses import replace

import msgspec
import pytest

from engine.errors import InvalidRequest
from engine.text.markup import ANSWER, NO_MARKUP, THOUGHT
from engine.text.probe import learn_habits
from engine.text.template import render
from engine.wire import Prompt

STRICT = """
{%- for m in messages -%}
  {%- if m.role == 'system' and not loop.first -%}{{ raise_exception('System must be first.') }}{%- endif -%}
  {{- '[' + m.role + ']' + m.content -}}
{%- endfor -%}{%- if add_generation_prompt -%}[assistant]{%- endif -%}
"""

ALTERNATING = """
{%- set ns = namespace(last='assistant') -%}
{%- for m in messages -%}
  {%- if m.role not in ('user', 'assistant') -%}{{ raise_exception('System role not supported') }}{%- endif -%}
  {%- if m.role == ns.last -%}{{ raise_exception('Conversation roles must alternate') }}{%- endif -%}
  {%- set ns.last = m.role -%}
  {{- '[' + m.role + ']' + m.content -}}
{%- endfor -%}{%- if add_generation_prompt -%}[assistant]{%- endif -%}
"""

FORGETFUL = """
{%- if messages[0].role == 'system' -%}{{- '[system]' + messages[0].content -}}{%- endif -%}
{%- for m in messages if m.role != 'system' -%}{{- '[' + m.role + ']' + m.content -}}{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}
"""

ITEMS = """
{%- for m in messages -%}{{- '[' + m.role + ']' + m.content -}}
  {%- for call in m.tool_calls or [] -%}
    {{- '<' + call.function.name -}}
    {%- for key, value in call.function.arguments | items -%}{{- ' ' + key + '=' + value | string -}}{%- endfor -%}>
  {%- endfor -%}
{%- endfor -%}
"""

ARGUMENTS = "{{ enable_thinking }}|{{ reasoning_effort }}|{{ colour }}|{{ tools | length if tools else 'no tools' }}"


@pytest.fixture
def with_template(demo):
    """The demo's text side with another chat template."""

    def make(template):
        tokenizer = copy.copy(demo.tokenizer)
        tokenizer._tokenizer = copy.copy(demo.tokenizer._tokenizer)
        tokenizer._tokenizer.chat_template = template
        return replace(demo, tokenizer=tokenizer, habits=learn_habits(tokenizer))

    return make


def prompt(*messages, **more):
    return msgspec.convert({"messages": list(messages)} | more, Prompt)


def said(role, text="", **more):
    return {"role": role, "content": [{"type": "text", "text": text}] if text else []} | more


def call(name="f", raw="", **more):
    return {"id": "call_1", "name": name, "arguments_raw": raw} | more


def text_of(model, asked):
    return model.tokenizer.decode(render(asked, model).tokens)


def test_the_demo_renders_every_kind_of_message_in_its_place(demo):
    text = text_of(
        demo,
        prompt(
            said("system", "Be kind."),
            said("user", "Weather?"),
            said("assistant", "Let me see.", reasoning="hm", tool_calls=[call("weather", '{"city": "Köln"}')]),
            said("tool", "sunny", tool_call_id="call_1"),
            tools=[{"name": "weather", "description": "the weather"}],
        ),
    )

    order = ["the weather", "Be kind.", "Weather?", "hm", "Let me see.", "<function=weather>", "Köln", "sunny"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)


def test_parts_of_a_users_text_stand_on_lines_and_parts_of_an_answer_run_on(with_template):
    two = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    text = text_of(
        with_template(STRICT), prompt({"role": "user", "content": two}, {"role": "assistant", "content": two})
    )

    assert text == "[user]one\ntwo[assistant]onetwo[assistant]"


def test_a_late_system_message_that_is_refused_becomes_a_user_turn_in_its_place(with_template):
    text = text_of(
        with_template(STRICT), prompt(said("system", "A"), said("user", "B"), said("system", "C"), said("user", "D"))
    )

    assert text == "[system]A[user]B[user]C[user]D[assistant]"


def test_leading_system_messages_become_one(with_template):
    text = text_of(with_template(STRICT), prompt(said("system", "A"), said("system", "B"), said("user", "C")))

    assert text == "[system]A\n\nB[user]C[assistant]"


def test_a_late_system_message_that_would_be_left_out_becomes_a_user_turn_too(with_template):
    text = text_of(with_template(FORGETFUL), prompt(said("user", "B"), said("system", "C"), said("user", "D")))

    assert text == "[user]B[user]C[user]D[assistant]"


def test_a_template_that_takes_late_system_messages_gets_them_as_they_are(demo):
    text = text_of(demo, prompt(said("user", "B"), said("system", "C"), said("user", "D")))

    assert "<|im_start|>system\nC<|im_end|>" in text


def test_a_template_without_system_role_and_with_alternating_turns_still_gets_every_word(with_template):
    text = text_of(
        with_template(ALTERNATING),
        prompt(said("system", "A"), said("user", "B"), said("user", "C"), said("system", "D")),
    )

    assert text == "[user]A\n\nB\n\nC\n\nD[assistant]"


@pytest.mark.parametrize(
    ("raw", "shown"), [('{"a": 1}', "<f a=1>"), ("", "<f>"), ('{"a": ', '<f raw={"a": >'), ("[1]", "<f raw=[1]>")]
)
def test_arguments_that_are_not_an_object_do_not_break_a_template_that_walks_through_them(with_template, raw, shown):
    text = text_of(with_template(ITEMS), prompt(said("user", "x"), said("assistant", tool_calls=[call(raw=raw)])))

    assert shown in text


def test_arguments_that_do_not_parse_are_shown_as_they_were_written_where_the_template_can(demo):
    text = text_of(demo, prompt(said("user", "x"), said("assistant", tool_calls=[call(raw='{"a": ')])))

    assert '{"a": \n' in text


@pytest.mark.parametrize("raw", ['{"a": "\\ud83d"}', '{"\\udc00": 1}'])
def test_arguments_that_are_no_text_are_given_as_they_were_written(demo, raw):
    call = {"id": "1", "name": "f", "arguments_raw": raw}

    text = text_of(demo, prompt(said("user", "B"), said("assistant", tool_calls=[call])))

    assert raw in text


def test_a_complaint_of_the_template_about_everything_is_the_clients_to_read(with_template):
    with pytest.raises(InvalidRequest, match="I never accept anything") as refusal:
        render(prompt(said("user", "x")), with_template("{{ raise_exception('I never accept anything') }}"))

    assert refusal.value.param == "prompt.messages"


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({}, "True||"),
        ({"effort": "none"}, "False|none|"),
        ({"effort": "high"}, "True|high|"),
        ({"effort": "none", "template_arguments": {"enable_thinking": True, "colour": "red"}}, "True|none|red"),
    ],
)
def test_effort_and_template_arguments_reach_the_template(with_template, fields, seen):
    assert text_of(with_template(ARGUMENTS), prompt(said("user", "x"), **fields)) == f"{seen}|no tools"


@pytest.mark.parametrize(
    ("choice", "seen"),
    [("auto", "2"), ("none", "no tools"), ("required", "2"), ({"mode": "named", "name": "b"}, "2")],
)
def test_tool_choice_decides_which_tools_are_shown(with_template, choice, seen):
    choice = choice if isinstance(choice, dict) else {"mode": choice}

    text = text_of(
        with_template(ARGUMENTS), prompt(said("user", "x"), tools=[{"name": "a"}, {"name": "b"}], tool_choice=choice)
    )

    assert text.endswith(f"|{seen}")


def test_a_named_tool_is_shown_alone_where_no_grammar_makes_the_model_call_it(with_template):
    model = replace(with_template(ARGUMENTS), markup=NO_MARKUP)
    choice = {"mode": "named", "name": "b"}

    text = text_of(model, prompt(said("user", "x"), tools=[{"name": "a"}, {"name": "b"}], tool_choice=choice))

    assert text.endswith("|1")


def test_a_prompt_whose_template_opens_a_thought_leaves_the_model_in_it(demo):
    thinking = render(prompt(said("user", "x"), effort="high"), demo)
    not_thinking = render(prompt(said("user", "x"), effort="none"), demo)

    assert (thinking.state, not_thinking.state) == (THOUGHT, ANSWER)


def test_a_user_who_writes_the_marker_of_a_thought_opens_none(demo):
    rendered = render(prompt(said("user", "what does <think> mean? <think>"), effort="none"), demo)

    assert rendered.state == ANSWER


def test_a_continued_answer_has_no_end_and_no_new_turn(demo):
    rendered = render(prompt(said("user", "x"), said("assistant", "The answer is"), continue_last=True), demo)

    assert demo.tokenizer.decode(rendered.tokens).endswith("The answer is")
    assert rendered.continues_text
    assert rendered.state == ANSWER


def test_a_continued_thought_is_a_thought(demo):
    rendered = render(prompt(said("user", "x"), said("assistant", "<think>\nlet me"), continue_last=True), demo)

    assert rendered.state == THOUGHT


def test_text_is_tokenised_as_it_is(demo):
    rendered = render(Prompt(text="Hello <|im_end|>"), demo)

    assert demo.tokenizer.decode(rendered.tokens) == "Hello <|im_end|>"
    assert rendered.continues_text


def test_tokens_are_taken_as_they_are(demo):
    assert render(Prompt(tokens=(5, 6, 7)), demo).tokens == (5, 6, 7)


def test_only_messages_are_answered_with_markup(demo):
    assert render(prompt(said("user", "x")), demo).has_markup
    assert not render(Prompt(text="x"), demo).has_markup
    assert not render(Prompt(tokens=(5,)), demo).has_markup


@pytest.mark.parametrize("token", [-1, 2048])
def test_a_token_outside_the_vocabulary_is_named(demo, token):
    with pytest.raises(InvalidRequest) as refusal:
        render(Prompt(tokens=(5, token)), demo)

    assert refusal.value.param == "prompt.tokens[1]"


def test_a_model_without_template_says_so(with_template):
    model = with_template(None)
    model.tokenizer.has_chat_template = False

    with pytest.raises(InvalidRequest, match="no chat template"):
        render(prompt(said("user", "x")), model)


def test_the_answer_of_a_tool_is_named_after_its_call(with_template):
    named = "{%- for m in messages -%}{{- m.role + ':' + (m.name or '-') + ' ' -}}{%- endfor -%}"

    text = text_of(
        with_template(named),
        prompt(said("assistant", tool_calls=[call("weather")]), said("tool", "sunny", tool_call_id="call_1")),
    )

    assert text == "assistant:- tool:weather "
