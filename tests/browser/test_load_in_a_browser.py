"""Loading a model as a person does it: from the table to the sliders, the plan and the order; by mouse and keyboard."""

import re

import msgspec
import pytest

from control import wire
from tests.fakes import control as fake

SMALL_SCREEN = {"width": 390, "height": 844}


def plan_of(*, context: int = 262_144, pool_gib: float = 16, verdict: str = "mine fits.") -> wire.PlanAnswer:
    plan = msgspec.structs.replace(
        fake.PLAN,
        maximum_context_tokens=context,
        pool_bytes=int(pool_gib * fake.GIB),
        smallest_pool_bytes=352 * fake.MIB,
    )
    return wire.PlanAnswer(outcome="fits", verdict=verdict, name="mine", plan=plan, native_context_tokens=262_144)


def too_large() -> wire.PlanAnswer:
    plan = msgspec.structs.replace(plan_of().plan, limit_bytes=100 * fake.GIB, fits=False)
    verdict = "mine does not fit: it takes 198.0 GiB, 98.0 GiB more than the 100.0 GiB there are."
    return wire.PlanAnswer(outcome="too_large", verdict=verdict, name="mine", plan=plan, native_context_tokens=262_144)


def forgiven(complaint: str) -> bool:
    """Chromium reports a page that comes with 422, which is how a form is sent back."""
    return "status of 422" in complaint


@pytest.fixture
def planned(control):
    shape = {"architecture": "dense", "quantization": "4-bit", "weights_bytes": 1, "native_context_tokens": 262_144}
    control.models = tuple(
        wire.ModelOnDisk(name=name, path=f"/m/{name}", fits=fits, is_demo=False, **shape)
        for name, fits in (("mine", True), ("far-too-large", False))
    )
    control.order_answers[wire.PLAN] = plan_of()
    return control


def asked(control) -> list[dict[str, object]]:
    """What the planner was asked, in order."""
    return [body for _, path, body in control.orders if path == wire.PLAN]


def ordered(control) -> list[dict[str, object]]:
    return [body for _, path, body in control.orders if path == wire.LOAD]


def open_form(pages, console, **options):
    page = pages.open(console.link(), **options)
    page.goto(f"{console.address}/model/load?model=mine")
    page.wait_for_selector("#verdict >> text=It fits.")
    return page


def slide(page, slider: str, keys: str, times: int = 1) -> None:
    page.focus(f"#slide-{slider}")
    for _ in range(times):
        page.keyboard.press(keys)


def test_a_model_is_loaded_from_the_table_after_its_plan_was_seen(own_console, planned, pages):
    page = pages.open(own_console.link())

    page.click("nav >> text=Model")
    page.click("#model-list tr:has-text('mine') >> text=Load…")
    page.wait_for_selector("#verdict >> text=It fits.")
    page.get_by_role("button", name="Load", exact=True).click()
    page.wait_for_url(f"{own_console.address}/model")

    assert asked(planned) == [{"model": "mine"}]
    assert ordered(planned) == [{"model": "mine"}]


def test_moving_a_slider_writes_its_number_and_brings_another_plan(console, planned, pages):
    page = open_form(pages, console)
    before = page.inner_text("#plan .facts")
    planned.order_answers[wire.PLAN] = plan_of(context=65_536)

    slide(page, "context", "ArrowLeft", times=8)
    page.wait_for_selector("#plan-reason >> text=the full 65,536 tokens")

    assert page.input_value("#load-context") == "65,536"
    assert page.get_attribute("#slide-context", "aria-valuetext") == "65,536"
    assert asked(planned)[-1] == {"model": "mine", "context": 65_536}
    assert page.inner_text("#plan .facts") != before
    assert page.evaluate("document.activeElement.id") == "slide-context"
    assert len(asked(planned)) <= 3, "each step asked for a plan"


def test_a_number_that_is_typed_moves_the_slider(console, planned, pages):
    page = open_form(pages, console)
    planned.order_answers[wire.PLAN] = plan_of(pool_gib=4)

    page.fill("#load-budget_bytes", "4 GiB")
    page.wait_for_selector("#plan-reason >> text=get 4.0 GiB")

    assert page.get_attribute("#slide-budget_bytes", "aria-valuetext") == "4 GiB"
    assert asked(planned)[-1] == {"model": "mine", "budget_bytes": 4 * fake.GIB}


def test_the_last_answer_wins_and_nothing_moves_meanwhile(console, planned, pages):
    page = open_form(pages, console)
    top = page.locator("#load-button").bounding_box()["y"]
    planned.answers_after_s = 0.6
    page.fill("#load-context", "8,192")
    page.wait_for_timeout(400)
    planned.order_answers[wire.PLAN] = plan_of(context=16_384)

    page.fill("#load-context", "16,384")
    page.wait_for_selector("#plan-reason >> text=the full 16,384 tokens")
    page.wait_for_timeout(900)

    assert "the full 16,384 tokens" in page.inner_text("#plan-reason")
    assert page.locator("#load-button").bounding_box()["y"] == top
    assert [each.get("context") for each in asked(planned)] == [None, 8_192, 16_384]


