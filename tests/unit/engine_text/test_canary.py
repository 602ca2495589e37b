"""What becomes of a system message behind other roles, and that it is never moved to the front."""

import threading

import msgspec
import pytest

from engine.errors import ModelRefused
from engine.model.demo import build_demo
from engine.text import tokenizer as tokenizer_module
from engine.text.canary import template_canary
from engine.text.template import render
from engine.text.tokenizer import load_text_model
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
    byte_level,
    text_model,
    with_template,
)

FOLDED = "patched: a later system message as a user turn"
REFUSING = """
{%- for m in messages -%}
  {%- if m.role == 'system' and not loop.first -%}{{ raise_exception('System must be first.') }}{%- endif -%}
  {{- '[' + m.role + ']' + m.content -}}
{%- endfor -%}{%- if add_generation_prompt -%}[assistant]{%- endif -%}
"""


@pytest.mark.parametrize("template", [CHATML, QWEN, LLAMA, MISTRAL])
def test_a_template_that_renders_it_in_its_place_is_native(template):
    canary = template_canary(with_template(template))

    assert canary.passed
    assert canary.detail == "native: a later system message is rendered in its place"


@pytest.mark.parametrize(
    ("template", "detail"),
    [
        *((REFUSING, FOLDED), (HOISTING, FOLDED), (OLD_MISTRAL, FOLDED)),
        (GEMMA, "patched: system messages as text of user turns, neighbouring turns joined"),
    ],
)
def test_a_template_that_does_not_is_given_another_form_which_is_named(template, detail):
    canary = template_canary(with_template(template))

    assert (canary.name, canary.passed, canary.detail) == ("late_system", True, detail)


@pytest.mark.parametrize("template", [NOTHING_IN_COMMON, "{{ raise_exception('no') }}", None])
def test_a_template_that_renders_it_nowhere_fails_and_says_so(template):
    canary = template_canary(with_template(template))

    assert not canary.passed
    assert canary.detail.startswith("unsupported: ")


def test_a_model_without_chat_template_is_not_tried():
    tokenizer = byte_level(None)
    tokenizer.has_chat_template = False

    assert template_canary(text_model(tokenizer)).detail == "unsupported: the model has no chat template"


@pytest.mark.parametrize("template", [CHATML, QWEN, LLAMA, MISTRAL, REFUSING, HOISTING, GEMMA])
def test_a_later_system_message_is_rendered_behind_what_was_said_before_it(template):
    model = with_template(template)
    said = [("system", "Rules"), ("user", "First"), ("assistant", "Second"), ("system", "Third"), ("user", "Fourth")]
    messages = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in said]

    text = model.tokenizer.decode(render(msgspec.convert({"messages": messages}, Prompt), model).tokens)

    places = [text.index(words) for _, words in said]
    assert places == sorted(places)


def test_a_template_that_has_no_end_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "demo"
    folder.mkdir()
    build_demo(folder)
    ended = threading.Event()
    monkeypatch.setattr(tokenizer_module, "LONGEST_TEMPLATE_S", 0.05)
    monkeypatch.setattr(tokenizer_module, "learn_habits", lambda _: ended.wait(30))

    with pytest.raises(ModelRefused, match=r"the chat template in .* takes more than") as refused:
        load_text_model(folder)
    ended.set()

    assert refused.value.reason == "load_failed"
