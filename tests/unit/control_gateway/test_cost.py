"""What the rows of requests cost: by range, day, month, key and model, and the routes that say and set it."""

import asyncio
import random
from collections import Counter
from datetime import date
from fractions import Fraction
from types import SimpleNamespace

import httpx
import msgspec
import pytest
from sqlalchemy import insert
from starlette.applications import Starlette

from control import wire
from control.admin.cost import CostApi
from control.admin.edge import HANDLERS
from control.metrics.cost_questions import CostQuestions
from control.metrics.database import open_database, open_for_reading
from control.metrics.local_day import local_day, local_midnight_s, midnight_days_before_s
from control.metrics.questions import Questions
from control.metrics.ranges import since_s
from control.metrics.rollups import Sums
from control.metrics.settings import load_settings
from control.metrics.tables import requests
from control.metrics.writer import Writer
from control.prices import Prices, Tariff, Tokens, stored_prices
from control.wire import CostLine, CostReport, Money, Price, PriceList
from tests.unit.control_gateway.test_metrics import NOON, row

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
KINDS = ("miss", "hit", "output", "total", "cache_saving")
TWO_CURRENCIES = PriceList(models={"deep": Price(currency="USD", miss=0.27, hit=0.07, output=1.1)})


@pytest.fixture
def splash(tmp_path):
    """A database, the routes on it, and `keep`, which stores rows as the writer does: each row, and all sums."""
    database = open_database(tmp_path / "splash.db")
    writer = Writer(database)
    clock = SimpleNamespace(now_s=NOON)
    settings, prices = load_settings(database, writer), Prices()
    questions = Questions(open_for_reading(tmp_path / "splash.db"), wall=lambda: clock.now_s)
    costs = CostQuestions(questions, prices, wall=lambda: clock.now_s)
    app = Starlette(
        routes=CostApi(settings=settings, prices=prices, questions=costs).routes(), exception_handlers=HANDLERS
    )

    async def keep(*rows: wire.RequestRow) -> None:
        sums = Sums()
        for each in rows:
            sums.add(each)

        def store(connection) -> None:
            connection.execute(insert(requests), [msgspec.structs.asdict(each) for each in rows])
            sums.store(connection)

        await writer.write(store)

    yield SimpleNamespace(
        keep=keep,
        clock=clock,
        costs=costs,
        prices=prices,
        settings=settings,
        client=httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://splash",
            headers={"content-type": "application/json"},
        ),
    )
    writer.close()
    questions.close()


def ago(number: int, seconds: float, **fields) -> wire.RequestRow:
    return row(number, **{"started_at_s": NOON - seconds, **fields})


async def test_what_ran_in_a_range_is_charged_and_what_was_turned_away_is_not(splash):
    await splash.keep(
        ago(1, 60, prompt_tokens=1_000_000, cached_tokens=900_000, completion_tokens=100_000),
        ago(2, 60, outcome="cancelled", prompt_tokens=0, cached_tokens=0, completion_tokens=100_000),
        ago(3, 60, outcome="failed", prompt_tokens=1_000_000, cached_tokens=0, completion_tokens=0),
        ago(4, 60, outcome="rejected", prompt_tokens=9_000_000, cached_tokens=0, completion_tokens=0),
    )

    report = await splash.costs.report("day")

    assert report.total == (Money(currency="CNY", miss=1.1, hit=0.09, output=0.6, total=1.79, cache_saving=0.81),)
    (line,) = report.keys
    assert (line.label, line.requests, line.prompt_tokens) == ("k", 3, 2_000_000)


@pytest.mark.parametrize(("chosen", "seconds"), [("hour", HOUR_S), ("day", DAY_S), ("week", 7 * DAY_S)])
@pytest.mark.parametrize("into_the_hour_s", [0, 1, 1_800, 3_599])
async def test_a_range_begins_to_the_second_wherever_that_is_in_an_hour(splash, chosen, seconds, into_the_hour_s):
    splash.clock.now_s = NOON + into_the_hour_s
    begin_s = NOON + into_the_hour_s - seconds
    at = (begin_s - 1, begin_s, begin_s + 1, begin_s + HOUR_S / 2, NOON - 1, NOON + into_the_hour_s)
    await splash.keep(*(row(number, started_at_s=each) for number, each in enumerate(at)))

    report = await splash.costs.report(chosen)

    inside = sum(begin_s <= each for each in at)
    assert [line.requests for line in report.models] == [inside]