def test_a_refusal_is_seen_before_anything_is_ordered_and_mended_by_another_choice(console, planned, pages):
    planned.order_answers[wire.PLAN] = too_large()
    page = pages.open(console.link())
    page.goto(f"{console.address}/model/load?model=mine")
    page.wait_for_selector("#verdict >> text=It does not fit.")
    button = page.get_by_role("button", name="Load", exact=True)
    was_disabled, why = button.is_disabled(), page.inner_text("#load-why-not")

    planned.order_answers[wire.PLAN] = plan_of()
    page.select_option("#load-kv_bits", "4")
    page.wait_for_selector("#verdict >> text=It fits.")

    assert was_disabled
    assert "the plan says why" in why
    assert button.is_enabled()
    assert asked(planned)[-1] == {"model": "mine", "kv_bits": 4}
    assert ordered(planned) == []


def test_a_model_that_is_not_here_can_be_ordered_though_nothing_is_known_of_it(own_console, planned, pages):
    sentence = "org/name is not on this machine; it is downloaded when it is loaded"
    planned.order_answers[wire.PLAN] = wire.PlanAnswer(outcome="not_here", verdict=sentence, name="org/name")
    page = pages.open(own_console.link())
    page.goto(f"{own_console.address}/model")

    page.get_by_label("Another folder").fill("org/name")
    page.click("text=Plan and load…")
    page.wait_for_selector("#verdict >> text=not on this machine yet")
    sliders = page.locator("input[type=range]:visible").count()
    page.get_by_role("button", name="Load", exact=True).click()
    page.wait_for_url(f"{own_console.address}/model")

    assert sliders == 0
    assert ordered(planned) == [{"model": "org/name"}]


def test_a_form_with_a_mistake_comes_back_at_the_field_and_can_be_mended(own_console, planned, pages):
    pages.forgives = forgiven
    page = open_form(pages, own_console)
    page.click("text=More settings")
    page.get_by_label("Longest pause").fill("12")
    page.wait_for_selector("#plan-reason >> text=from 50 to 10,000")
    was_disabled = page.locator("#load-button").is_disabled()

    page.evaluate("document.getElementById('load-form').submit()")
    page.wait_for_selector("#load-max_gap_ms-wrong")
    said, address = page.inner_text("#load-max_gap_ms-wrong"), page.url
    page.get_by_label("Longest pause").fill("1200")
    page.wait_for_selector("#verdict >> text=It fits.")
    page.get_by_role("button", name="Load", exact=True).click()
    page.wait_for_url(f"{own_console.address}/model")

    assert was_disabled
    assert said == "✕ Give a number of milliseconds from 50 to 10,000."
    assert address == f"{own_console.address}/model/load?model=mine"
    assert ordered(planned) == [{"model": "mine", "max_gap_ms": 1_200.0}]


def test_everything_is_done_by_keyboard(own_console, planned, pages):
    page = open_form(pages, own_console)

    page.focus("#load-context")
    page.keyboard.type("65,536")
    page.keyboard.press("Tab")
    on_slider = page.evaluate("document.activeElement.id")
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")

    assert on_slider == "slide-budget_bytes"
    assert ordered(planned) == [{"model": "mine", "context": 65_536, "budget_bytes": 352 * fake.MIB}]


def test_without_javascript_a_button_shows_the_plan_and_the_numbers_stay(console, planned, pages):
    page = pages.open(console.link(), java_script_enabled=False)
    page.goto(f"{console.address}/model")
    page.click("#model-list tr:has-text('mine') >> text=Load…")
    sliders = page.locator("input[type=range]:visible").count()

    page.get_by_label("Context, in tokens").last.fill("65,536")
    page.get_by_role("button", name="Show plan").click()

    assert sliders == 0
    assert "It fits." in page.inner_text("#verdict")
    assert page.input_value("#load-context") == "65,536"
    assert asked(planned) == [{"model": "mine", "context": 65_536}]


def test_the_token_of_the_form_is_in_no_address(console, planned, pages):
    page = pages.open(console.link())
    addresses = []
    page.on("request", lambda request: addresses.append(request.url))
    page.goto(f"{console.address}/model/load?model=mine")
    page.wait_for_selector("#verdict >> text=It fits.")

    plans = [address for address in addresses if "/plan?" in address]
    assert len(plans) == 1
    assert not any(re.search("form_token", address) for address in addresses)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_small_screen_and_nothing_is_cut(console, planned, pages, locale, scheme):
    planned.order_answers[wire.PLAN] = too_large()
    page = pages.open(console.link(), viewport=SMALL_SCREEN, locale=locale, color_scheme=scheme)
    page.goto(f"{console.address}/model/load?model=mine")
    page.wait_for_selector("#plan .facts")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = page.evaluate(
        "[...document.querySelectorAll('#plan dd, #plan .legend li, #plan button')]"
        ".filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent)"
    )
    assert cut == []
