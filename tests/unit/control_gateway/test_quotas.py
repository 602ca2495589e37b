"""The limits of a key: what is counted, what is refused and for how long, and that nothing is counted twice."""

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.errors import KeyLimitReached
from control.keys import Key
from control.metrics.local_day import local_midnight_s, next_midnight_s
from control.quotas import DAYS_LIMIT, Quotas
from control.wire import KeyChange, KeyLimits, KeyUsage
from tests.unit.control_gateway.gateway_stage import (
    FINISHED,
    accepted,
    assert_refused,
    chat_body,
    eventually,
    staged,
)

PATH = "/v1/chat/completions"
# What opencode and others take for a prompt that is too long, as far as a refusal could say it.
OVERFLOW = re.compile(
    "too long|too many tokens|token limit|exceed|context|maximum|reduce the length|too large|greater than",
    re.IGNORECASE,
)
MIDNIGHT = local_midnight_s(1_796_000_000.0)


class Clock:
    def __init__(self, now_s=MIDNIGHT + 3600.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def key(key_id=1, **limits) -> Key:
    return Key(id=key_id, name=f"key{key_id}", request_class="interactive", limits=KeyLimits(**limits))


def ended(quotas, entry, tokens=0, was_rejected=False) -> None:
    quotas.leave(entry, tokens=tokens, was_rejected=was_rejected)


def test_without_limits_nothing_is_refused_and_everything_is_counted():
    quotas = Quotas(wall=Clock())

    entries = [quotas.enter(key()) for _ in range(1000)]
    for entry in entries[1:]:
        ended(quotas, entry, tokens=3)

    assert quotas.usage(1) == KeyUsage(requests=1000, tokens=2997, in_flight=1)


def test_one_more_in_flight_than_allowed_may_come_again_in_a_second():
    quotas = Quotas(wall=Clock())
    first, _second = quotas.enter(key(max_in_flight=2)), quotas.enter(key(max_in_flight=2))

    with pytest.raises(KeyLimitReached, match="'key1' may have 2 requests in flight, and has 2") as caught:
        quotas.enter(key(max_in_flight=2))
    ended(quotas, first)
    quotas.enter(key(max_in_flight=2))

    assert caught.value.retry_after_s == 1
    assert quotas.usage(1) == KeyUsage(requests=3, in_flight=2)


def test_the_requests_of_a_day_come_again_after_midnight():
    clock = Clock(next_midnight_s(MIDNIGHT) - 90.5)
    quotas = Quotas(wall=clock)
    ended(quotas, quotas.enter(key(requests_per_day=1)))

    with pytest.raises(KeyLimitReached, match="'key1' has made its 1 request of today; the next day") as caught:
        quotas.enter(key(requests_per_day=1))
    clock.now_s += 90.5
    quotas.enter(key(requests_per_day=1))

    assert caught.value.retry_after_s == 91
    assert quotas.usage(1) == KeyUsage(requests=1, in_flight=1)


def test_tokens_are_known_at_the_end_and_the_next_request_is_refused():
    quotas = Quotas(wall=Clock())
    first, second = quotas.enter(key(tokens_per_day=100)), quotas.enter(key(tokens_per_day=100))
    ended(quotas, first, tokens=99)
    third = quotas.enter(key(tokens_per_day=100))
    ended(quotas, second, tokens=50)

    with pytest.raises(KeyLimitReached, match="'key1' has used its 100 tokens of today; the next day") as caught:
        quotas.enter(key(tokens_per_day=100))
    ended(quotas, third, tokens=1)

    assert caught.value.retry_after_s == next_midnight_s(MIDNIGHT) - MIDNIGHT - 3600
    assert quotas.usage(1) == KeyUsage(requests=3, tokens=150)


def test_what_clients_take_for_an_overflow_is_not_in_a_refusal():
    quotas = Quotas({MIDNIGHT: {1: KeyUsage(requests=9, tokens=9)}}, wall=Clock())

    for limits in ({"requests_per_day": 1}, {"tokens_per_day": 1}):
        with pytest.raises(KeyLimitReached) as caught:
            quotas.enter(key(**limits))
        assert OVERFLOW.search(str(caught.value)) is None


def test_a_limit_of_one_is_told_in_the_singular():
    quotas = Quotas({MIDNIGHT: {1: KeyUsage(tokens=1)}}, wall=Clock())
    quotas.enter(key())

    for limit, sentence in (
        ("max_in_flight", "may have 1 request in flight, and has 1."),
        ("tokens_per_day", "1 token of"),
    ):
        with pytest.raises(KeyLimitReached, match=sentence):
            quotas.enter(key(**{limit: 1}))


def test_a_request_that_was_turned_away_counts_as_nothing():
    quotas = Quotas(wall=Clock())

    ended(quotas, quotas.enter(key(requests_per_day=1)), tokens=500, was_rejected=True)
    quotas.enter(key(requests_per_day=1))

    assert quotas.usage(1) == KeyUsage(requests=1, in_flight=1)


def test_a_refusal_counts_nothing():
    quotas = Quotas(wall=Clock())
    quotas.enter(key(max_in_flight=1))

    for _ in range(5):
        with pytest.raises(KeyLimitReached):
            quotas.enter(key(max_in_flight=1))

    assert quotas.usage(1) == KeyUsage(requests=1, in_flight=1)


def test_one_key_does_not_use_up_anothers():
    quotas = Quotas(wall=Clock())
    quotas.enter(key(1, max_in_flight=1))

    quotas.enter(key(2, max_in_flight=1))

    assert quotas.usage(2) == KeyUsage(requests=1, in_flight=1)


def test_what_was_used_before_a_restart_counts():
    quotas = Quotas({MIDNIGHT: {1: KeyUsage(requests=3, tokens=40)}}, wall=Clock())

    with pytest.raises(KeyLimitReached):
        quotas.enter(key(requests_per_day=3))

    assert quotas.usage(1) == KeyUsage(requests=3, tokens=40)


def test_a_clock_that_is_wrong_for_a_while_takes_nothing_from_a_days_count():
    clock = Clock()
    quotas = Quotas({MIDNIGHT - 86_400: {1: KeyUsage(requests=1)}}, wall=clock)
    ended(quotas, quotas.enter(key()), tokens=7)
    over_midnight = quotas.enter(key())

    clock.now_s -= 86_400
    ended(quotas, quotas.enter(key()), tokens=2)
    ended(quotas, over_midnight, tokens=30)
    yesterday = quotas.usage(1)
    clock.now_s += 86_400

    assert yesterday == KeyUsage(requests=2, tokens=2)
    assert quotas.usage(1) == KeyUsage(requests=2, tokens=37)
    with pytest.raises(KeyLimitReached):
        quotas.enter(key(requests_per_day=2))


def test_a_start_with_a_clock_that_is_behind_forgets_nothing_of_the_right_day():
    clock = Clock(MIDNIGHT - 9 * 86_400 + 3600)
    quotas = Quotas({MIDNIGHT: {1: KeyUsage(requests=3)}}, wall=clock)
    quotas.usage(1)

    clock.now_s = MIDNIGHT + 60

    with pytest.raises(KeyLimitReached):
        quotas.enter(key(requests_per_day=3))


def test_days_that_a_clock_has_shown_do_not_pile_up():
    clock = Clock()
    quotas = Quotas(wall=clock)
    for _ in range(3 * DAYS_LIMIT):
        ended(quotas, quotas.enter(key()), tokens=1)
        clock.now_s += 86_400

    assert len(quotas._days) == DAYS_LIMIT


def test_a_request_that_began_yesterday_is_in_flight_today_and_counts_no_more():
    clock = Clock()
    quotas = Quotas(wall=clock)
    long, turned_away = quotas.enter(key()), quotas.enter(key())

    clock.now_s += 24 * 3600
    in_the_morning = quotas.usage(1)
    ended(quotas, long, tokens=700)
    ended(quotas, turned_away, was_rejected=True)

    assert in_the_morning == KeyUsage(in_flight=2)
    assert quotas.usage(1) == KeyUsage()


@given(
    st.lists(
        st.one_of(st.tuples(st.just("enter"), st.integers(1, 3)), st.tuples(st.just("leave"), st.integers(0, 50))),
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_whatever_comes_and_goes_no_key_has_more_in_flight_than_its_limit(steps, limit):
    quotas, inside = Quotas(wall=Clock()), []

    for what, number in steps:
        if what == "enter":
            try:
                inside.append(quotas.enter(key(number, max_in_flight=limit)))
            except KeyLimitReached:
                assert sum(entry.key_id == number for entry in inside) == limit
        elif inside:
            ended(quotas, inside.pop(number % len(inside)), tokens=1)

    for key_id in (1, 2, 3):
        assert quotas.usage(key_id).in_flight == sum(entry.key_id == key_id for entry in inside) <= limit


# --- In the gateway ---


def used(stage) -> KeyUsage:
    return stage.relay._quotas.usage(1)


async def test_a_key_at_its_limit_gets_a_429_before_anything_is_done_for_it(tmp_path):
    may_end = asyncio.Event()

    async def script(request):
        yield accepted(request)
        await may_end.wait()
        yield [FINISHED]

    async with staged(tmp_path) as stage, asyncio.TaskGroup() as group:
        stage.engine.scripts = [script]
        await stage.keys.change(1, KeyChange(max_in_flight=1))
        first = group.create_task(stage.client.post(PATH, json=chat_body()))
        await eventually(lambda: len(stage.line.running) == 1)
        refused = await stage.client.post(PATH, json=chat_body(stream=True))
        counted = len(stage.engine.counted)
        may_end.set()
        assert (await first).status_code == 200
        after = await stage.client.post(PATH, json=chat_body())
        rows = await stage.rows(3)
        usage = used(stage)

    assert_refused(refused, 429, "key_limit_reached")
    assert refused.headers["retry-after"] == "1"
    assert counted == 1
    assert after.status_code == 200
    assert sorted((row.outcome, row.error_code) for row in rows) == [
        ("completed", None),
        ("completed", None),
        ("rejected", "key_limit_reached"),
    ]
    assert usage == KeyUsage(requests=2, tokens=24)


async def test_a_request_leaves_once_however_it_ends(tmp_path):
    async with staged(tmp_path, grace_s=0.01) as stage:
        stage.engine.prompt_tokens = 5000
        too_long = await stage.client.post(PATH, json=chat_body())
        stage.engine.prompt_tokens = 7
        stage.line.hold()
        async with stage.client.stream("POST", PATH, json=chat_body(stream=True)) as held:
            assert held.status_code == 200
            during = used(stage)
        await eventually(lambda: not stage.line.waiting)
        rows = await stage.rows(2)
        usage = used(stage)

    assert too_long.status_code == 400
    assert during == KeyUsage(requests=1, in_flight=1)
    assert [row.outcome for row in rows] == ["rejected", "cancelled"]
    assert usage == KeyUsage(requests=1, tokens=0)