async def test_a_month_is_today_and_the_twenty_nine_days_before(splash):
    first_s = midnight_days_before_s(NOON, 29)
    await splash.keep(row(1, started_at_s=first_s - 1), row(2, started_at_s=first_s), ago(3, 0))

    report = await splash.costs.report("month")

    assert sum(line.requests for line in report.models) == 2
    assert sum(line.requests for line in report.days) == 2


@pytest.mark.parametrize("chosen", ["hour", "day", "week", "month", "all"])
async def test_what_has_a_date_to_come_is_in_no_range(splash, chosen):
    # All time is made of whole days.
    soon_s = DAY_S if chosen == "all" else 2 * HOUR_S
    await splash.keep(ago(1, 60), ago(2, -soon_s), ago(3, -40 * DAY_S), ago(4, -400 * DAY_S))

    report = await splash.costs.report(chosen)

    assert [line.requests for line in report.models] == [1]
    assert {line.label for line in report.days} == {local_day(NOON)}
    assert {line.label for line in report.months} == {local_day(NOON)[:7]}


async def test_all_reaches_back_to_rows_that_are_long_gone(splash):
    await splash.keep(ago(1, 700 * DAY_S), ago(2, 60))

    report = await splash.costs.report("all")

    assert report.models[0].requests == 2
    assert [line.label for line in report.months] == [local_day(NOON - 700 * DAY_S)[:7], local_day(NOON)[:7]]
    assert [line.label for line in report.days] == [local_day(NOON)]


async def test_days_are_whole_local_days_the_oldest_first_and_thirty_at_least(splash):
    midnight_s = local_midnight_s(NOON)
    await splash.keep(
        row(1, started_at_s=midnight_s - 1),
        row(2, started_at_s=midnight_s),
        ago(3, 25 * DAY_S),
        ago(4, 40 * DAY_S),
    )

    report = await splash.costs.report("hour")

    assert [(line.label, line.requests) for line in report.days] == [
        (local_day(NOON - 25 * DAY_S), 1),
        (local_day(midnight_s - 1), 1),
        (local_day(NOON), 1),
    ]


async def test_no_more_than_four_hundred_days_come(splash):
    await splash.keep(*(ago(day, day * DAY_S) for day in range(450)))

    report = await splash.costs.report("all")

    assert len(report.days) == 400
    assert report.days[-1].label == local_day(NOON)
    assert sum(line.requests for line in report.months) == 450


async def test_the_dearest_comes_first_and_the_default_currency_decides(splash):
    splash.prices.replace(TWO_CURRENCIES)
    await splash.keep(
        ago(1, 60, key="small", model="m", prompt_tokens=1_000, cached_tokens=0, completion_tokens=0),
        ago(2, 60, key="large", model="m", prompt_tokens=9_000, cached_tokens=0, completion_tokens=0),
        ago(3, 60, key="dollars", model="deep", prompt_tokens=10**9, cached_tokens=0, completion_tokens=0),
        ago(4, 60, key="a-few-dollars", model="deep", prompt_tokens=10, cached_tokens=0, completion_tokens=0),
    )

    report = await splash.costs.report("day")

    assert [line.label for line in report.keys] == ["large", "small", "dollars", "a-few-dollars"]
    assert [line.label for line in report.models] == ["m", "deep"]
    assert [money.currency for money in report.total] == ["CNY", "USD"]


async def test_a_row_that_says_more_was_cached_than_there_was_charges_nothing_to_others(splash):
    await splash.keep(
        ago(1, 60, key="odd", prompt_tokens=100, cached_tokens=5_000, completion_tokens=0),
        ago(2, 60, key="good", prompt_tokens=5_000, cached_tokens=0, completion_tokens=0),
    )

    report = await splash.costs.report("month")

    assert {line.label: line.money[0].miss for line in report.keys} == {"good": 0.005, "odd": 0.0}
    assert report.total[0].miss == 0.005


async def test_nothing_used_is_an_empty_report(splash):
    report = await splash.costs.report("all")

    assert report == CostReport("all", PriceList(), (), local_day(NOON - 29 * DAY_S), local_day(NOON), (), (), (), ())


