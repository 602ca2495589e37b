"""A splash.db with a long history, made by SQL: rows of 30 days, sums by the hour and the day of two years.

Lengths and times are drawn like those of coding agents; the sums of the last 30 days are those of the rows. It measures
nothing.
"""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from control.metrics.buckets import bucket_of
from control.metrics.database import open_database

DAY_S: Final = 86_400
KEPT_DAYS: Final = 30
MODELS: Final = ("Qwen3.8-27B-4bit", "demo")
KEYS: Final = ("claude", "codex", "opencode", "nightly-batch")
DIALECTS: Final = ("messages", "responses", "chat", "completions")
OUTCOMES: Final = (("completed", 0.93), ("cancelled", 0.05), ("failed", 0.012), ("rejected", 0.008))
SUMS: Final = (
    "SUM(outcome != 'rejected'), SUM(outcome = 'completed'), SUM(outcome = 'cancelled'), SUM(outcome = 'failed'), "
    "SUM(outcome = 'rejected'), "
    + ", ".join(
        f"SUM(CASE WHEN outcome = 'rejected' THEN 0 ELSE COALESCE({name}, 0) END)"
        for name in (
            *("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "drafted_tokens"),
            *("accepted_tokens", "queue_ms", "prefill_ms", "decode_ms"),
        )
    )
)
HOUR: Final = "CAST(started_at_s / 3600 AS INTEGER) * 3600"
DAY: Final = "date(started_at_s, 'unixepoch', 'localtime')"
TIMES: Final = {
    "ttft": "ttft_ms",
    "ttft_without_queue": "ttft_ms - queue_ms",
    "queue": "min(queue_ms, ttft_ms)",
    "inter_token": "decode_ms / (completion_tokens - MAX(first_emission_tokens, 1))",
    "largest_gap": "largest_gap_ms",
}


def make_history(path: Path, *, now_s: float, num_rows: int, num_days: int, seed: int = 1) -> None:
    """Make the file at the newest revision and fill it. The rows are evenly spread over the 30 days before `now_s`."""
    open_database(path).dispose()
    connection = sqlite3.connect(path)
    connection.create_function("bucket_of", 1, bucket_of, deterministic=True)
    with connection:
        connection.execute("PRAGMA synchronous = OFF")
        chance = random.Random(seed)
        rows = _rows(chance, now_s=now_s, num_rows=num_rows)
        first = next(rows)
        statement = f"INSERT INTO requests ({', '.join(first)}) VALUES ({', '.join('?' * len(first))})"
        connection.execute(statement, tuple(first.values()))
        connection.executemany(statement, (tuple(row.values()) for row in rows))
        _sum_up(connection)
        _fill_stretches(connection, chance, now_s=now_s)
        _copy_back(connection, num_days=num_days)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _rows(chance: random.Random, *, now_s: float, num_rows: int) -> Iterator[dict[str, object]]:
    step_s = KEPT_DAYS * DAY_S / num_rows
    outcomes, weights = zip(*OUTCOMES, strict=True)
    for number in range(1, num_rows + 1):
        outcome = chance.choices(outcomes, weights)[0]
        is_run = outcome != "rejected"
        prompt = int(min(chance.lognormvariate(10.6, 0.9), 262_144))
        cached = int(prompt * (chance.uniform(0.9, 0.995) if chance.random() < 0.95 else chance.uniform(0, 0.4)))
        completion = int(min(chance.lognormvariate(5.2, 1.0), 16_000)) + 2 if is_run else 0
        queue_ms = chance.expovariate(1 / 400) if is_run else None
        prefill_ms = 40 + (prompt - cached) / 2.8 if is_run else None
        decode_ms = completion * chance.uniform(14, 34) if is_run else None
        ttft_ms = None if queue_ms is None or prefill_ms is None else queue_ms + prefill_ms + 12
        yield {
            "id": f"{chance.getrandbits(128):032x}",
            "number": number,
            "started_at_s": now_s - KEPT_DAYS * DAY_S + number * step_s,
            "key": KEYS[number * 7 % 11 % 4],
            "dialect": chance.choice(DIALECTS),
            "model": MODELS[number * 7 // num_rows % 2],
            "stream": 1,
            "outcome": outcome,
            "error_code": {"cancelled": "client_gone", "failed": "engine_died"}.get(outcome),
            "finish_reason": "tool_calls" if outcome == "completed" else None,
            "queue_ms": queue_ms,
            "prefill_ms": prefill_ms,
            "decode_ms": decode_ms,
            "ttft_ms": ttft_ms,
            "total_ms": (ttft_ms or 2.0) + (decode_ms or 0.0),
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "completion_tokens": completion,
            "reasoning_tokens": completion // 3,
            "request_class": "batch" if number % 11 == 0 else "interactive",
            "first_emission_tokens": 1 if is_run else 0,
            "drafted_tokens": completion * 2,
            "accepted_tokens": completion,
            "largest_gap_ms": chance.uniform(40, 480) if is_run else None,
        }


def _sum_up(connection: sqlite3.Connection) -> None:
    for period, when in (("hourly", HOUR), ("daily", DAY)):
        connection.execute(
            f"INSERT INTO {period}_requests SELECT {when}, model, key, {SUMS} FROM requests GROUP BY 1, 2, 3"
        )
        for measure, value in TIMES.items():
            connection.execute(
                f"INSERT INTO {period}_times SELECT {when}, model, ?, bucket_of({value}), COUNT(*) FROM requests "
                f"WHERE {value} IS NOT NULL AND outcome != 'rejected' GROUP BY 1, 2, 3, 4",
                (measure,),
            )


def _fill_stretches(connection: sqlite3.Connection, chance: random.Random, *, now_s: float) -> None:
    """One of twenty seconds in the mean every two minutes, at each of four widths in turn."""
    rows = []
    for number in range(KEPT_DAYS * DAY_S // 120):
        width, seconds = 1 + number % 4, chance.uniform(3, 60)
        context = int(chance.uniform(4_000, 200_000))
        speed = (70, 118, 150, 176)[width - 1] * chance.uniform(0.95, 1.05)
        started_at_s = now_s - KEPT_DAYS * DAY_S + number * 120
        tokens = int(speed * seconds)
        rows.append((started_at_s, seconds, MODELS[0], width, tokens, context, speed * 1.08, speed * 1.4))
    connection.executemany(
        "INSERT INTO stretches (started_at_s, seconds, model, width, tokens, context_tokens, peak_tokens_per_second, "
        "ceiling_tokens_per_second) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    bucket = "MAX(4096, 1 << CAST(ceil_log2(context_tokens) AS INTEGER))"
    connection.create_function("ceil_log2", 1, lambda tokens: max(tokens - 1, 0).bit_length(), deterministic=True)
    for period, when in (("hourly", HOUR), ("daily", DAY)):
        connection.execute(
            f"INSERT INTO {period}_decode SELECT {when}, model, width, {bucket}, SUM(tokens), SUM(seconds), "
            "MAX(peak_tokens_per_second), SUM(ceiling_tokens_per_second * seconds), SUM(seconds) FROM stretches "
            "GROUP BY 1, 2, 3, 4"
        )


def _copy_back(connection: sqlite3.Connection, *, num_days: int) -> None:
    """The sums of the 30 days again for the 30 before, and so on: older rows are gone, their sums are not."""
    for back in range(KEPT_DAYS, num_days, KEPT_DAYS):
        for table, when in _period_tables():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")][1:]
            moved = f"hour_s - {back * DAY_S}" if when == "hour_s" else f"date(day, '-{back} days')"
            newest = f"{when} >= " + (
                f"(SELECT MAX(hour_s) - {KEPT_DAYS * DAY_S} FROM hourly_requests)"
                if when == "hour_s"
                else f"(SELECT date(MAX(day), '-{KEPT_DAYS} days') FROM daily_requests)"
            )
            connection.execute(
                f"INSERT OR IGNORE INTO {table} SELECT {moved}, {', '.join(columns)} FROM {table} WHERE {newest}"
            )


def _period_tables() -> Iterator[tuple[str, str]]:
    for kind in ("requests", "decode", "times"):
        yield f"hourly_{kind}", "hour_s"
        yield f"daily_{kind}", "day"
