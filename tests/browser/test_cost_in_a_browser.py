"""The page *Cost* as a person uses it: ranges, charts with their tables, and prices by mouse, keyboard and phone."""

import msgspec
import pytest

from control.wire import COST, PRICES, PriceList
from tests.fakes import control as fake
from tests.fakes import cost

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LONG_ID = "a-publisher-with-a-name/A-Model-Whose-Id-Goes-On-And-On-Instruct-2611-MLX-4bit-group-64"
# What is cut off, and what scrolls sideways.
CUT_OFF = """() => {
    const numbers = [...document.querySelectorAll("main .figure .value, main td.num")];
    const scrolls = [...document.querySelectorAll("main .cost-columns .scroll, #prices .scroll")];
    return [...numbers, ...scrolls]
        .filter((each) => each.offsetParent !== null && each.scrollWidth > each.clientWidth + 1)
        .map((each) => each.className + " " + each.textContent.trim().slice(0, 40));
}"""


class Reckoned(dict):
    """Answers of a control that keeps the last list of prices it was sent, and reckons with it."""

    def __init__(self, orders: list, prices: PriceList) -> None:
        super().__init__({COST: None, PRICES: None})
        self._orders, self._prices = orders, prices

    def __getitem__(self, path: str) -> msgspec.Struct:
        sent = [body for _, where, body in self._orders if where == PRICES]
        prices = msgspec.convert(sent[-1], PriceList) if sent else self._prices
        return prices if path == PRICES else cost.report(prices)


def reckon(control: fake.FakeControl, prices: PriceList | None = None) -> None:
    control.answers = Reckoned(control.orders, prices or PriceList())
    control.order_answers[PRICES] = PriceList()


def open_cost(pages, console, path: str = "/cost", **options):
    page = pages.open(console.link(), **options)
    page.goto(f"{console.address}{path}")
    return page


def refused(complaint: str) -> bool:
    """Chromium reports a page that comes with 422, which is how a form is sent back."""
    return "status of 422" in complaint


def test_a_changed_price_is_seen_in_all_amounts_at_once(console, control, pages):
    reckon(control)
    page = open_cost(pages, console)
    before = page.inner_text("#figure-saved .value"), page.inner_text("#by-month tbody tr:last-child .money")

    page.get_by_role("button", name="Change the price of all other models").click()
    page.wait_for_selector("#price-default-currency:focus")
    page.locator("#price-default").get_by_label("generated").fill("30")
    page.get_by_role("button", name="Save the price").click()
    page.wait_for_selector("#notice >> text=All amounts, past ones too")

    after = page.inner_text("#figure-saved .value"), page.inner_text("#by-month tbody tr:last-child .money")
    assert before == ("¥99.50", "¥1.63")
    assert after == ("¥211.82", "¥3.47")
    assert page.inner_text("#prices tbody .num >> nth=2") == "30"
    assert control.orders == [
        ("PUT", PRICES, {"default": {"currency": "CNY", "miss": 1.0, "hit": 0.1, "output": 30.0}, "models": {}})
    ]