@pytest.mark.parametrize("chosen", ["hour", "day", "week", "month", "all"])
async def test_the_days_of_a_report_reach_from_a_month_ago_to_today_however_few_had_requests(splash, chosen):
    await splash.keep(ago(1, 3 * DAY_S))

    report = await splash.costs.report(chosen)

    assert [line.label for line in report.days] == [local_day(NOON - 3 * DAY_S)]
    assert report.last_day == local_day(NOON)
    assert (date.fromisoformat(report.last_day) - date.fromisoformat(report.first_day)).days == 29


async def test_all_time_begins_with_the_first_day_that_had_a_request(splash):
    await splash.keep(ago(1, 80 * DAY_S), ago(2, DAY_S))

    report = await splash.costs.report("all")

    assert report.first_day == report.days[0].label == local_day(NOON - 80 * DAY_S)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("chosen", ["hour", "day", "week", "month", "all"])
async def test_keys_models_and_the_rows_themselves_come_to_the_same_in_each_currency(splash, seed, chosen):
    chance = random.Random(seed)
    splash.prices.replace(TWO_CURRENCIES)
    rows = [_any_row(chance, number) for number in range(300)]
    await splash.keep(*rows)

    report = await splash.costs.report(chosen)

    ran = [each for each in rows if each.started_at_s >= since_s(chosen, NOON) and each.outcome != "rejected"]
    exact = _exact(ran, TWO_CURRENCIES)
    assert {(money.currency, kind): getattr(money, kind) for money in report.total for kind in KINDS} == {
        each: float(amount) for each, amount in exact.items()
    }
    assert _sum(report.keys) == pytest.approx(_sum(report.models), rel=1e-12)
    assert _sum(report.keys) == pytest.approx({each: float(amount) for each, amount in exact.items()}, rel=1e-12)
    everything = _exact([each for each in rows if each.outcome != "rejected"], TWO_CURRENCIES)
    assert _sum(report.months) == pytest.approx({each: float(amount) for each, amount in everything.items()}, rel=1e-12)


def _any_row(chance: random.Random, number: int) -> wire.RequestRow:
    prompt = chance.randrange(200_000)
    return row(
        number,
        started_at_s=NOON - chance.choice((HOUR_S, DAY_S, 7 * DAY_S, 60 * DAY_S)) * chance.random() * 1.2,
        key=chance.choice(("a", "b", "c")),
        model=chance.choice(("deep", "m", "demo")),
        outcome=chance.choice(("completed", "completed", "cancelled", "failed", "rejected")),
        prompt_tokens=prompt,
        cached_tokens=chance.randrange(prompt + 1),
        completion_tokens=chance.randrange(9_000),
    )


def _exact(rows: list[wire.RequestRow], prices: PriceList) -> dict[tuple[str, str], Fraction]:
    """Row by row, in fractions: the definition."""
    amounts: Counter[tuple[str, str]] = Counter()
    for each in rows:
        price = prices.models.get(each.model, prices.default)
        miss, hit, output = (Fraction(str(per)) / 1_000_000 for per in (price.miss, price.hit, price.output))
        parts = {
            "miss": (each.prompt_tokens - each.cached_tokens) * miss,
            "hit": each.cached_tokens * hit,
            "output": each.completion_tokens * output,
            "cache_saving": each.cached_tokens * (miss - hit),
        }
        parts["total"] = parts["miss"] + parts["hit"] + parts["output"]
        for kind, amount in parts.items():
            amounts[price.currency, kind] += amount
    return dict(amounts)


def _sum(lines: tuple[CostLine, ...]) -> dict[tuple[str, str], float]:
    amounts: Counter[tuple[str, str]] = Counter()
    for money in (money for line in lines for money in line.money):
        for kind in KINDS:
            amounts[money.currency, kind] += getattr(money, kind)
    return dict(amounts)


async def test_today_says_what_was_saved_since_midnight(splash):
    await splash.keep(
        row(1, started_at_s=local_midnight_s(NOON) - 1),
        row(2, started_at_s=local_midnight_s(NOON) + 1, prompt_tokens=10_000, cached_tokens=0, completion_tokens=0),
    )

    today = await splash.costs.today()

    assert (today.requests, today.prompt_tokens) == (1, 10_000)
    assert [(money.currency, money.total) for money in today.saved] == [("CNY", 0.01)]


# --- The routes ---


async def test_the_report_comes_by_http_for_the_last_month_unless_it_says_otherwise(splash):
    await splash.keep(ago(1, 2 * HOUR_S))

    month, hour = await splash.client.get("/cost"), await splash.client.get("/cost?range=hour")

    assert msgspec.json.decode(month.content, type=CostReport) == await splash.costs.report("month")
    assert msgspec.json.decode(hour.content, type=CostReport).total == ()


