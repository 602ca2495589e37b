"""Keys as a person makes, changes and revokes them, and blocks that are copied; by mouse and by keyboard."""

import pytest

from tests.fakes import console_answers as answers

KEY = "sk-splash-AbCdEfGhIjKlMnOpQrStUvWx9xYz"


def refused(complaint: str) -> bool:
    """Chromium reports a page that comes with 422, which is how a form is sent back."""
    return "status of 422" in complaint


@pytest.fixture
def listed(console, control):
    control.keys, control.answers = answers.keys(), answers.everything()
    return console


def open_clients(console, pages, **options):
    page = pages.open(console.link(), **options)
    page.goto(f"{console.address}/clients")
    return page


def refresh(page) -> None:
    with page.expect_response("**/clients/live"):
        page.evaluate("htmx.trigger('#key-list', 'refresh')")
    page.wait_for_timeout(100)


def test_a_key_with_limits_is_made_seen_once_and_copied_by_itself_and_in_a_block(listed, control, pages):
    page = open_clients(listed, pages, permissions=["clipboard-read", "clipboard-write"])
    make = page.locator("#make")
    make.get_by_label("name").fill("laptop")
    make.get_by_label("tokens a day").fill("5,000,000")
    make.get_by_label("class").select_option("batch")

    make.get_by_role("button", name="Make the key").click()
    page.locator("#new-key button.copy").click()
    page.wait_for_selector("#new-key >> text=✓")
    copied = page.evaluate("navigator.clipboard.readText()")
    page.click("#connect-codex summary")
    page.locator("#connect-codex button.copy").first.click()
    page.wait_for_selector("#connect-codex >> text=✓")
    block = page.evaluate("navigator.clipboard.readText()")
    refresh(page)
    is_still_there = page.is_visible(f"#new-key >> text={KEY}")
    page.reload()

    assert copied == KEY
    assert f'experimental_bearer_token = "{KEY}"' in block
    assert is_still_there
    assert page.url == f"{listed.address}/clients"
    assert KEY not in page.content()
    assert [body for _, _, body in control.orders] == [
        {
            "name": "laptop",
            "request_class": "batch",
            "limits": {"max_in_flight": None, "requests_per_day": None, "tokens_per_day": 5_000_000},
        }
    ]


def test_limits_are_changed_by_keyboard_while_the_list_refreshes(listed, control, pages):
    page = open_clients(listed, pages)
    page.get_by_role("button", name="Change class and limits of nightly").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#edit-2:popover-open")
    focused = page.evaluate("document.activeElement.id")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("3")

    refresh(page)
    typed = page.input_value("#edit-2-max_in_flight")
    with page.expect_navigation():
        page.keyboard.press("Enter")

    assert (focused, typed) == ("edit-2-max_in_flight", "3")
    assert control.orders == [
        (
            "PATCH",
            "/keys/2",
            {"request_class": "batch", "max_in_flight": 3, "requests_per_day": 500, "tokens_per_day": 5_000_000},
        )
    ]


def test_a_limit_that_cannot_be_comes_back_open_at_its_field_and_can_be_mended(listed, control, pages):
    pages.forgives = refused
    page = open_clients(listed, pages)
    page.get_by_role("button", name="Change class and limits of claude").click()
    page.locator("#edit-1").get_by_label("requests a day").fill("many")
    page.locator("#edit-1").get_by_role("button", name="Save").click()

    page.wait_for_selector("#edit-1:popover-open >> text=Give a whole number")
    focused = page.evaluate("document.activeElement.id")
    refresh(page)
    kept = page.input_value("#edit-1-requests_per_day")
    page.fill("#edit-1-requests_per_day", "70")
    page.locator("#edit-1").get_by_role("button", name="Save").click()
    page.wait_for_selector("#edit-1", state="hidden")

    assert (focused, kept) == ("edit-1-requests_per_day", "many")
    assert [body["requests_per_day"] for _, _, body in control.orders] == [70]


def test_a_key_is_revoked_after_its_panel_was_read(listed, control, pages):
    page = open_clients(listed, pages)

    page.get_by_role("button", name="Revoke the key of claude").click()
    page.wait_for_selector("#revoke-1:popover-open >> text=2 requests of it run or wait now")
    page.locator("#revoke-1").get_by_role("button", name="Revoke the key").click()
    page.wait_for_url(f"{listed.address}/clients")

    assert control.orders == [("DELETE", "/keys/1", {})]


def test_the_rows_keep_their_nodes_and_heights_while_the_use_changes(listed, control, pages):
    page = open_clients(listed, pages)
    see = "() => { const row = document.getElementById('key-1'); window.row ??= row;"
    see += " return [window.row === row, row.getBoundingClientRect().height, row.innerText]; }"
    _, height, _ = page.evaluate(see)
    control.keys[0] = answers.used_more(control.keys[0])

    refresh(page)
    is_same, height_after, text = page.evaluate(see)

    assert (is_same, height_after) == (True, height)
    assert "1,205" in text


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("width", [1280, 800, 390])
def test_nothing_moves_sideways_or_overlaps(listed, pages, width, locale):
    page = open_clients(listed, pages, viewport={"width": width, "height": 844}, locale=locale, color_scheme="dark")
    for name in ("codex", "opencode", "openai", "anthropic", "curl"):
        page.click(f"#connect-{name} summary")
        assert page.evaluate("document.documentElement.scrollWidth") == width

    cut_off = "[...document.querySelectorAll('#key-2 td')].filter((td) => td.scrollWidth > td.clientWidth + 1).length"

    assert page.evaluate(cut_off) == 0


def test_without_javascript_keys_are_made_and_blocks_unfold(listed, control, pages):
    page = open_clients(listed, pages, java_script_enabled=False)
    page.locator("#make").get_by_label("name").fill("laptop")
    page.get_by_role("button", name="Make the key").click()

    page.click("#connect-openai summary")

    assert KEY in page.inner_text("#connect-openai")
    assert len(control.orders) == 1


def test_a_form_sent_while_the_console_is_lost_keeps_the_page_and_goes_through_later(own_console, control, pages):
    pages.forgives = lambda complaint: "ERR_CONNECTION_REFUSED" in complaint or "Failed to fetch" in complaint
    page = pages.open(own_console.link())
    page.goto(f"{own_console.address}/clients")

    own_console.stop()
    page.wait_for_selector("#lost:visible")
    page.fill("#key-name", "laptop")
    page.click("text=Make the key")
    page.wait_for_selector("#lost-order:visible")
    kept, address, orders = page.input_value("#key-name"), page.url, len(control.orders)
    own_console.start()
    page.wait_for_selector("#lost", state="hidden")
    is_told_still = page.is_visible("#lost-order")
    page.click("text=Make the key")
    page.wait_for_selector("#new-key")

    assert (kept, address, orders) == ("laptop", f"{own_console.address}/clients", 0)
    assert not is_told_still


def test_a_key_that_the_gateway_could_not_take_is_sent_again_without_typing(console, control, pages):
    pages.forgives = lambda complaint: "502" in complaint
    page = pages.open(console.link())
    page.goto(f"{console.address}/clients")
    page.fill("#key-name", "laptop")
    page.fill("#key-tokens_per_day", "5,000")
    control.is_silent = True

    page.click("text=Make the key")
    page.wait_for_selector("#kept")
    shown = page.inner_text("#kept dl")
    control.is_silent = False
    page.click("text=Send it again")
    page.wait_for_selector("#new-key")

    assert "laptop" in shown and "5,000" in shown
    assert control.orders[-1][2]["limits"]["tokens_per_day"] == 5_000