def test_a_model_gets_a_price_in_its_own_currency_by_keyboard_and_loses_it_again(console, control, pages):
    reckon(control)
    page = open_cost(pages, console, "/cost?range=month")

    page.focus("#prices .aside > button")
    page.keyboard.press("Enter")
    page.wait_for_selector("#price-new-model:focus")
    page.keyboard.type("demo")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    for text in ("usd", "0.27", "0.07", "1.1"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    with page.expect_navigation():
        page.locator("#price-new button.primary").press("Enter")
    charts = page.locator("figure.chart h2").all_inner_texts()
    beside = page.inner_text("#figure-saved .note")

    page.get_by_role("button", name="Remove the price of demo").click()
    page.wait_for_selector("#price-1-remove:popover-open >> text=That changes the past amounts, too")
    page.get_by_role("button", name="Remove the price", exact=True).click()
    page.wait_for_selector("#notice >> text=has the price of all other models now")

    assert charts == ["Saved each day, in CNY", "Saved each day, in USD"]
    assert beside == "+ $4.51"
    assert page.inner_text("#figure-saved .value") == "¥99.50"
    assert [list(body["models"]) for _, _, body in control.orders] == [["demo"], []]


def test_what_was_typed_stays_with_the_reason_at_its_field_and_can_be_mended(console, control, pages):
    pages.forgives = refused
    reckon(control, cost.TWO_CURRENCIES)
    page = open_cost(pages, console, "/cost?range=week")
    page.get_by_role("button", name="Change the price of demo").click()
    page.fill("#price-1-miss", "0.5")
    page.fill("#price-1-hit", "cheap")
    page.locator("#price-1 button.primary").click()

    page.wait_for_selector("#price-1:popover-open >> text=A number from 0 to 1,000,000.")
    focused, address = page.evaluate("document.activeElement.id"), page.url
    kept = (page.input_value("#price-1-miss"), page.input_value("#price-1-hit"))
    refused_orders = list(control.orders)
    page.fill("#price-1-hit", "0.01")
    page.locator("#price-1 button.primary").click()
    page.wait_for_selector("#notice >> text=New price of demo")

    assert (focused, address) == ("price-1-hit", f"{console.address}/cost?range=month")
    assert kept == ("0.5", "cheap")
    assert refused_orders == []
    assert control.orders[0][2]["models"]["demo"] == {"currency": "USD", "miss": 0.5, "hit": 0.01, "output": 1.1}


def test_without_javascript_prices_are_changed_and_mistakes_are_said(console, control, pages):
    pages.forgives = refused
    reckon(control)
    page = open_cost(pages, console, java_script_enabled=False)
    page.get_by_role("button", name="Change the price of all other models").click()
    page.fill("#price-default-miss", "-2")
    page.locator("#price-default button.primary").click()
    said = page.inner_text("main noscript .banner, main > .banner")
    page.get_by_role("button", name="Change the price of all other models").click()
    reason = page.inner_text("#price-default-miss-wrong")
    page.fill("#price-default-miss", "2")
    page.locator("#price-default button.primary").click()

    assert "Nothing was changed" in said
    assert "A number from 0 to" in reason
    assert "¥2.00 computed" in page.inner_text("#notice")
    page.click("figure.chart summary")
    assert page.locator("figure.chart tbody tr").count() == 26


def test_a_range_is_a_link_and_is_asked_for(console, control, pages):
    reckon(control)
    page = open_cost(pages, console)

    page.get_by_role("link", name="7 days").click()
    page.wait_for_url("**/cost?range=week")

    assert control.questions[-1] == (COST, "range=week")


def test_a_refresh_keeps_the_canvas_the_open_table_and_the_place(console, control, pages):
    reckon(control)
    page = open_cost(pages, console)
    page.wait_for_selector(".plot canvas")
    page.click("figure.chart summary")
    tops = "[...document.querySelectorAll('main section, main figure')].map((each) => each.getBoundingClientRect().top)"
    before = page.evaluate(f"(window.canvas = document.querySelector('.plot canvas'), {tops})")

    control.orders.append(("PUT", PRICES, {"default": {"currency": "CNY", "miss": 1, "hit": 0.1, "output": 6}}))
    with page.expect_response("**/cost/live?range=month"):
        page.evaluate("htmx.trigger('#live', 'refresh')")
    page.wait_for_selector("#figure-saved >> text=¥111.98")

    assert page.evaluate("document.querySelector('.plot canvas') === window.canvas")
    assert page.evaluate("document.querySelector('figure.chart details').open")
    assert page.evaluate(tops) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_number_is_cut_off_and_nothing_scrolls_sideways(console, control, pages, viewport, locale, scheme):
    dollars = cost.TWO_CURRENCIES.models["demo"]
    reckon(control, PriceList(models={"demo": dollars, LONG_ID: dollars}))
    page = open_cost(pages, console, viewport=viewport, locale=locale, color_scheme=scheme)

    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    for button in page.locator("#prices .c-orders > button").all():
        box = button.bounding_box()
        assert box["x"] + box["width"] <= viewport["width"]


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_form_of_a_price_fits_the_window(console, control, pages, viewport, locale):
    reckon(control, PriceList(models={LONG_ID: cost.TWO_CURRENCIES.models["demo"]}))
    page = open_cost(pages, console, viewport=viewport, locale=locale)

    for panel in ("price-new", "price-1"):
        page.locator(f"[popovertarget={panel}]").first.click()
        sheet = page.locator(f"#{panel}").bounding_box()
        assert sheet["y"] >= 0
        assert sheet["y"] + sheet["height"] <= viewport["height"]
        assert page.evaluate(f"document.getElementById('{panel}').scrollWidth <= innerWidth")
        page.keyboard.press("Escape")


def test_before_the_first_request_the_page_says_what_it_is_for(console, control, pages):
    control.answers = {COST: cost.empty()}
    page = open_cost(pages, console, locale="zh-CN")

    assert "还没有处理过请求" in page.inner_text("main")
    page.click("main >> text=连接客户端")
    page.wait_for_url("**/clients")
