"""The list of requests against a plain sort of the same rows: every order, every filter, there and back again."""

import random
import time
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest
from sqlalchemy import insert

from control.admin.errors import OrderInvalid, QuestionTooLong
from control.metrics import request_pages
from control.metrics.database import open_database, open_for_reading
from control.metrics.questions import Questions
from control.metrics.request_kinds import KindFilter
from control.metrics.request_questions import RequestQuestions, tokens_per_second
from control.metrics.request_search import Cursor, Search, cursor_of
from control.metrics.tables import requests as table
from control.prices import Prices
from control.wire import Price, PriceList, RequestSort
from tests.unit.control_gateway.request_rows import NOON_S, expected, random_rows, row

SORTS = get_args(RequestSort)


@pytest.fixture
def fill(tmp_path):
    """Puts rows into a database of its own."""
    engine = open_database(tmp_path / "splash.db")

    def put(rows):
        with engine.begin() as connection:
            connection.execute(
                insert(table), [{name: getattr(each, name) for name in each.__struct_fields__} for each in rows]
            )

    yield put
    engine.dispose()


@pytest.fixture
def asked(fill, tmp_path):
    questions = Questions(open_for_reading(tmp_path / "splash.db"))
    yield RequestQuestions(questions, Prices())
    questions.close()


def numbers(page):
    return [listed.row.number for listed in page.requests]


async def all_pages(asked, search):
    pages = [await asked.page(search)]
    while pages[-1].next is not None:
        pages.append(await asked.page(replace(search, after=cursor_of(pages[-1].next, search.sort, search.direction))))
    return pages


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("direction", ["asc", "desc"])
async def test_pages_put_together_are_the_plain_sort_and_lead_back_the_same_way(fill, asked, sort, direction):
    chance = random.Random(f"{sort} {direction}")
    rows = random_rows(chance, 200)
    fill(rows)
    filters = [
        KindFilter(),
        KindFilter(key="codex"),
        KindFilter(outcome="completed", dialect="messages"),
        KindFilter(model="small", request_class="batch", key="night"),
        KindFilter(key="nobody"),
    ]

    for kinds in filters:
        bounds = replace(Search(), since_s=NOON_S + 20, until_s=NOON_S + 170) if chance.random() < 0.5 else Search()
        search = replace(bounds, kinds=kinds, sort=sort, direction=direction, limit=7)
        pages = await all_pages(asked, search)

        assert [number for page in pages for number in numbers(page)] == expected(rows, search)
        assert pages[0].previous is None
        for earlier, later in pairwise(pages):
            back = await asked.page(replace(search, after=cursor_of(later.previous, sort, direction)))
            assert numbers(back) == numbers(earlier)
            assert (back.previous is None) == (earlier is pages[0])


async def test_a_row_that_comes_meanwhile_moves_no_later_page(fill, asked):
    fill([row(number) for number in range(1, 11)])
    search = Search(limit=4)
    first = await asked.page(search)

    fill([row(11), row(12)])
    second = await asked.page(replace(search, after=cursor_of(first.next, "started", "desc")))
    back = await asked.page(replace(search, after=cursor_of(second.previous, "started", "desc")))

    assert (numbers(first), numbers(second), numbers(back)) == ([10, 9, 8, 7], [6, 5, 4, 3], [10, 9, 8, 7])
    assert back.previous is not None, "the two that came"


async def test_a_row_that_is_gone_can_still_be_where_a_page_begins(fill, asked):
    fill([row(number) for number in range(1, 6) if number != 3])
    search = Search(limit=2)

    page = await asked.page(replace(search, after=cursor_of(cursor(search, 3).text(), "started", "desc")))

    assert numbers(page) == [2, 1]


def cursor(search, number):
    return Cursor(search.sort, search.direction, NOON_S + number, number, False, None)


@pytest.mark.parametrize(
    "text",
    # The last one has a number that no row of SQLite can have.
    [
        "",
        "x",
        "AAAA",
        "bm90IGpzb24",
        "W10",
        "💧",
        "A" * 5000,
        "WyJzdGFydGVkIiwiZGVzYyIsMSw5MjIzMzcyMDM2ODU0Nzc1ODA4LGZhbHNlLG51bGxd",
    ],
)
def test_what_is_no_cursor_is_refused_in_words(text):
    with pytest.raises(OrderInvalid, match="`next` or `previous`"):
        cursor_of(text, "started", "desc")


def test_a_cursor_of_another_order_is_refused_in_words():
    text = cursor(Search(), 1).text()

    with pytest.raises(OrderInvalid, match="by started desc, not by speed desc"):
        cursor_of(text, "speed", "desc")


