"""What a key was used for in 30 days: sums over sums, per life of a key, and when it was last used."""

import time
from datetime import datetime, timedelta

import msgspec
import pytest
from sqlalchemy import delete

from control.metrics.database import open_database, open_for_reading
from control.metrics.key_questions import key_totals
from control.metrics.local_day import local_midnight_s
from control.metrics.questions import Questions
from control.metrics.tables import requests
from control.metrics.writer import Writer
from control.wire import KeyTotals, KeyView
from tests.fakes.control import finished

DAY_S = 24 * 3600
NOW_S = local_midnight_s(1_796_000_000.0) + 13 * 3600.0


class Book:
    """A real database in which requests are written and keys asked about."""

    def __init__(self, path):
        self.writer = Writer(open_database(path))
        self.questions = Questions(open_for_reading(path))
        self.number = 0

    def used(self, days_ago, key="claude", *, prompt=100, cached=40, output=10, outcome="completed", hours_ago=0.0):
        self.number += 1
        at_s = NOW_S - days_ago * DAY_S - hours_ago * 3600
        row = msgspec.structs.replace(
            finished(self.number, outcome),
            started_at_s=at_s,
            key=key,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=output,
        )
        self.writer.record(row)
        return at_s

    async def totals(self, *views):
        await self.writer.write(lambda connection: None)
        return {found.id: found for found in await key_totals(self.questions, views, wall=lambda: NOW_S)}


@pytest.fixture
def book(tmp_path):
    book = Book(tmp_path / "splash.db")
    yield book
    book.writer.close()
    book.questions.close()


def key(number=1, name="claude", *, made=100.0, revoked=None):
    """`made` and `revoked` in days before now."""
    revoked_at_s = None if revoked is None else NOW_S - revoked * DAY_S
    return KeyView(number, name, "interactive", "sk-…", NOW_S - made * DAY_S, revoked_at_s)


async def test_tokens_and_requests_add_up_and_the_hit_rate_is_of_tokens(book):
    book.used(0, prompt=1_000, cached=900)
    last = book.used(0, prompt=10, cached=0, hours_ago=-0.5)
    book.used(3, prompt=90, cached=90)

    totals = await book.totals(key())

    assert totals == {1: KeyTotals(1, 3, 1_100, 990, 30, 0.9, last)}


async def test_thirty_days_are_those_of_the_calendar_after_the_clocks_were_changed_too(book, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        now, found = datetime(2026, 3, 20, 0, 30), {}
        for days_ago in (29, 30):
            book.used((NOW_S - (now - timedelta(days_ago) + timedelta(hours=3)).timestamp()) / DAY_S)
        await book.writer.write(lambda connection: None)
        found = await key_totals(book.questions, [key(made=1000.0)], wall=now.timestamp)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert [each.requests for each in found] == [1]


async def test_a_day_that_is_still_to_come_is_left_out(book):
    today = book.used(0)
    book.used(-40)

    totals = await book.totals(key())

    assert (totals[1].requests, totals[1].last_used_at_s) == (1, today)


async def test_what_is_older_than_30_days_is_left_out(book):
    book.used(31)
    book.used(30)
    newest = book.used(29)

    totals = await book.totals(key())

    assert (totals[1].requests, totals[1].last_used_at_s) == (1, newest)


async def test_what_was_turned_away_counts_as_no_use(book):
    used = book.used(1)
    book.used(0, outcome="rejected")
    book.used(0, "codex", outcome="rejected")

    totals = await book.totals(key(), key(2, "codex"))

    assert set(totals) == {1}
    assert (totals[1].requests, totals[1].last_used_at_s) == (1, used)


async def test_a_key_that_was_never_used_is_not_there(book):
    book.used(1, "codex")

    assert set(await book.totals(key(), key(2, "codex"))) == {2}


async def test_a_name_that_two_keys_had_one_after_the_other_is_told_apart_by_their_lives(book):
    first = book.used(9)
    book.used(9)
    second = book.used(2)

    totals = await book.totals(key(1, made=20, revoked=5), key(2, made=4))

    assert (totals[1].requests, totals[1].last_used_at_s) == (2, first)
    assert (totals[2].requests, totals[2].last_used_at_s) == (1, second)


async def test_a_prompt_without_tokens_has_no_hit_rate(book):
    book.used(0, prompt=0, cached=0)

    assert (await book.totals(key()))[1].hit_rate is None


async def test_when_the_row_is_no_longer_kept_the_last_use_is_known_to_the_hour(book):
    at_s = book.used(2, hours_ago=0.4)
    await book.writer.write(lambda connection: connection.execute(delete(requests)))

    totals = await book.totals(key())

    assert totals[1].last_used_at_s == at_s // 3600 * 3600
