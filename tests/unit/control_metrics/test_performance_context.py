"""Context against speed: the points, and the line through them."""

import math
import random

import pytest

from control.metrics.stretch import Stretch
from tests.unit.control_metrics.histories import stretch
from tests.unit.control_metrics.measured import NOW_S


async def test_the_points_are_the_newest_stretches_of_a_single_stream(measured):
    measured.record(*(stretch(started_at_s=NOW_S - 5000 + n, context_tokens=n) for n in range(1200)))
    measured.record(stretch(started_at_s=NOW_S, width=2), stretch(started_at_s=NOW_S, seconds=1.9))

    found = await measured.performance("day")

    assert [point.context_tokens for point in found.points] == list(range(200, 1200))
    assert found.regression.points == 1200


async def test_the_line_through_the_points_is_weighted_by_their_seconds(measured):
    points = [(10_000, 4.0, 90.0), (50_000, 60.0, 80.0), (90_000, 8.0, 66.0), (130_000, 16.0, 62.0)]
    measured.record(*(_point(context, seconds, speed) for context, seconds, speed in points))

    regression = (await measured.performance("day")).regression

    # The same as if each had been there once for each second.
    xs = [context for context, seconds, _ in points for _ in range(int(seconds))]
    ys = [speed for _, seconds, speed in points for _ in range(int(seconds))]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    sxx = sum((x - mean_x) ** 2 for x in xs)
    syy = sum((y - mean_y) ** 2 for y in ys)
    sxy = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    assert regression.slope_per_1k == pytest.approx(1000 * sxy / sxx)
    assert regression.intercept == pytest.approx(mean_y - sxy / sxx * mean_x)
    assert regression.correlation == pytest.approx(sxy / math.sqrt(sxx * syy))
    assert regression.points == 4


async def test_a_speed_that_does_not_depend_on_the_context_has_no_correlation(measured):
    chance = random.Random(7)
    measured.record(*(_point(chance.randrange(1000, 250_000), 20.0, 103.7 + chance.gauss(0, 0.4)) for _ in range(1500)))

    regression = (await measured.performance("day")).regression

    assert abs(regression.correlation) < 0.1
    assert regression.intercept == pytest.approx(103.7, abs=0.1)


async def test_a_speed_that_falls_with_the_context_is_seen_though_it_is_a_small_part_of_it(measured):
    measured.record(*(_point(context, 50.0, 100.0 - context / 100_000) for context in range(1000, 200_000, 500)))

    regression = (await measured.performance("day")).regression

    assert regression.slope_per_1k == pytest.approx(-0.01, rel=0.05)
    assert regression.correlation < -0.95


async def test_points_of_one_context_have_no_line(measured):
    measured.record(_point(5000, 10.0, 90.0), _point(5000, 10.0, 95.0))

    found = await measured.performance("day")

    assert (len(found.points), found.regression) == (2, None)


async def test_a_speed_that_never_changes_has_a_line_and_correlation_zero(measured):
    measured.record(_point(5000, 10.0, 90.0), _point(9000, 10.0, 90.0))

    regression = (await measured.performance("day")).regression

    assert (regression.slope_per_1k, regression.intercept, regression.correlation) == (0.0, 90.0, 0.0)


def _point(context_tokens, seconds, speed) -> Stretch:
    return stretch(
        started_at_s=NOW_S - 100, context_tokens=context_tokens, seconds=seconds, tokens=round(speed * seconds)
    )
