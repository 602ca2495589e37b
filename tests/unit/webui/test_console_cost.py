"""The page *Cost*: amounts, charts and tables of a range, and prices that are changed, refused and removed."""

import html
import re

import msgspec
import pytest

from control.wire import COST, PRICES, AdminError, Price, PriceList
from tests.fakes import cost
from webui.price_form import read
from webui.text import load_texts
from webui.views.cost_chart import charts_of

ENGLISH = load_texts()["en"]
DEFAULT_FORM = {"whose": "default", "currency": "CNY", "other_currency": "", "miss": "2", "hit": "0.2", "output": "6"}


@pytest.fixture
def served(console):
    """A control that has served requests in two currencies, and takes prices."""
    console.control.answers[COST] = cost.report(cost.TWO_CURRENCIES)
    console.control.answers[PRICES] = cost.TWO_CURRENCIES
    console.control.order_answers[PRICES] = PriceList()
    return console


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page)).split())


def part(page: str, id_: str) -> str:
    """The words of the section `id_`."""
    return words(page.partition(f'id="{id_}"')[2].partition("</section>")[0])


async def test_the_page_shows_what_was_saved_in_each_currency_and_of_what_it_is_made(served):
    page = (await served.browser.get("/cost")).text

    figures = part(page, "figures")
    assert "saved ¥90.45 + $4.51 more without the cache ¥408.90 + $9.09" in figures
    assert "prompt 537 million tokens 93.1% from the cache generated 4.16 million tokens 13,420 requests" in figures
    kinds = part(page, "by-kind")
    assert re.search(r"computed [\d,]+ [\d.]+% ¥[\d.]+ \+ \$[\d.]+ from the cache [\d,]+", kinds)
    assert served.control.questions == [(COST, "range=month")]


async def test_months_are_listed_the_newest_first_and_keys_as_control_sorts_them(served):
    page = (await served.browser.get("/cost")).text

    months, keys = part(page, "by-month"), part(page, "by-key")
    assert months.index("2026-11") < months.index("2026-10")
    assert keys.index("claude") < keys.index("codex") < keys.index("nightly-batch")
    assert "Qwen3.8-27B-4bit" in part(page, "by-model")


@pytest.mark.parametrize(
    ("query", "asked"), [("?range=week", "week"), ("?range=all", "all"), ("?range=never", "month"), ("", "month")]
)
async def test_the_range_is_asked_of_control_and_marked(served, query, asked):
    served.control.answers[COST] = cost.report(chosen=asked)

    page = (await served.browser.get(f"/cost{query}")).text

    assert served.control.questions == [(COST, f"range={asked}")]
    assert re.findall(r'href="/cost\?range=(\w+)" aria-current="true"', page) == [asked]
    assert f'hx-get="/cost/live?range={asked}"' in page
    assert f'action="/cost/prices?range={asked}"' in page


async def test_the_live_part_comes_alone_and_stays_as_it_was_while_control_is_silent(served):
    live = await served.browser.get("/cost/live?range=week")
    served.control.is_silent = True
    silent = await served.browser.get("/cost/live?range=week")

    assert 'id="figures"' in live.text
    assert 'id="prices"' not in live.text
    assert (silent.status_code, silent.text) == (204, "")


async def test_before_the_first_request_the_page_teaches_and_shows_the_prices(console):
    console.control.answers[COST] = cost.empty()

    page = (await console.browser.get("/cost")).text

    assert "No request has been served yet" in words(page)
    assert 'href="/clients"' in page
    assert 'id="figures"' not in page
    assert "all other models CNY 1 0.1 3" in part(page, "prices")


async def test_a_time_without_requests_has_dashes_and_no_zeros(console):
    silent = msgspec.structs.replace(cost.report(), total=(), keys=(), models=(), range="hour")
    console.control.answers[COST] = silent

    page = (await console.browser.get("/cost?range=hour")).text

    assert "saved — more without the cache — prompt 0 tokens — from the cache generated 0 tokens 0 requests" in part(
        page, "figures"
    )
    assert "No request in this time." in part(page, "by-key")
    assert "¥0" not in part(page, "figures")


