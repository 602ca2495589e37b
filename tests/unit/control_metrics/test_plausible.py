"""What an engine says of a request and can't be so: it is cut, said in the log, and no sum or share is spoilt by it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from control.metrics.database import open_database
from control.metrics.plausible import COUNTS, PARTS, TIME_LIMIT_MS, TIMES, TOKENS_LIMIT, is_plausible, plausible
from control.metrics.tables import daily_requests
from control.metrics.writer import Writer
from tests.unit.control_gateway.test_metrics import row
from tests.unit.control_metrics.histories import stretch

counts = st.integers(-(2**70), 2**70) | st.integers(-3, 3000)
times = st.floats() | st.floats(0, 5000)


@given(
    numbers=st.fixed_dictionaries(dict.fromkeys(COUNTS, counts)),
    durations=st.fixed_dictionaries({name: times if name == "total_ms" else st.none() | times for name in TIMES}),
)
def test_whatever_an_engine_says_what_is_kept_can_be_added_up(numbers, durations):
    said = row(1, **numbers, **durations)

    kept = plausible(said)

    assert is_plausible(kept) and plausible(kept) is kept
    assert all(0 <= getattr(kept, name) <= TOKENS_LIMIT for name in COUNTS)
    assert all(getattr(kept, part) <= getattr(kept, whole) for part, whole in PARTS)
    for name in TIMES:
        ms = getattr(kept, name)
        assert (ms is None) == (durations[name] is None)
        assert ms is None or 0 <= ms <= TIME_LIMIT_MS


def test_what_can_be_so_is_left_alone_and_nothing_is_said(caplog):
    whole = row(1, prompt_tokens=10**6, cached_tokens=10**6, queue_ms=86_400_000.0, decode_ms=0.0)

    assert plausible(whole) is whole
    assert caplog.records == []


def test_only_what_is_wrong_is_cut_and_named(caplog):
    kept = plausible(row(1, prompt_tokens=100, cached_tokens=250, prefill_ms=-3.0, decode_ms=1e300, queue_ms=math.nan))

    assert kept == row(1, prompt_tokens=100, cached_tokens=100, prefill_ms=0.0, decode_ms=TIME_LIMIT_MS, queue_ms=0.0)
    [line] = [record.getMessage() for record in caplog.records]
    assert line == "counts cut id=id-1 counts=cached_tokens=250 queue_ms=nan prefill_ms=-3.0 decode_ms=1e+300"


@pytest.mark.parametrize("number", [math.inf, math.nan, -1.0, 1e300])
@pytest.mark.parametrize("name", ["seconds", "peak_tokens_per_second", "ceiling_tokens_per_second"])
def test_a_stretch_with_an_impossible_number_is_none(name, number):
    assert is_plausible(stretch())
    assert not is_plausible(stretch(**{name: number}))


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 1e300])
def test_sums_stay_finite_whatever_time_is_said(tmp_path, number):
    writer = Writer(open_database(tmp_path / "splash.db"))
    writer.record(row(1, **dict.fromkeys(TIMES, number)))
    writer.record(stretch(seconds=number))
    writer.close()

    database = open_database(tmp_path / "splash.db")
    with database.begin() as connection:
        [sums] = connection.execute(select(daily_requests)).mappings().all()
    database.dispose()
    assert writer.losses == 1
    assert all(0 <= sums[name] <= TIME_LIMIT_MS for name in ("queue_ms", "prefill_ms", "decode_ms"))
