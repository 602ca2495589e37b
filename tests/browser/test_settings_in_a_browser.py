"""Settings as a person changes them, and what a refusal leaves of what was typed."""

import pytest

from control import wire
from control.wire import AdminError
from tests.fakes import console_answers as answers


@pytest.fixture
def settings(console, control):
    control.answers = answers.everything()
    return console


def open_settings(console, pages, **options):
    page = pages.open(console.link(), **options)
    page.goto(f"{console.address}/settings")
    return page


def test_a_sign_of_life_is_chosen_and_saved(settings, control, pages):
    page = open_settings(settings, pages)
    page.get_by_label("Messages (Claude Code)").select_option(
        label="pings only: Claude Code gives up after 5 minutes of waiting"
    )

    page.locator("#heartbeats").get_by_role("button", name="Save").click()
    page.wait_for_selector("#notice >> text=The next streams get these signs of life")

    assert control.orders == [("PUT", wire.HEARTBEATS, {"modes": {"responses": "typed", "messages": "ping"}})]


def test_a_name_that_control_refuses_stays_typed_with_the_reason_and_can_be_mended(settings, control, pages):
    pages.forgives = lambda complaint: "status of 422" in complaint
    page = open_settings(settings, pages)
    control.refusal = AdminError(code="invalid_request", message="aliases: this can't be a name.")
    page.get_by_label("another name").fill("gemini-*")
    page.locator(".new-alias").get_by_label("class").select_option("batch")
    page.get_by_role("button", name="Add the name").click()

    page.wait_for_selector("#alias-name-wrong >> text=this can't be a name")
    kept = (page.input_value("#alias-name"), page.input_value("#alias-class"))
    focused = page.evaluate("document.activeElement.id")
    address = page.url
    control.refusal = None
    page.get_by_role("button", name="Add the name").click()
    page.wait_for_selector("#notice >> text=gemini-*")

    assert kept == ("gemini-*", "batch")
    assert (focused, address) == ("alias-name", f"{settings.address}/settings")
    ((_, _, body),) = control.orders
    assert body["aliases"][-1] == {"name": "gemini-*", "request_class": "batch"}


def test_a_name_is_removed_after_its_panel_was_read_by_keyboard(settings, control, pages):
    page = open_settings(settings, pages)
    page.get_by_role("button", name="Remove the name gpt-*").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("[popover]:popover-open >> text=New requests that ask for gpt-* get a 404")

    page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")

    ((_, _, body),) = control.orders
    assert [each["name"] for each in body["aliases"]] == ["default", "claude-*", "claude-haiku-*", "codex-*"]


def test_a_name_is_moved_up(settings, control, pages):
    page = open_settings(settings, pages)

    with page.expect_navigation():
        page.get_by_role("button", name="Move codex-* up").click()

    ((_, _, body),) = control.orders
    assert [each["name"] for each in body["aliases"]][-2:] == ["codex-*", "gpt-*"]


def test_a_backup_is_made_and_the_page_says_where(settings, control, pages):
    control.order_answers[wire.BACKUP] = wire.Backup("/home/backups/splash-1.db", 1024**2, 0.1, 7)
    page = open_settings(settings, pages)

    page.get_by_role("button", name="Make a backup").click()

    page.wait_for_selector("#notice >> text=backups/splash-1.db, 1.0 MiB, 7 requests")
    assert [path for _, path, _ in control.orders] == [wire.BACKUP]


def test_language_and_theme_are_chosen_here(settings, pages):
    page = open_settings(settings, pages)
    page.get_by_role("button", name="dark", exact=True).click()
    page.wait_for_selector("html[data-theme=dark]")
    page.get_by_role("button", name="简体中文", exact=True).click()
    page.wait_for_selector("html[lang=zh-Hans]")

    assert page.inner_text("h1") == "设置"
    assert page.url == f"{settings.address}/settings"


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves_sideways(settings, pages, width, locale):
    page = open_settings(settings, pages, viewport={"width": width, "height": 844}, locale=locale)

    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_without_javascript_a_setting_is_changed(settings, control, pages):
    page = open_settings(settings, pages, java_script_enabled=False)

    page.get_by_role("group", name="Requests at once").get_by_role("button", name="2").click()

    assert control.orders == [("POST", wire.CONCURRENCY, {"concurrency": 2})]
    assert "Up to 2 at a time" in page.inner_text("#notice")
