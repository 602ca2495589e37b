"""Sums by the hour and the day equal what all rows ever said, whatever was repeated, mixed up, batched or pruned."""

import time
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, func, select

from control.metrics.buckets import RATIO
from control.metrics.database import open_database
from control.metrics.plausible import plausible
from control.metrics.pruning import remove_some
from control.metrics.recording import record
from control.metrics.stretch import Stretch
from control.metrics.tables import metadata
from control.metrics.tables import requests as requests_table
from control.metrics.tables import stretches as stretches_table
from control.metrics.writer import Writer
from tests.unit.control_gateway.test_metrics import row
from tests.unit.control_metrics.histories import BEGINNING_S, HOURS, ZONE, requests, stretch, stretches

COUNTED = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "drafted_tokens")
SUMMED = (*COUNTED, "accepted_tokens", "queue_ms", "prefill_ms", "decode_ms")
PRUNED = st.integers(0, HOURS * 3600).map(lambda second: BEGINNING_S + second)


@pytest.fixture(autouse=True, scope="module")
def in_new_york():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", ZONE.key)
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def database(tmp_path):
    engine = open_database(tmp_path / "splash.db")
    yield engine
    engine.dispose()


def found(connection, name: str) -> dict[tuple, dict]:
    table = metadata.tables[name]
    rows = connection.execute(select(table)).mappings().all()
    keys = [column.name for column in table.primary_key]
    return {tuple(each[key] for key in keys): {k: v for k, v in each.items() if k not in keys} for each in rows}


def put(database, *entries) -> None:
    with database.begin() as connection:
        record(connection, entries)


# --- What all rows ever said, worked out one group after the other ---


def whens(entry) -> dict[str, object]:
    at = datetime.fromtimestamp(entry.started_at_s, ZONE)
    return {"hourly": int(entry.started_at_s) - int(entry.started_at_s) % 3600, "daily": at.strftime("%Y-%m-%d")}


def request_sums(period, rows) -> dict[tuple, dict]:
    groups = {(whens(each)[period], each.model, each.key) for each in rows}
    sums = {}
    for when, model, key in groups:
        members = [r for r in rows if (whens(r)[period], r.model, r.key) == (when, model, key)]
        run = [r for r in members if r.outcome != "rejected"]
        sums[when, model, key] = {
            "requests": len(run),
            **{name: sum(r.outcome == name for r in members) for name in ("completed", "cancelled", "failed")},
            "rejected": len(members) - len(run),
            **{name: sum(getattr(r, name) or 0 for r in run) for name in SUMMED},
        }
    return sums


def decode_sums(period, spans) -> dict[tuple, dict]:
    def group(span):
        context = next(size for size in (2**power for power in range(12, 40)) if span.context_tokens <= size)
        return (whens(span)[period], span.model, span.width, context)

    sums = {}
    for key in {group(span) for span in spans}:
        members = [span for span in spans if group(span) == key]
        known = [span for span in members if span.ceiling_tokens_per_second is not None]
        peaks = [span.peak_tokens_per_second for span in members if span.peak_tokens_per_second is not None]
        sums[key] = {
            "tokens": sum(span.tokens for span in members),
            "seconds": sum(span.seconds for span in members),
            "peak_tokens_per_second": max(peaks) if peaks else None,
            "ceiling_tokens": sum(span.ceiling_tokens_per_second * span.seconds for span in known),
            "ceiling_seconds": sum(span.seconds for span in known),
        }
    return sums


def durations(period, rows) -> dict[tuple, list[float]]:
    said: dict[tuple, list[float]] = {}
    for each in rows:
        if each.outcome == "rejected":
            continue
        ttft, queue = each.ttft_ms, each.queue_ms
        later = each.completion_tokens - (each.first_emission_tokens or 1)
        times = {
            "ttft": ttft,
            "ttft_without_queue": None if None in (ttft, queue) else max(ttft - queue, 0),
            "queue": None if None in (ttft, queue) else min(ttft, queue),
            "inter_token": each.decode_ms / later if each.decode_ms is not None and later > 0 else None,
            "largest_gap": each.largest_gap_ms,
        }
        for measure, ms in times.items():
            if ms is not None:
                said.setdefault((whens(each)[period], each.model, measure), []).append(ms)
    return said


def assert_equal_to_what_was_said(connection, entries) -> None:
    spans = [entry for entry in entries if isinstance(entry, Stretch)]
    rows = [entry for entry in entries if not isinstance(entry, Stretch)]
    for period in ("hourly", "daily"):
        assert found(connection, f"{period}_requests") == request_sums(period, rows)
        assert found(connection, f"{period}_decode") == decode_sums(period, spans)
        counts: dict[tuple, dict[int, int]] = {}
        for (*group, bucket), values in found(connection, f"{period}_times").items():
            counts.setdefault(tuple(group), {})[bucket] = values["count"]
        said = durations(period, rows)
        assert counts.keys() == said.keys()
        for group, times in said.items():
            sorted_buckets = [bucket for bucket, count in sorted(counts[group].items()) for _ in range(count)]
            assert len(sorted_buckets) == len(times)
            for bucket, ms in zip(sorted_buckets, sorted(times), strict=True):
                assert ms <= 1 if bucket == 0 else RATIO ** (bucket - 1) * 0.999 < ms <= RATIO**bucket * 1.001


