"""The load form and the cache's button as a person uses them: by mouse, by keyboard, with mistakes."""

import pytest

from tests.fakes import control as fake

SETTINGS = ("kv_bits", "max_gap_ms", "decode_share")
AS_LAST_TIME = {"kv_bits": "", "max_gap_ms": "", "decode_share": ""}
IN_FORCE = {"kv_bits": "default", "max_gap_ms": "500", "decode_share": "50"}


def refused(complaint: str) -> bool:
    """Chromium reports a page that comes with 422, which is how a form is sent back."""
    return "status of 422" in complaint


@pytest.fixture
def models(control):
    shape = {"architecture": "dense", "quantization": None, "weights_bytes": 1, "native_context_tokens": 1}
    control.models = tuple(
        fake.wire.ModelOnDisk(name=name, path=f"/m/{name}", fits=True, is_demo=False, **shape)
        for name in (fake.MODEL.id, "another")
    )


def open_form(page):
    with page.expect_response("**/now/load-settings?**"):
        page.click("text=Load…")
    page.wait_for_selector("#panel-load:popover-open")


def settings(page) -> dict[str, str]:
    return {name: page.input_value(f"#load-{name}") for name in SETTINGS}


def choose(page, model: str) -> None:
    with page.expect_response("**/now/load-settings?**"):
        page.get_by_label("Model on this machine").select_option(model)
    page.wait_for_timeout(100)


def test_more_settings_unfold_by_keyboard_and_what_is_changed_there_is_ordered(own_console, control, models, pages):
    page = pages.open(own_console.link())
    page.focus("#engine .orders > .primary")
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel-load:popover-open")
    folded = page.is_visible("#load-kv_bits")

    page.focus("#load-context")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#load-kv_bits:visible")
    shown = settings(page)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.get_by_label("Longest pause of a running answer, in ms").fill("250")
    page.wait_for_timeout(1_200)
    with page.expect_navigation():
        page.keyboard.press("Enter")

    assert not folded
    assert shown == IN_FORCE
    assert control.orders == [("POST", "/engine/load", {"kv_bits": 4, "max_gap_ms": 250.0})]


def test_a_form_with_a_mistake_comes_back_open_at_the_field_and_can_be_mended(own_console, control, models, pages):
    pages.forgives = refused
    page = pages.open(own_console.link())
    open_form(page)
    page.click("text=More settings")
    choose(page, "another")
    page.get_by_label("Context, in tokens").fill("65,536")
    page.get_by_label("Longest pause").fill("12")
    page.get_by_role("button", name="Load", exact=True).click()

    page.wait_for_selector("#panel-load:popover-open >> text=from 50 to 10,000")
    page.wait_for_timeout(1_500)
    focused, address = page.evaluate("document.activeElement.id"), page.url
    said = page.inner_text("#load-max_gap_ms-wrong")
    kept = (page.input_value("#load-model"), page.input_value("#load-context"), settings(page))
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("1200")
    page.get_by_role("button", name="Load", exact=True).click()
    page.wait_for_selector("#panel-load", state="hidden")

    assert (focused, address) == ("load-max_gap_ms", f"{own_console.address}/")
    assert said == "✕ Give a number of milliseconds from 50 to 10,000."
    assert kept == ("another", "65,536", AS_LAST_TIME | {"max_gap_ms": "12"})
    assert control.orders == [("POST", "/engine/load", {"model": "another", "context": 65_536, "max_gap_ms": 1_200.0})]


def test_the_settings_follow_the_chosen_model_but_keep_what_was_typed(own_console, models, pages):
    page = pages.open(own_console.link())
    open_form(page)
    page.click("text=More settings")
    page.get_by_label("Share of the time").fill("20")

    choose(page, "another")
    of_another = settings(page)
    choose(page, fake.MODEL.id)
    of_the_running = settings(page)
    with page.expect_response("**/now/load-settings?**"):
        page.get_by_label("Or a folder").fill("/models/mine")
        page.keyboard.press("Tab")
    page.wait_for_timeout(100)

    assert of_another == AS_LAST_TIME | {"decode_share": "20"}
    assert of_the_running == IN_FORCE | {"decode_share": "20"}
    assert settings(page) == of_another
    assert page.evaluate("document.activeElement.id") == "load-context"


def test_without_javascript_a_mistake_is_said_on_the_page_and_at_its_field(console, control, pages):
    pages.forgives = refused
    page = pages.open(console.link(), java_script_enabled=False)
    page.click("text=Load…")
    page.get_by_label("Context, in tokens").fill("many")
    page.get_by_role("button", name="Load", exact=True).click()

    said = page.inner_text("main > .banner, main noscript")
    page.click("text=Load…")

    assert "Nothing was loaded" in said
    assert page.is_visible("#load-context-wrong")
    assert control.orders == []


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("viewport", [(1280, 900), (1280, 560), (390, 844)], ids=str)
def test_the_unfolded_form_fits_the_window_with_its_buttons_in_sight(console, control, pages, viewport, locale):
    width, height = viewport
    page = pages.open(console.link(), viewport={"width": width, "height": height}, locale=locale)
    page.click("#engine .orders > .primary")
    page.click("#panel-load summary")

    sheet = page.locator("#panel-load").bounding_box()
    button = page.locator("#panel-load .buttons .primary").bounding_box()
    page.focus("#load-decode_share")
    field = page.locator("#load-decode_share").bounding_box()

    assert sheet["y"] >= 0
    assert sheet["y"] + sheet["height"] <= height
    assert button["y"] + button["height"] <= sheet["y"] + sheet["height"]
    assert field["y"] + field["height"] <= button["y"]
    assert page.evaluate("document.querySelector('#panel-load').scrollWidth <= innerWidth")


def test_the_cache_is_cleared_after_its_panel_was_read_and_the_page_says_what_was_freed(console, control, pages):
    page = pages.open(console.link())

    page.click("#engine >> text=Clear cache…")
    page.wait_for_selector("#panel-clear:popover-open >> text=The cache keeps 8.2 GiB")
    page.get_by_role("button", name="Clear the cache", exact=True).click()
    page.wait_for_selector("#notice >> text=The cache gave back 8.2 GiB")
    control.overview = fake.overview(view=fake.engine("unloaded"))
    page.wait_for_selector("#engine >> text=No model is loaded")

    assert control.orders == [("POST", "/engine/cache/clear", {})]
    assert page.get_by_role("button", name="Clear cache…", exact=True).is_disabled()


def test_a_model_without_rows_is_a_calm_fact(console, control, pages):
    control.overview = fake.overview(view=fake.padded_engine())
    page = pages.open(console.link())
    page.wait_for_selector("#engine .facts >> text=padded to the longest")

    page.hover("#engine .facts >> text=batching")

    assert page.locator("#engine .problem").count() == 0
    assert "which takes memory and time" in page.inner_text("#hint:popover-open")