async def test_a_range_that_is_none_is_refused_with_those_that_there_are(splash):
    answer = await splash.client.get("/cost?range=year")

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert answer.json()["message"] == "range must be one of hour, day, week, month, all."


async def test_a_parameter_that_there_is_not_is_refused_with_its_name(splash):
    answer = await splash.client.get("/cost?range=day&rnage=all")

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert answer.json()["message"] == "There is no parameter 'rnage' here; there are range."


async def test_new_prices_are_kept_and_hold_for_what_was_used_before(splash):
    await splash.keep(ago(1, 60, prompt_tokens=1_000_000, cached_tokens=0, completion_tokens=0))
    prices = {
        "default": {"currency": "EUR", "miss": 2},
        "models": {"deep": {"currency": "USD", "miss": 1, "hit": 0.5, "output": 2}},
    }

    answer = await splash.client.put("/settings/prices", json=prices)

    assert answer.json()["default"] == {"currency": "EUR", "miss": 2.0, "hit": 0.1, "output": 3.0}
    assert (await splash.client.get("/settings/prices")).json() == answer.json()
    assert stored_prices(splash.settings) == splash.prices.tariff.prices
    report = (await splash.client.get("/cost")).json()
    assert [(money["currency"], money["total"]) for money in report["total"]] == [("EUR", 2.0)]
    assert report["prices"] == answer.json()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"default": {"miss": -1}}, "default.miss: Expected `float` >= 0"),
        ({"default": {"hit": 1_000_001}}, "default.hit: Expected `float` <= 1000000"),
        ({"default": {"output": "3"}}, "default.output: Expected `float`, got `str`"),
        ({"default": {"output": None}}, "default.output: Expected `float`, got `null`"),
        ({"default": {"currency": "yuan"}}, "default.currency: must be three capital letters, such as CNY."),
        ({"default": {"currency": "CNY\n"}}, "default.currency: must be three capital letters, such as CNY."),
        ({"default": {"currency": 5}}, "default.currency: must be three capital letters, such as CNY."),
        ({"x": 1}, "Object contains unknown field `x`."),
        ({"default": {"mis": 1}}, "default: Object contains unknown field `mis`."),
        ({"models": {"m" * 5000: {"miss": -1}}}, f"models.'{'m' * 200}'.miss: Expected"),
        ({"default": 3}, "default: Expected `object`, got `int`"),
        ({"models": {"a": {}, "the model": {"miss": -0.1}}}, "models.'the model'.miss: Expected `float` >= 0"),
        ({"models": {"": {}}}, "models: '' can't be a model's id"),
        ({"models": {f"m{n}": {} for n in range(101)}}, "models: there can be prices of 100 models, not of 101."),
        ({"models": []}, "Expected `object`, got `array` - at `$.models`"),
    ],
)
async def test_prices_that_can_not_be_are_refused_with_the_field_and_change_nothing(splash, body, field):
    answer = await splash.client.put("/settings/prices", json=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert answer.json()["message"].startswith(field)
    assert splash.prices.tariff.prices == PriceList()


async def test_a_price_of_minus_zero_is_zero(splash):
    answer = await splash.client.put("/settings/prices", content=b'{"default": {"miss": -0.0, "hit": -0, "output": 0}}')

    assert answer.status_code == 200
    assert b"-0" not in (await splash.client.get("/settings/prices")).content


@pytest.mark.parametrize("content", [b'{"default": {"miss": NaN}}', b'{"default": {"miss": 1e999}}', b"[", b"\xff"])
async def test_what_is_no_number_of_json_is_refused(splash, content):
    answer = await splash.client.put("/settings/prices", content=content)

    assert answer.status_code == 400
    assert splash.prices.tariff.prices == PriceList()


async def test_a_report_is_reckoned_with_one_list_while_prices_change(splash):
    await splash.keep(ago(1, 60, prompt_tokens=1_000_000, cached_tokens=0, completion_tokens=0))

    async def change(miss: float) -> None:
        await splash.client.put("/settings/prices", json={"default": {"miss": miss}})

    reports = await asyncio.gather(*(splash.costs.report("day") if n % 2 else change(float(n)) for n in range(20)))

    for report in reports[1::2]:
        used = {"demo": Tokens(1, 1_000_000, 0, 0)}
        assert report.total == Tariff(report.prices).cost(used)