# --- Tests ---

batches = st.lists(requests() | stretches(), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(batches | PRUNED, max_size=10))
def test_the_sums_are_those_of_all_rows_whatever_was_repeated_batched_or_pruned(steps):
    database = create_engine("sqlite://")
    metadata.create_all(database)
    said, kept = [], {}
    for step in steps:
        with database.begin() as connection:
            if isinstance(step, list):
                record(connection, step)
                for entry in step:
                    if isinstance(entry, Stretch):
                        said.append(entry)
                    elif entry.id not in kept:
                        kept[entry.id] = entry
                        said.append(entry)
            else:
                for table in (requests_table, stretches_table):
                    while remove_some(connection, table, step):
                        pass
                kept = {key: each for key, each in kept.items() if each.started_at_s >= step}

    with database.begin() as connection:
        assert set(connection.execute(select(requests_table.c.id)).scalars()) == set(kept)
        assert_equal_to_what_was_said(connection, said)
    database.dispose()


@settings(max_examples=15, deadline=None)
@given(entries=st.lists(requests() | stretches(), max_size=40))
def test_what_the_writer_records_one_at_a_time_is_in_the_sums(entries, tmp_path_factory):
    path = tmp_path_factory.mktemp("sums") / "splash.db"
    writer = Writer(open_database(path))
    for entry in entries:
        writer.record(entry)
    writer.close()

    first = {entry.id: entry for entry in reversed(entries) if not isinstance(entry, Stretch)}
    said = [entry for entry in entries if isinstance(entry, Stretch) or first[entry.id] is entry]
    said = [entry if isinstance(entry, Stretch) else plausible(entry) for entry in said]
    database = open_database(path)
    with database.begin() as connection:
        assert_equal_to_what_was_said(connection, said)
    database.dispose()


def test_one_that_was_turned_away_is_counted_as_that_and_as_nothing_else(database):
    turned_away = row(2, outcome="rejected", queue_ms=5.0, ttft_ms=9.0, prompt_tokens=900)
    put(database, row(1), turned_away, row(3, outcome="failed"))

    with database.begin() as connection:
        [sums] = found(connection, "daily_requests").values()
        [count] = {values["count"] for key, values in found(connection, "daily_times").items() if "ttft" in key}
    assert (sums["requests"], sums["completed"], sums["failed"], sums["rejected"]) == (2, 1, 1, 1)
    assert sums["prompt_tokens"] == 200
    assert count == 2


def test_the_two_hours_that_the_clock_shows_twice_are_two_hours_of_one_day(database):
    first = datetime(2026, 11, 1, 1, 30, tzinfo=ZONE).timestamp()
    put(database, row(1, started_at_s=first), row(2, started_at_s=first + 3600))

    with database.begin() as connection:
        hours = {key[0] for key in found(connection, "hourly_requests")}
        days = {key[0]: values["requests"] for key, values in found(connection, "daily_requests").items()}
    assert hours == {first - 1800, first + 1800}
    assert days == {"2026-11-01": 2}


def test_the_peak_of_an_hour_is_the_highest_that_is_known(database):
    for peak in (None, 80.0, None, 75.0):
        put(database, stretch(peak_tokens_per_second=peak))

    with database.begin() as connection:
        [sums] = found(connection, "hourly_decode").values()
    assert sums["peak_tokens_per_second"] == 80.0
    assert (sums["tokens"], sums["seconds"]) == (2800, 40.0)


def test_a_ceiling_counts_for_the_seconds_that_have_one(database):
    put(database, stretch(seconds=30.0), stretch(seconds=10.0, ceiling_tokens_per_second=100.0))

    with database.begin() as connection:
        [sums] = found(connection, "daily_decode").values()
    assert (sums["ceiling_tokens"], sums["ceiling_seconds"]) == (1000.0, 10.0)


def test_of_a_batch_that_fails_nothing_is_kept_neither_rows_nor_sums(database):
    with pytest.raises(Exception, match="NOT NULL"), database.begin() as connection:
        record(connection, [row(1), stretch(), row(2, dialect=None)])

    with database.begin() as connection:
        sizes = {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in metadata.tables.items()
        }
    assert set(sizes.values()) == {0}


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 1e300])
def test_a_row_with_an_impossible_date_is_lost_alone(tmp_path, number):
    writer = Writer(open_database(tmp_path / "splash.db"))
    for each in (row(1), row(2), row(3, started_at_s=number), row(4)):
        writer.record(each)
    writer.close()

    database = open_database(tmp_path / "splash.db")
    with database.begin() as connection:
        rows = connection.execute(select(requests_table.c.number)).scalars().all()
        [sums] = found(connection, "daily_requests").values()
    database.dispose()
    assert set(rows) == {1, 2, 4}
    assert sums["requests"] == 3
    assert writer.losses == 1