async def test_while_control_does_not_answer_the_page_says_so(console):
    console.control.is_silent = True

    page = await console.browser.get("/cost")

    assert "so the amounts are not known" in words(page.text)
    assert 'id="figures"' not in page.text


async def test_the_price_of_all_others_is_changed_and_its_effect_is_said(served):
    answer = await served.post("/cost/prices?range=week", **DEFAULT_FORM)
    page = (await served.browser.get(answer.headers["location"])).text

    assert answer.headers["location"] == "/cost?range=week"
    ((method, path, body),) = served.control.orders
    assert (method, path) == ("PUT", PRICES)
    assert body["default"] == {"currency": "CNY", "miss": 2.0, "hit": 0.2, "output": 6.0}
    assert body["models"]["demo"]["currency"] == "USD"
    assert (
        "New price of all other models: ¥2.00 computed, ¥0.20 from the cache, ¥6.00 generated, per million tokens. "
        "All amounts, past ones too, are reckoned with it." in words(page)
    )


async def test_a_model_gets_a_price_of_its_own_in_any_currency(served):
    form = {"whose": "new", "model": " org/m ", "currency": "CNY", "other_currency": "xau"}
    await served.post("/cost/prices", **form, miss="0", hit=".5", output="1000000")

    ((_, _, body),) = served.control.orders
    assert body["models"]["org/m"] == {"currency": "XAU", "miss": 0.0, "hit": 0.5, "output": 1_000_000.0}
    assert body["default"] == {"currency": "CNY", "miss": 1.0, "hit": 0.1, "output": 3.0}


async def test_a_price_is_removed_and_only_that_one(served):
    answer = await served.post("/cost/prices/remove?model=demo&range=all")

    assert answer.headers["location"] == "/cost?range=all"
    ((_, _, body),) = served.control.orders
    assert body["models"] == {}


async def test_a_price_that_is_not_there_can_not_be_removed(served):
    answer = await served.post("/cost/prices/remove?model=other")

    assert answer.status_code == 303
    assert served.control.orders == []


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("miss", "-1", "A number from 0 to 1,000,000."),
        ("miss", "nan", "A number from 0 to 1,000,000."),
        ("hit", "1e3", "A number from 0 to 1,000,000."),
        ("hit", "0,1", "A number from 0 to 1,000,000."),
        ("output", "1000001", "A number from 0 to 1,000,000."),
        ("output", "", "A number from 0 to 1,000,000."),
        ("output", "٣", "A number from 0 to 1,000,000."),
        ("other_currency", "yuan", "A currency has three letters"),
        ("other_currency", "€", "A currency has three letters"),
    ],
)
async def test_what_can_not_be_used_comes_back_as_it_was_typed_with_the_reason_at_its_field(
    served, field, value, reason
):
    answer = await served.post("/cost/prices?range=week", **{**DEFAULT_FORM, field: value})

    assert answer.status_code == 422
    assert served.control.orders == []
    typed = re.search(rf'<input id="price-default-{field}"[^>]*>', answer.text)[0]
    assert f'value="{value}"' in typed
    assert 'aria-invalid="true"' in typed
    assert "data-first" in typed
    said = answer.text.partition(f'id="price-default-{field}-wrong"')[2].partition("</p>")[0]
    assert reason in said
    assert len(re.findall("data-open", answer.text)) == 1


async def test_only_the_form_that_was_sent_comes_back_with_what_was_typed(served):
    form = {**DEFAULT_FORM, "whose": "model", "model": "demo", "miss": "much"}
    page = (await served.post("/cost/prices", **form)).text

    assert 'id="price-1-miss" name="miss" value="much"' in page
    assert 'id="price-default-miss" name="miss" value="1"' in page
    assert re.search(r'id="price-1" class="sheet"[^>]*data-open data-address="/cost\?range=month"', page)


