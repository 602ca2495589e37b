"""The plan of a load: what is asked for, what is shown of the answer, and where the sliders can stand."""

import asyncio
import html as markup
import json
import re
from typing import get_args

import httpx
import msgspec
import pytest
from starlette.requests import Request

from control import wire
from engine.errors import RefusalReason
from tests.fakes import control as fake
from webui.load_form import read
from webui.pages.leaving import until_gone
from webui.text import load_texts
from webui.views.plan import budget_steps, context_steps, plan_view
from webui.views.refusals import refusal_words

PLAN = msgspec.structs.replace(fake.PLAN, smallest_pool_bytes=352 * fake.MIB)
FITS = wire.PlanAnswer(
    outcome="fits", verdict="mine fits, with 16.0 GiB.", name="mine", plan=PLAN, native_context_tokens=262_144
)
TOO_LARGE = wire.PlanAnswer(
    outcome="too_large",
    verdict="mine does not fit: 20.4 GiB more.",
    name="mine",
    plan=msgspec.structs.replace(PLAN, limit_bytes=100 * fake.GIB, pool_bytes=0, fits=False),
    native_context_tokens=262_144,
)


async def ask(console, **form: str) -> str:
    answer = await console.browser.get("/model/load/plan", params={"model": "mine", **form})
    return re.sub(r"\s+", " ", answer.text)


def steps(html: str, slider: str) -> tuple[list[str], int]:
    found = re.search(rf'data-steps-of="{slider}" data-values="([^"]*)" data-at="(\d+)"', html)
    return json.loads(markup.unescape(found[1])), int(found[2])


def button(html: str) -> str:
    return re.search(r'<button id="load-button"[^>]*>', html)[0]


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        ({}, {"model": "mine"}),
        ({"context": "65,536", "budget_bytes": "12"}, {"context": 65_536, "budget_bytes": 12 * fake.GIB}),
        ({"context": "auto", "kv_bits": "8", "max_gap_ms": "100"}, {"context": "default", "kv_bits": 8}),
        ({"kv_bits": "8", "shown_kv_bits": "8"}, {"model": "mine"}),
    ],
)
async def test_the_planner_is_asked_about_what_the_form_would_load(console, form, asked):
    console.control.order_answers[wire.PLAN] = FITS

    await ask(console, **form)

    assert console.control.orders == [("POST", wire.PLAN, {"model": "mine", **asked})]


async def test_a_plan_that_fits_shows_who_gets_the_memory_and_what_it_is_good_for(console):
    console.control.order_answers[wire.PLAN] = FITS

    html = await ask(console)

    assert "It fits." in html
    assert "Contexts and the cache get 16.0 GiB." in html
    for value in ("178.9 GiB", "3.1 GiB", "16.0 GiB", "245,000 tokens", "6 sessions of 23k", "64 KiB", "16.1 GiB"):
        assert f">{value}<" in html
    assert "disabled" not in button(html)


async def test_the_reserve_is_not_called_what_is_left_to_other_programs(console):
    """Beside 17 GiB that nobody planned, "left to other programs 2.1 GiB" reads as if that were all."""
    console.control.order_answers[wire.PLAN] = FITS

    html = await ask(console)

    assert "reserve for other programs" in html
    assert "left to other programs" not in html


async def test_a_plan_that_does_not_fit_marks_the_limit_and_the_button_says_why_not(console):
    console.control.order_answers[wire.PLAN] = TOO_LARGE

    html = await ask(console)

    assert "It does not fit." in html
    assert "82.3 GiB more than the 100.0 GiB" in html
    assert 'class="m-measured"' in html
    assert button(html).endswith('disabled aria-describedby="load-why-not">')
    assert "the plan says why" in html


@pytest.mark.parametrize(
    ("answer", "sentence", "is_loadable"),
    [
        (wire.PlanAnswer(outcome="refused", verdict="it was made for up to 9", name="mine"), "made for up to 9", False),
        (wire.PlanAnswer(outcome="not_here", verdict="org/name is elsewhere", name="mine"), "downloaded first", True),
        (wire.Accepted(message="nonsense"), "There is no plan.", True),
    ],
)
async def test_without_numbers_the_sentence_is_all_and_only_a_refusal_stops_the_load(
    console, answer, sentence, is_loadable
):
    console.control.order_answers[wire.PLAN] = answer

    html = await ask(console)

    assert sentence in html
    assert "memory-bar" not in html
    assert ("disabled" not in button(html)) is is_loadable


