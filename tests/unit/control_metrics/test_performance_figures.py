"""The figures of GET /performance over rows that are known one by one: from rows exactly, from sums within 5%."""

import math
import random
from datetime import datetime, timedelta
from itertools import groupby

import pytest

from control.metrics.local_day import local_midnight_s
from control.metrics.measures import times_of
from control.metrics.performance_figures import STEPS_LIMIT, span_of
from control.metrics.ranges import RANGE_S, RANGES
from tests.unit.control_gateway.test_metrics import row
from tests.unit.control_metrics.histories import stretch
from tests.unit.control_metrics.measured import DAY_S, HOUR_S, NOW_S


def nearest_rank(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


def random_rows(seed, *, number=400, within_s=DAY_S * 1.5):
    chance = random.Random(seed)

    def maybe(value):
        return None if chance.random() < 0.1 else value

    rows = []
    for index in range(number):
        queue_ms = chance.choice([0.0, chance.expovariate(1 / 500)])
        prompt = chance.randint(1, 50_000)
        completion = chance.choice([0, 1, 8, chance.randint(2, 900)])
        drafted = chance.choice([0, completion])
        rows.append(
            row(
                index,
                started_at_s=NOW_S - chance.random() * within_s,
                model=chance.choice(["small", "large"]),
                outcome=chance.choice(["completed", "completed", "cancelled", "failed", "rejected"]),
                queue_ms=maybe(queue_ms),
                ttft_ms=maybe(queue_ms + chance.expovariate(1 / 900)),
                decode_ms=maybe(chance.expovariate(1 / 8000)),
                largest_gap_ms=maybe(chance.expovariate(1 / 80)),
                prompt_tokens=prompt,
                cached_tokens=chance.randint(0, prompt),
                completion_tokens=completion,
                first_emission_tokens=chance.randint(0, 8),
                drafted_tokens=drafted,
                accepted_tokens=chance.randint(0, drafted),
            )
        )
    return rows


def by_measure(rows):
    found = {}
    for each in rows:
        for measure, duration_ms in times_of(each):
            found.setdefault(measure, []).append(duration_ms)
    return found


def told(performance):
    return {
        "ttft": performance.ttft,
        "ttft_without_queue": performance.ttft_without_queue,
        "queue": performance.queue,
        "inter_token": performance.inter_token,
        "largest_gap": performance.largest_gap,
    }


@pytest.mark.parametrize("chosen", ["hour", "day"])
@pytest.mark.parametrize("model", [None, "small"])
async def test_an_hour_and_a_day_are_exact(measured, chosen, model):
    rows = random_rows(1) + random_rows(2, number=600, within_s=HOUR_S * 1.5)
    rows = [row for number, row in enumerate(rows) if row.id not in {each.id for each in rows[:number]}]
    measured.record(*rows)

    found = await measured.performance(chosen, model)

    since_s = NOW_S - RANGE_S[chosen]
    counted = [each for each in rows if each.started_at_s >= since_s and each.outcome != "rejected"]
    mine = [each for each in counted if model in (None, each.model)]
    times = by_measure(mine)
    assert len(mine) > 30
    assert set(times) == set(told(found))
    for measure, percentiles in told(found).items():
        assert percentiles.count == len(times[measure])
        assert percentiles.p50_ms == pytest.approx(nearest_rank(times[measure], 0.5))
        assert percentiles.p95_ms == pytest.approx(nearest_rank(times[measure], 0.95))
    steps = sum(each.completion_tokens - each.accepted_tokens for each in mine)
    assert found.requests == len(mine)
    assert found.models == ("large", "small")
    assert found.hit_rate == pytest.approx(sum(r.cached_tokens for r in mine) / sum(r.prompt_tokens for r in mine))
    assert found.acceptance == pytest.approx(sum(r.accepted_tokens for r in mine) / sum(r.drafted_tokens for r in mine))
    assert found.tokens_per_draft == pytest.approx(sum(r.completion_tokens for r in mine) / steps)
    assert found.input_output_ratio == pytest.approx(
        sum(r.prompt_tokens for r in mine) / sum(r.completion_tokens for r in mine)
    )


@pytest.mark.parametrize("chosen", ["hour", "day", "week", "month", "all"])
async def test_the_time_in_the_queue_is_a_part_of_the_time_to_the_first_token_and_never_larger(measured, chosen):
    """Those that gave up in the queue, after a long wait, have no first token to be a part of."""
    begin_s = NOW_S - HOUR_S / 2
    served = [row(n, started_at_s=begin_s, queue_ms=900.0 * n, ttft_ms=900.0 * n + 40) for n in range(14)]
    # Two clocks: the engine says that it stood longer than control saw it wait.
    served.append(row(20, started_at_s=begin_s, queue_ms=99_000.0, ttft_ms=11_000.0))
    gave_up = [
        row(30 + n, started_at_s=begin_s, outcome="cancelled", queue_ms=95_000.0, ttft_ms=None) for n in range(3)
    ]
    measured.record(*served, *gave_up)

    found = await measured.performance(chosen)

    assert found.ttft.count == found.queue.count == found.ttft_without_queue.count == 15
    assert found.queue.p50_ms <= found.ttft.p50_ms
    assert found.queue.p95_ms <= found.ttft.p95_ms


async def test_first_tokens_are_told_by_the_step_in_which_the_request_began(measured):
    rows = random_rows(3)
    measured.record(*rows)

    found = await measured.performance("day")

    known = [
        (each.started_at_s // found.step_s * found.step_s, max(each.ttft_ms - each.queue_ms, 0.0))
        for each in rows
        if each.started_at_s >= NOW_S - DAY_S
        and each.outcome != "rejected"
        and None not in (each.ttft_ms, each.queue_ms)
    ]
    expected = {step: [ttft for _, ttft in pairs] for step, pairs in groupby(sorted(known), key=lambda pair: pair[0])}
    assert {point.at_s: (point.p50_ms, point.p95_ms) for point in found.ttfts} == {
        step: pytest.approx((nearest_rank(values, 0.5), nearest_rank(values, 0.95)))
        for step, values in expected.items()
    }
    assert [point.at_s for point in found.ttfts] == sorted(expected)


@pytest.mark.parametrize("chosen", ["week", "month", "all"])
@pytest.mark.parametrize("model", [None, "large"])
async def test_longer_ranges_are_sums_with_percentiles_within_five_per_cent(measured, chosen, model):
    rows = random_rows(4, number=1500, within_s=40 * DAY_S)
    measured.record(*rows)

    found = await measured.performance(chosen, model)

    mine = [
        each
        for each in rows
        if each.started_at_s >= found.since_s and each.outcome != "rejected" and model in (None, each.model)
    ]
    times = by_measure(mine)
    assert len(mine) > 80
    assert found.requests == len(mine)
    assert found.hit_rate == pytest.approx(sum(r.cached_tokens for r in mine) / sum(r.prompt_tokens for r in mine))
    for measure, percentiles in told(found).items():
        assert percentiles.count == len(times[measure])
        for told_ms, share in ((percentiles.p50_ms, 0.5), (percentiles.p95_ms, 0.95)):
            assert told_ms == pytest.approx(nearest_rank(times[measure], share), rel=0.05, abs=1)
    assert sum(1 for _ in found.ttfts) == len({point.at_s for point in found.ttfts})


@pytest.mark.parametrize("chosen", RANGES)
async def test_throughput_is_tokens_over_seconds_and_never_a_mean_of_speeds(measured, chosen):
    def at(ago_s, **fields):
        return stretch(started_at_s=NOW_S - ago_s, **fields)

    measured.record(
        at(700, width=1, tokens=1398, seconds=10.0, context_tokens=4000, peak_tokens_per_second=150.0),
        at(600, width=1, tokens=9757, seconds=97.5, context_tokens=9000, peak_tokens_per_second=111.0),
        at(500, width=1, tokens=0, seconds=0.0, context_tokens=9000),
        at(400, width=4, tokens=600, seconds=3.0, context_tokens=100_000),
    )

    found = await measured.performance(chosen)

    one, four = found.widths
    assert (one.width, one.tokens, one.seconds, one.peak_tokens_per_second) == (1, 11155, 107.5, 150.0)
    assert one.tokens_per_second == pytest.approx(103.767, abs=0.001)
    assert one.ceiling_tokens_per_second is None
    assert (four.width, four.tokens_per_second, four.peak_tokens_per_second) == (4, 200.0, None)
    assert [(each.width, each.context_tokens, each.tokens_per_second) for each in found.contexts] == [
        (1, 4096, pytest.approx(139.8)),
        (1, 16_384, pytest.approx(9757 / 97.5)),
        (4, 131_072, 200.0),
    ]


@pytest.mark.parametrize("chosen", RANGES)
async def test_a_ceiling_is_weighted_by_the_seconds_of_those_that_have_one(measured, chosen):
    measured.record(
        stretch(started_at_s=NOW_S - 60, seconds=10.0, ceiling_tokens_per_second=200.0),
        stretch(started_at_s=NOW_S - 50, seconds=30.0, ceiling_tokens_per_second=100.0),
        stretch(started_at_s=NOW_S - 40, seconds=99.0),
    )

    (width,) = (await measured.performance(chosen)).widths

    assert width.ceiling_tokens_per_second == pytest.approx((10 * 200 + 30 * 100) / 40)


@pytest.mark.parametrize("chosen", RANGES)
async def test_a_model_is_told_apart_and_all_are_named(measured, chosen):
    measured.record(
        row(1, started_at_s=NOW_S - 60, model="asked"),
        row(2, started_at_s=NOW_S - 60, model="turned away", outcome="rejected"),
        stretch(started_at_s=NOW_S - 60, model="decoded", tokens=500),
    )

    of_one = await measured.performance(chosen, "asked")
    of_all = await measured.performance(chosen)

    assert of_one.models == of_all.models == ("asked", "decoded")
    assert (of_one.model, of_one.requests, of_one.widths, of_one.speeds) == ("asked", 1, (), ())
    assert [width.tokens for width in of_all.widths] == [500]


@pytest.mark.parametrize("chosen", RANGES)
async def test_where_nothing_was_measured_nothing_is_said(measured, chosen):
    found = await measured.performance(chosen)

    assert set(told(found).values()) == {None}
    assert (found.hit_rate, found.acceptance, found.tokens_per_draft, found.input_output_ratio) == (None,) * 4
    assert (found.models, found.widths, found.contexts, found.points, found.regression) == ((), (), (), (), None)
    assert (found.speeds, found.ttfts, found.requests) == ((), (), 0)
    assert found.discarded == {"idle": 3}


@pytest.mark.parametrize("chosen", RANGES)
async def test_a_chart_has_at_most_120_steps(measured, chosen):
    for day in range(0, 3 * 365, 5):
        measured.record(stretch(started_at_s=NOW_S - day * DAY_S), row(day, started_at_s=NOW_S - day * DAY_S))
    measured.record(*(stretch(started_at_s=NOW_S - minute * 60) for minute in range(0, 60 * 24 * 7, 7)))

    found = await measured.performance(chosen)

    steps = {point.at_s for point in found.speeds}
    assert 5 < len(steps) <= STEPS_LIMIT + 1
    assert len({point.at_s for point in found.ttfts}) <= STEPS_LIMIT + 1
    assert all(found.since_s - found.step_s < at_s <= NOW_S for at_s in steps)


async def test_days_are_those_of_the_machines_time_zone(measured):
    # The last day of October there, an hour before midnight; and the first of November, after the clocks went back.
    before, after = datetime(2026, 10, 31, 23).timestamp(), datetime(2026, 11, 1, 12).timestamp()
    measured.now_s = datetime(2026, 11, 2, 9).timestamp()
    measured.record(stretch(started_at_s=before), stretch(started_at_s=after))

    found = await measured.performance("month")

    midnights = [datetime(2026, 10, 31).timestamp(), datetime(2026, 11, 1).timestamp()]
    assert [point.at_s for point in found.speeds] == midnights
    assert midnights[1] - midnights[0] == DAY_S
    assert found.since_s == datetime(2026, 10, 4).timestamp()
    assert found.step_s == DAY_S


@pytest.mark.parametrize("chosen", RANGES)
async def test_what_has_a_date_to_come_is_in_no_range(measured, chosen):
    rows = random_rows(7, number=100, within_s=HOUR_S / 2)
    measured.record(*rows, *(stretch(started_at_s=NOW_S - 60 * n, context_tokens=900 * n) for n in range(1, 9)))
    without = await measured.performance(chosen)

    for number, ahead_s in enumerate((2 * HOUR_S, 2 * DAY_S, 40 * DAY_S)):
        measured.record(
            row(9000 + number, started_at_s=NOW_S + ahead_s, model="future", ttft_ms=9e6, queue_ms=1.0),
            stretch(started_at_s=NOW_S + ahead_s, model="future", tokens=9, width=3),
            stretch(started_at_s=NOW_S + ahead_s, model="small", context_tokens=77, width=1),
        )

    assert await measured.performance(chosen) == without


async def test_all_time_is_today_when_everything_has_a_date_to_come(measured):
    measured.record(row(1, started_at_s=NOW_S + 9 * DAY_S))

    found = await measured.performance("all")

    assert (found.since_s, found.requests) == (local_midnight_s(NOW_S), 0)


@pytest.mark.parametrize("hour", [0, 1, 12, 23])
@pytest.mark.parametrize("day", [(2026, 3, 7), (2026, 3, 8), (2026, 3, 20), (2026, 11, 1), (2026, 11, 20)])
def test_a_month_has_thirty_days_in_the_weeks_after_the_clocks_were_changed_too(zone, day, hour):
    now = datetime(*day, hour, 30)

    span = span_of("month", now.timestamp(), first_day=None)

    assert span.first_day == (now - timedelta(days=29)).date().isoformat()
    assert span.begin_s == datetime.fromisoformat(span.first_day).timestamp()


def test_a_year_is_told_by_steps_of_four_days_that_begin_at_midnight(zone):
    span = span_of("all", datetime(2027, 3, 1, 15).timestamp(), first_day="2026-03-01")

    assert span.step_s == 4 * DAY_S
    assert span.step_of_day("2026-03-01") == datetime(2026, 3, 1).timestamp()
    assert span.step_of_day("2026-03-04") == datetime(2026, 3, 1).timestamp()
    assert span.step_of_day("2026-03-09") == datetime(2026, 3, 9).timestamp()


async def test_what_is_known_of_days_that_are_over_stays_true_when_a_row_comes_late(measured):
    def old(number):
        return row(number, started_at_s=NOW_S - 20 * DAY_S, ttft_ms=100.0 * number, queue_ms=0.0)

    measured.record(old(1))
    first = await measured.performance("all")
    measured.record(old(2), old(3))
    second = await measured.performance("all")
    measured.now_s += DAY_S
    third = await measured.performance("all")

    assert [found.ttft.count for found in (first, second, third)] == [1, 3, 3]
    assert second.ttft.p95_ms == pytest.approx(300, rel=0.05)


@pytest.mark.parametrize(("chosen", "within_s"), [("week", 6 * DAY_S), ("month", 9 * DAY_S), ("all", 9 * DAY_S)])
async def test_what_is_over_and_what_is_not_add_up_for_each_model(measured, chosen, within_s):
    rows = random_rows(5, number=600, within_s=within_s)
    measured.record(*rows)

    answers = [await measured.performance(chosen) for _ in range(2)]
    small, large = [await measured.performance(chosen, model) for model in ("small", "large")]

    times = by_measure(rows)
    assert answers[0] == answers[1]
    assert answers[0].queue.count == small.queue.count + large.queue.count == len(times["queue"])


@pytest.mark.parametrize("chosen", ["week", "month", "all"])
async def test_throughput_of_days_that_are_over_stays_true_when_a_stretch_comes_late(measured, chosen):
    at_s = NOW_S - 5 * DAY_S
    measured.record(stretch(started_at_s=at_s, tokens=1000, seconds=10.0))
    await measured.performance(chosen)
    measured.record(stretch(started_at_s=at_s + 60, tokens=2000, seconds=10.0))
    measured.record(stretch(started_at_s=NOW_S - HOUR_S, tokens=3000, seconds=10.0))

    found = [await measured.performance(chosen) for _ in range(2)]

    assert [[(width.tokens, width.seconds) for width in each.widths] for each in found] == [[(6000, 30.0)]] * 2
    assert [speed.tokens_per_second for speed in found[0].speeds] == [150, 300]
