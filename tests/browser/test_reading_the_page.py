"""What a person can read and reach: hints, long names, small screens, the focus in panels."""

import msgspec
import pytest

from tests.fakes import control as fake

LONGEST_NAME = "a-very-long-client-name-that-goes-on-and-on-and-on-to-64-chars-x"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

# Opens every hint as the mouse would; tells those that are not wholly inside the window.
HINTS_OUTSIDE = """() => [...document.querySelectorAll("[data-hint]")].flatMap((word) => {
    word.scrollIntoView({block: "center"});
    word.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
    const hint = document.getElementById("hint");
    const at = hint.getBoundingClientRect();
    const isInside = hint.matches(":popover-open") && hint.textContent === word.dataset.hint && at.left >= 0
        && at.top >= 0 && at.right <= innerWidth && at.bottom <= innerHeight;
    const isWide = document.documentElement.scrollWidth > innerWidth;
    word.dispatchEvent(new MouseEvent("mouseout", {bubbles: true, relatedTarget: document.body}));
    return isInside && !isWide ? [] : [word.textContent];
})"""
# Numbers that are cut off, and parts that scroll sideways.
CUT_OFF = """() => {
    const cells = [...document.querySelectorAll("#line td.num, #recent td.num, #slots td.num, #line td.c-cancel")];
    const scrolls = [...document.querySelectorAll("#line .scroll, #recent .scroll")];
    return [...cells, ...scrolls].filter((each) => each.offsetParent !== null && each.scrollWidth > each.clientWidth)
        .map((each) => each.className + " " + each.textContent.trim().slice(0, 40));
}"""


def named(struct):
    return msgspec.structs.replace(struct, key=LONGEST_NAME)


def full_house() -> fake.wire.Overview:
    held = msgspec.structs.replace(fake.waiting(5009, 5, phase="held", waited_s=86_399))
    return fake.overview(
        slots=(named(fake.prefilling()), named(fake.decoding())),
        line=(*(named(fake.waiting(5000 + n, n)) for n in range(1, 5)), held),
    )


def ended() -> tuple[fake.wire.RequestRow, ...]:
    codes = [("completed", None), ("failed", "engine_died"), ("cancelled", "client_gone"), ("rejected", "no_model")]
    return tuple(named(fake.finished(4800 + n, outcome, error_code=code)) for n, (outcome, code) in enumerate(codes))


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_every_hint_is_read_whole_and_nothing_is_pushed_aside_by_it(console, control, pages, viewport, locale):
    control.overview, control.requests = full_house(), ended()
    page = pages.open(console.link(), viewport=viewport, locale=locale)

    assert page.locator("[data-hint]").count() > 25
    assert page.evaluate(HINTS_OUTSIDE) == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_a_long_name_cuts_off_no_number_and_can_be_read_whole(console, control, pages, viewport, locale):
    control.overview, control.requests = full_house(), ended()
    page = pages.open(console.link(), viewport=viewport, locale=locale)

    assert page.evaluate(CUT_OFF) == []
    assert page.locator(f'[title*="{LONGEST_NAME}"]').count() == 10


def test_the_tab_key_stops_once_a_section_and_the_arrows_read_the_rest(console, control, pages):
    control.overview, control.requests = full_house(), ended()
    page = pages.open(console.link())

    page.focus("#recent [data-hint]")
    first = page.inner_text("#hint:popover-open")
    page.keyboard.press("ArrowRight")
    second = page.inner_text("#hint:popover-open")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    last = page.inner_text("#hint:popover-open")
    page.wait_for_timeout(1_200)
    is_still_open = page.is_visible("#hint")
    page.keyboard.press("Escape")

    assert first.startswith("The request's number")
    assert second.startswith("When the request arrived")
    assert last.startswith("How the request ended")
    assert is_still_open
    assert page.is_hidden("#hint")
    assert page.locator("main section [data-hint][tabindex='0']").count() == page.locator("main section").count()


def test_a_panel_takes_the_focus_and_gives_it_back(console, control, pages):
    control.overview = full_house()
    page = pages.open(console.link())
    focused = "document.activeElement.textContent.trim()"

    page.focus("#slot-1 .c-cancel > button")
    page.keyboard.press("Enter")
    page.wait_for_selector("#cancel-r4812:popover-open")
    page.wait_for_timeout(1_200)
    inside = page.evaluate(focused)
    page.keyboard.press("Escape")
    page.wait_for_selector("#cancel-r4812", state="hidden")
    outside = page.evaluate(focused)
    assert (inside, outside) == ("Back", "cancel")


def test_a_second_click_gives_no_second_order(console, control, pages):
    control.answers_after_s = 0.5
    page = pages.open(console.link())

    page.click("#engine >> text=Restart…")
    page.get_by_role("button", name="Restart", exact=True).dblclick()
    page.wait_for_url(f"{console.address}/")
    page.wait_for_timeout(300)

    assert control.orders == [("POST", "/engine/restart", {})]


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_room_for_memory_is_the_same_without_a_model(console, control, pages, viewport):
    height = "document.getElementById('memory').getBoundingClientRect().height"
    control.overview = fake.overview()
    page = pages.open(console.link(), viewport=viewport)
    with_model = page.evaluate(height)
    control.overview = fake.overview(view=fake.engine("unloaded"))
    page.wait_for_selector("#state-word >> text=no model")

    assert page.evaluate(height) == with_model


def test_a_long_list_of_keys_does_not_move_the_page_sideways_on_a_phone(console, control, pages):
    view = {"request_class": "batch", "hint": "sk-splash-AbC…9xYz", "created_at_s": 1.795e9}
    control.keys = [
        fake.wire.KeyView(id=1, name=LONGEST_NAME, **view),
        fake.wire.KeyView(id=2, name="old", revoked_at_s=1.796e9, **view),
    ]
    page = pages.open(console.link(), viewport=PHONE)

    page.goto(f"{console.address}/clients")

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.is_visible("#key-1 >> text=revoke")
    assert page.locator("#key-1 button").first.bounding_box()["x"] < 390