async def test_a_model_that_is_nowhere_is_named(console):
    console.control.refusal = wire.AdminError(code="model_not_found", message="no")

    html = await ask(console)

    assert "There is no model called mine" in html
    assert "disabled" in button(html)


async def test_of_a_path_it_is_said_what_splash_load_says(console):
    console.control.refusal = wire.AdminError(code="model_not_found", message="The folder /nodir/x does not exist.")

    html = await ask(console, model="/nodir/x")

    assert '<span id="plan-detail" class="muted" lang="en">The folder /nodir/x does not exist.</span>' in html
    assert "There is no model called" not in html


async def test_a_field_that_cannot_be_read_is_said_in_the_plan_and_nothing_is_asked(console):
    html = await ask(console, context="many")

    assert "a whole number, such as 65,536" in html
    assert "disabled" in button(html)
    assert console.control.orders == []


async def test_without_javascript_the_form_comes_back_with_its_plan(console):
    console.control.order_answers[wire.PLAN] = FITS

    answer = await console.post("/model/load/plan", model="mine", context="65,536")

    assert answer.status_code == 200
    assert "It fits." in answer.text
    assert 'value="65,536"' in answer.text
    assert 'hx-trigger="input from' in answer.text


async def test_while_splash_quits_nothing_can_be_loaded(console):
    console.control.overview = fake.overview(quitting=True)
    console.control.order_answers[wire.PLAN] = FITS

    html = await ask(console)

    assert "disabled" in button(html)
    assert "Splash is quitting" in html


async def test_a_question_that_is_taken_back_ends():
    """A slider moves on: what it asked before shall not keep the planner busy."""
    asked, is_cancelled = asyncio.Event(), asyncio.Event()

    async def plan() -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise
        return "never"

    async def receive():
        await asked.wait()
        return {"type": "http.disconnect"}

    answer = await until_gone(Request({"type": "http"}, receive), plan())

    assert answer is None
    assert is_cancelled.is_set()


async def test_a_question_that_is_not_taken_back_is_answered():
    async def plan() -> str:
        return "fits"

    async def receive():
        await asyncio.Event().wait()

    assert await until_gone(Request({"type": "http"}, receive), plan()) == "fits"


def test_a_context_slider_goes_in_even_steps_from_4k_to_what_the_model_was_made_for():
    found = context_steps(262_144, 65_536)

    assert found.values[:6] == ("4,096", "5,120", "6,144", "7,168", "8,192", "10,240")
    assert found.values[-1] == "262,144"
    assert found.values[found.at] == "65,536"
    assert len(found.values) == 25


@pytest.mark.parametrize("native", [1_010_000, 40_960, 4_097])
def test_an_odd_native_context_is_the_last_step(native):
    found = context_steps(native, native)

    assert (found.values[0], found.values[-1]) == ("4,096", f"{native:,}")
    assert found.at == len(found.values) - 1


def test_where_there_is_nothing_to_choose_there_is_no_slider():
    assert context_steps(4_096, 4_096) is None
    assert budget_steps(TOO_LARGE.plan) is None


def test_a_budget_slider_goes_from_the_smallest_useful_to_all_that_is_there():
    found = budget_steps(PLAN)
    left_bytes = PLAN.limit_bytes - PLAN.weights_bytes - PLAN.fixed_bytes

    assert (found.values[0], found.values[found.at]) == ("352 MiB", "16 GiB")
    budgets = [read({"budget_bytes": value}).order.budget_bytes for value in found.values]
    assert budgets == sorted(budgets)
    assert budgets[0] >= PLAN.smallest_pool_bytes
    assert left_bytes - fake.GIB // 100 < budgets[-1] <= left_bytes


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_outcome_is_in_the_readers_language(language):
    text = load_texts()[language]
    headlines = {plan_view(answer, text).headline for answer in (FITS, TOO_LARGE)}

    assert len(headlines) == 2
    assert all(("\u4e00" <= headline[0] <= "\u9fff") is (language == "zh") for headline in headlines)


async def test_the_page_itself_does_not_wait_for_a_plan(console):
    console.control.answers_after_s = 30.0

    answer = await asyncio.wait_for(console.browser.get("/model/load", params={"model": "mine"}), 2)

    assert isinstance(answer, httpx.Response)
    assert 'hx-trigger="load, input from' in answer.text
    assert console.control.orders == []