@pytest.mark.parametrize("model", ["", "x" * 201, "a\x07b"])
def test_a_new_price_needs_the_id_of_a_model(model):
    filled = read({**DEFAULT_FORM, "whose": "new", "model": model})

    assert (filled.price, filled.wrong) == (None, {"model": "prices.model_wrong"})


async def test_what_control_refuses_is_said_in_the_form_with_what_was_typed(served):
    served.control.refusal = AdminError(code="invalid_request", message="models: there can be prices of 100 models.")

    answer = await served.post("/cost/prices", **{**DEFAULT_FORM, "whose": "new", "model": "one-more"})

    assert answer.status_code == 422
    assert "models: there can be prices of 100 models." in words(answer.text)
    assert 'id="price-new-model" name="model" value="one-more"' in answer.text


async def test_a_models_name_can_not_become_part_of_the_page(console):
    name = "<script>alert(1)</script>&\"'"
    console.control.answers[COST] = cost.report(PriceList(models={name: Price()}))

    page = (await console.browser.get("/cost")).text

    assert "<script>alert" not in page
    assert html.escape(name) in page or "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_there_is_a_chart_for_each_currency_and_days_without_a_request_are_gaps():
    yuan, dollar = charts_of(cost.report(cost.TWO_CURRENCIES), ENGLISH)

    assert (yuan.y_unit, dollar.y_unit) == ("CNY", "USD")
    assert (yuan.categories[0], yuan.categories[-1]) == ("10-31", "11-29")
    assert len(yuan.x) == len(yuan.categories) == 30
    gaps = [at for at, value in enumerate(yuan.series[0].values) if value is None]
    assert [yuan.categories[at] for at in gaps] == ["11-05", "11-12", "11-19", "11-26"]
    assert len(yuan.table.rows) == 26


def test_the_stack_of_a_day_is_its_total_and_the_table_says_the_same():
    report = cost.report()
    (chart,) = charts_of(report, ENGLISH)

    last = report.days[-1].money[0]
    assert chart.categories[-1] == "11-29"
    assert sum(series.values[-1] for series in chart.series) == pytest.approx(last.total)
    assert chart.table.rows[0][:2] == ("2026-11-29", f"¥{last.total:.2f}")


def test_amounts_too_small_for_the_axis_are_drawn_in_thousandths():
    (chart,) = charts_of(cost.report(num_days=1, scale=1), ENGLISH)
    tiny = cost.report(PriceList(default=Price(miss=0.001, hit=0.0001, output=0.003)), num_days=3)
    (small,) = charts_of(tiny, ENGLISH)

    assert chart.y_unit == "CNY"
    assert small.y_unit == "×10⁻³ CNY"
    assert small.series[0].values[-1] == pytest.approx(tiny.days[-1].money[0].output * 1000)


def test_a_single_day_stands_at_its_place_among_all_days_of_the_range():
    (chart,) = charts_of(cost.report(num_days=1), ENGLISH)

    assert (chart.categories[0], chart.categories[-1], len(chart.x)) == ("10-31", "11-29", 30)
    assert [value is None for value in chart.series[0].values] == [True] * 29 + [False]
    assert len(chart.table.rows) == 1


def test_without_any_day_there_is_one_chart_that_says_so():
    (chart,) = charts_of(cost.empty(), ENGLISH)

    assert chart.is_empty
    assert chart.empty == "No request in this time."


async def test_a_price_at_which_the_cache_is_dearer_is_remarked_on(served):
    usual = (await served.browser.get("/cost")).text
    odd = Price(currency="CNY", miss=1.0, hit=5.0, output=3.0)
    served.control.answers[COST] = msgspec.structs.replace(served.control.answers[COST], prices=PriceList(default=odd))

    remarked = (await served.browser.get("/cost")).text

    assert "costs more than a computed one" not in usual
    assert remarked.count("costs more than a computed one") == 1