@pytest.mark.parametrize("kinds", [KindFilter(), KindFilter(key="claude")])
async def test_of_too_many_the_newest_are_sorted_and_the_page_says_since_when(fill, asked, monkeypatch, kinds):
    """5,000 requests in as many minutes: of those 100 can be sorted here, and at least half of that is."""
    monkeypatch.setattr(request_pages, "SORTED_LIMIT", 100)
    rows = [row(number, started_at_s=NOON_S + number * 60, decode_ms=float(number)) for number in range(1, 5001)]
    fill(rows)
    search = Search(kinds=kinds, sort="decode", direction="asc", limit=30)

    pages = await all_pages(asked, search)

    found = [number for page in pages for number in numbers(page)]
    assert found == list(range(found[0], 5001))
    assert 50 <= len(found) <= 100
    assert {page.sorted_since_s for page in pages} == {pages[0].sorted_since_s}
    assert found[0] == next(each.number for each in rows if each.started_at_s >= pages[0].sorted_since_s)


async def test_as_many_as_can_be_sorted_are_all_sorted(fill, asked, monkeypatch):
    monkeypatch.setattr(request_pages, "SORTED_LIMIT", 100)
    fill([row(number, started_at_s=NOON_S + number * 60) for number in range(1, 101)])

    page = await asked.page(Search(sort="ttft", limit=1000))

    assert (len(page.requests), page.sorted_since_s) == (100, None)


async def test_speed_leaves_out_the_first_emission_and_is_unknown_without_more(fill, asked):
    fill([row(1, first_emission_tokens=6), row(2, first_emission_tokens=101), row(3, decode_ms=None)])

    page = await asked.page(Search(sort="speed"))

    assert [listed.tokens_per_second for listed in page.requests] == [95.0, None, None]
    assert tokens_per_second(row(4, first_emission_tokens=0)) == 100.0


async def test_cost_is_of_the_prices_in_force_and_each_model_has_its_own(fill, asked):
    fill([row(1), row(2, model="small"), row(3, outcome="rejected")])
    asked.prices.replace(PriceList(models={"small": Price(currency="USD", miss=10.0, hit=5.0, output=20.0)}))

    page = await asked.page(Search(sort="cost"))

    assert [(each.row.number, each.cost, each.currency) for each in page.requests] == [
        (1, (100 * 1 + 900 * 0.1 + 101 * 3) / 1e6, "CNY"),
        (3, 0.0, "CNY"),
        (2, (100 * 10 + 900 * 5 + 101 * 20) / 1e6, "USD"),
    ]


@pytest.mark.parametrize("direction", ["asc", "desc"])
async def test_amounts_of_two_currencies_are_never_sorted_as_if_they_were_of_one(fill, asked, direction):
    fill([row(n, model=("yuan", "dollars", "more yuan")[n % 3], prompt_tokens=1000 * (n * 7 % 11)) for n in range(24)])
    models = {
        "dollars": Price(currency="USD", miss=10.0, hit=5.0, output=20.0),
        "more yuan": Price(currency="CNY", miss=9.0, hit=5.0, output=20.0),
    }
    asked.prices.replace(PriceList(models=models))
    search = Search(sort="cost", direction=direction, limit=5)

    pages = await all_pages(asked, search)
    dollars = await all_pages(asked, replace(search, kinds=KindFilter(model="dollars")))

    listed = [each for page in pages for each in page.requests]
    yuan = [each.cost for each in listed if each.currency == "CNY"]
    assert [each.currency for each in listed] == ["CNY"] * 16 + ["USD"] * 8
    assert yuan == sorted(yuan, reverse=direction == "desc")
    only = [each.cost for page in dollars for each in page.requests]
    assert len(only) == 8 and only == sorted(only, reverse=direction == "desc")


async def test_choices_are_what_there_are_requests_of(fill, asked):
    assert (await asked.choices()).keys == ()

    fill([row(1, key="b"), row(2, key="a", model="small", dialect="messages"), row(3, key="a")])
    choices = await asked.choices()

    assert (choices.keys, choices.models, choices.dialects) == (("a", "b"), ("big", "small"), ("chat", "messages"))


async def test_one_is_found_by_its_id_and_none_that_is_not_there(fill, asked):
    fill([row(7)])

    assert (await asked.one(row(7).id)).row == row(7)
    assert await asked.one("nobody") is None


async def test_a_question_that_takes_too_long_is_broken_off_and_the_next_is_answered(fill, asked):
    fill([row(1)])
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    before = time.monotonic()

    with pytest.raises(QuestionTooLong, match="narrow the range"):
        await asked.questions.ask(lambda connection: connection.exec_driver_sql(endless).scalar(), limit_s=0.05)

    assert time.monotonic() - before < 5
    assert numbers(await asked.page(Search())) == [1]