CAPACITY = {"longest_context_tokens": 262_144, "pool_bytes": 40 * fake.GIB, "warm_sessions": 18}


@pytest.mark.parametrize(
    ("answer", "english", "chinese"),
    [
        (
            msgspec.structs.replace(FITS, plan=msgspec.structs.replace(PLAN, **CAPACITY)),
            "Contexts and the cache get 40.0 GiB. 2 requests of the full 262,144 tokens have room at once. "
            "18 sessions of 23,000 tokens stay warm.",
            "上下文与缓存可用 40.0 GiB。同时可容纳 2 个占满 262,144 token 的请求。可保留 18 个 23,000 token 的会话。",
        ),
        (
            FITS,
            "Contexts and the cache get 16.0 GiB. One request has room for 245,000 tokens; the full 262,144 would take "
            "96.0 MiB more. 6 sessions of 23,000 tokens stay warm.",
            "上下文与缓存可用 16.0 GiB。单个请求最多容纳 245,000 个 token；占满 262,144 还差 96.0 MiB。"
            "可保留 6 个 23,000 token 的会话。",
        ),
        (
            msgspec.structs.replace(
                FITS, outcome="too_large", plan=msgspec.structs.replace(PLAN, pool_bytes=fake.MIB, fits=False)
            ),
            "1.0 MiB for contexts and the cache can't hold one request of 4,096 tokens, which takes 352.0 MiB.",
            "上下文与缓存的 1.0 MiB 容不下一个 4,096 token 的请求，它需要 352.0 MiB。",
        ),
        (
            msgspec.structs.replace(
                FITS, outcome="too_large", plan=msgspec.structs.replace(PLAN, pool_bytes=41 * fake.GIB, fits=False)
            ),
            "It takes 223.0 GiB, 307.2 MiB more than the 222.7 GiB that the engine may use. "
            "With 40.7 GiB or less for contexts and the cache it fits.",
            "它需要 223.0 GiB，比引擎可用的 222.7 GiB 多 307.2 MiB。"
            "把上下文与缓存的内存设为 40.7 GiB 或更少，就放得下。",
        ),
        (
            wire.PlanAnswer(
                outcome="refused", verdict="no", name="m", reason="context_above_native", native_context_tokens=4_096
            ),
            "The context is too long: m was made for up to 4,096 tokens.",
            "上下文太长：m 最多支持 4,096 个 token。",
        ),
        (
            wire.PlanAnswer(outcome="not_here", verdict="it is downloaded when it is loaded", name="org/m"),
            "org/m is downloaded when it is loaded; only then is it known whether it fits.",
            "org/m 会在加载时下载，届时才知道是否放得下。",
        ),
    ],
)
def test_the_verdict_is_made_of_the_plans_numbers_in_both_languages(answer, english, chinese):
    texts = load_texts()

    found = {language: plan_view(answer, texts[language]) for language in texts}

    assert (found["en"].reason, found["zh"].reason) == (english, chinese)
    assert {view.detail for view in found.values()} == {""}


def test_a_model_that_can_t_be_used_is_said_by_the_reason_and_the_engine_names_the_file():
    answer = wire.PlanAnswer(
        outcome="refused", verdict="/m/config.json names no model_type", name="m", reason="damaged_config"
    )

    found = plan_view(answer, load_texts()["zh"])

    assert (found.reason, found.detail) == ("m 的 config.json 无法使用。", "/m/config.json names no model_type")


def test_every_reason_of_the_engine_has_a_sentence():
    own = {"context_above_native", "does_not_fit"}
    reasons = set(get_args(RefusalReason)) - own

    for reason in reasons:
        answer = wire.PlanAnswer(outcome="refused", verdict="in English", name="m", reason=reason)
        found = plan_view(answer, load_texts()["zh"])

        assert (found.reason != "in English", found.detail) == (True, "in English")


@pytest.mark.parametrize(
    ("code", "message", "sentence"),
    [
        ("request_not_found", "The request 'x' is not here.", "这个请求已不在这里，可能刚刚结束。"),
        ("model_refused", "no room.", "引擎拒绝了此模型，原因：no room."),
        ("something_new", "As control says it.", "As control says it."),
    ],
)
def test_a_refusal_is_said_by_its_code(code, message, sentence):
    assert refusal_words(code, message, load_texts()["zh"]) == sentence
