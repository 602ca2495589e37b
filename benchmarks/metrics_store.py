"""The metrics store: how many bytes a request costs, and how fast the writer, pruning, a backup and a check are.

Requests like those of coding agents, evenly over 30 days, through the code that control runs. It starts no process.
"""

import asyncio
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine

from benchmarks.report import Goal, Measurement, run
from control.metrics import pruning
from control.metrics.backup import back_up
from control.metrics.damage import CHECKED_WHOLE_BYTES, check
from control.metrics.database import checkpoint, open_database, open_for_reading
from control.metrics.pruning import KEPT_S, Pruning
from control.metrics.questions import Questions
from control.metrics.recording import Entry, record
from control.metrics.stretch import Stretch
from control.metrics.writer import Writer
from control.wire import RequestRow

NUM_ROWS = 1_000_000
NUM_ROWS_QUICK = 100_000
# As many as a busy machine has in an hour or two.
ROWS_A_BATCH = 2000
REQUESTS_A_STRETCH = 8
# Some seconds of a gateway that ends 500 requests a second.
ROWS_WAITED_FOR = 1000
NUM_WRITTEN = 20_000
NUM_WRITTEN_QUICK = 3000
BYTES_TARGET = 600.0
ROWS_TARGET = 500.0
NOW_S = 1_796_000_000.0


def requests_of(chance: random.Random, num_rows: int, *, seconds: float) -> Iterator[RequestRow]:
    """As many, evenly over so many seconds before NOW_S."""
    for number in range(1, num_rows + 1):
        outcome = chance.choices(("completed", "cancelled", "failed", "rejected"), (930, 50, 12, 8))[0]
        was_run = outcome != "rejected"
        prompt = int(min(chance.lognormvariate(10.6, 0.9), 262_144))
        cached = int(prompt * (chance.uniform(0.9, 0.995) if chance.random() < 0.95 else chance.uniform(0, 0.4)))
        completion = int(min(chance.lognormvariate(5.2, 1.0), 16_000)) + 2 if was_run else 0
        queue_ms = chance.expovariate(1 / 400)
        prefill_ms = 40 + (prompt - cached) / 2.8
        decode_ms = completion * chance.uniform(14, 34)
        yield RequestRow(
            id=f"{chance.getrandbits(128):032x}",
            number=number,
            started_at_s=NOW_S - seconds * (1 - number / num_rows),
            key=chance.choice(("claude", "codex", "opencode", "nightly-batch")),
            dialect=chance.choice(("messages", "responses", "chat")),
            model="Qwen3.8-27B-4bit" if chance.random() < 0.9 else "Qwen3.8-9B-8bit",
            stream=True,
            outcome=outcome,
            error_code=None if outcome in ("completed", "cancelled") else "engine_died",
            finish_reason="tool_calls" if outcome == "completed" else None,
            queue_ms=queue_ms if was_run else None,
            prefill_ms=prefill_ms if was_run else None,
            decode_ms=decode_ms if was_run else None,
            ttft_ms=queue_ms + prefill_ms + 12 if was_run else None,
            total_ms=queue_ms + prefill_ms + decode_ms + 12,
            prompt_tokens=prompt,
            cached_tokens=cached if was_run else 0,
            completion_tokens=completion,
            reasoning_tokens=completion // 3,
            request_class="batch" if number % 11 == 0 else "interactive",
            first_emission_tokens=1 if was_run else 0,
            drafted_tokens=completion * 2,
            accepted_tokens=completion,
            largest_gap_ms=chance.uniform(40, 480) if was_run else None,
        )


def with_stretches(chance: random.Random, rows: Iterator[RequestRow]) -> Iterator[Entry]:
    for row in rows:
        yield row
        if row.number % REQUESTS_A_STRETCH == 0:
            seconds, speed, width = chance.uniform(3, 60), chance.uniform(60, 180), chance.randint(1, 4)
            context = chance.randint(4000, 200_000)
            yield Stretch(
                row.started_at_s, seconds, row.model, width, int(speed * seconds), context, speed * 1.08, speed * 1.4
            )


def fill(engine: Engine, entries: Iterator[Entry]) -> None:
    batch: list[Entry] = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == ROWS_A_BATCH:
            with engine.begin() as connection:
                record(connection, batch)
            batch = []
    with engine.begin() as connection:
        record(connection, batch)


def rows_per_second_alone(path: Path, rows: list[RequestRow]) -> float:
    """Each in a transaction of its own: the most work that a row can be."""
    engine = open_database(path)
    began_at = time.monotonic()
    for row in rows:
        with engine.begin() as connection:
            record(connection, [row])
    seconds = time.monotonic() - began_at
    engine.dispose()
    return len(rows) / seconds


async def rows_per_second(path: Path, rows: list[RequestRow], *, each: int) -> float:
    """One row a call of the writer's `record`; after `each` of them it is waited until they are written."""
    writer = Writer(open_database(path))
    began_at = time.monotonic()
    for number, row in enumerate(rows, 1):
        writer.record(row)
        if number % each == 0:
            await writer.write(lambda connection: None)
    await asyncio.to_thread(writer.close)
    seconds = time.monotonic() - began_at
    assert writer.losses == 0
    return len(rows) / seconds


async def prune(path: Path, *, num_kept_days: float) -> tuple[int, float, float]:
    """Rows removed, how long it took, and the longest that somebody else's order waited meanwhile, in milliseconds."""
    writer = Writer(open_database(path))
    pruned = asyncio.create_task(Pruning(writer, wall=lambda: NOW_S + KEPT_S - num_kept_days * 86_400).prune())
    began_at, waits_ms = time.monotonic(), [0.0]
    while not pruned.done():
        asked_at = time.monotonic()
        await writer.write(lambda connection: None)
        waits_ms.append(1000 * (time.monotonic() - asked_at))
        await asyncio.sleep(0.02)
    seconds = time.monotonic() - began_at
    await asyncio.to_thread(writer.close)
    return await pruned, seconds, max(waits_ms)


async def today_ms(path: Path) -> float:
    questions = Questions(open_for_reading(path), wall=lambda: NOW_S)
    times = []
    for _ in range(50):
        asked_at = time.monotonic()
        await questions.today()
        times.append(1000 * (time.monotonic() - asked_at))
    questions.close()
    return statistics.median(times)


def check_ms(path: Path) -> float:
    """Of what is checked at a start."""
    with closing(sqlite3.connect(path)) as connection:
        began_at = time.monotonic()
        check(connection.cursor(), path.stat().st_size)
        return 1000 * (time.monotonic() - began_at)


def measure(is_quick: bool) -> Measurement:
    num_rows = NUM_ROWS_QUICK if is_quick else NUM_ROWS
    num_written = NUM_WRITTEN_QUICK if is_quick else NUM_WRITTEN
    # As many in an hour as in the long run, so that the sums of an hour are shared by as many.
    seconds = KEPT_S * num_rows / NUM_ROWS
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "splash.db"
        engine = open_database(path)
        empty_bytes = path.stat().st_size
        began_at = time.monotonic()
        fill(engine, with_stretches(chance, requests_of(chance, num_rows, seconds=seconds)))
        filled_s = time.monotonic() - began_at
        checkpoint(engine, "TRUNCATE")
        engine.dispose()
        size_bytes = path.stat().st_size
        rows = list(requests_of(chance, num_written, seconds=3600))
        cpu_began_at_s = time.process_time()
        alone = rows_per_second_alone(Path(folder) / "alone.db", rows)
        alone_cpu_ms = 1000 * (time.process_time() - cpu_began_at_s) / num_written
        onto_many = asyncio.run(rows_per_second(path, rows, each=ROWS_WAITED_FOR))
        backup = back_up(path, Path(folder) / "copy.db")
        detail = {
            "num_rows": num_rows,
            "size_mib": round(size_bytes / 2**20, 1),
            "fill_rows_per_second": round(num_rows / filled_s),
            "tables_bytes_per_request": by_table(path, num_rows),
            "cpu_ms_per_row_each_a_transaction": round(alone_cpu_ms, 2),
            "backup_seconds": round(backup.seconds, 2),
            "today_ms": round(asyncio.run(today_ms(path)), 2),
            "check_ms": round(check_ms(path), 1),
            "check_is_whole": path.stat().st_size <= CHECKED_WHOLE_BYTES,
        }
        removed, pruning_s, wait_ms = asyncio.run(prune(path, num_kept_days=seconds / 86_400 * 0.9))
        detail |= {
            "pruned_rows": removed,
            "pruned_rows_per_second": round(removed / pruning_s),
            "rows_a_step": pruning.ROWS_A_STEP,
            "longest_wait_while_pruning_ms": round(wait_ms, 1),
        }
    per_request = (size_bytes - empty_bytes) / num_rows
    goals = (
        Goal("bytes_per_request", per_request, BYTES_TARGET, "lower"),
        Goal("rows_per_second", onto_many, ROWS_TARGET, "higher"),
        Goal("rows_per_second_each_a_transaction", alone, ROWS_TARGET, "higher"),
    )
    return Measurement("metrics_store", per_request, "bytes/request", BYTES_TARGET, "lower", detail, goals)


def by_table(path: Path, num_rows: int) -> dict[str, float]:
    """Bytes of each table and index for each request; empty where this SQLite can't say it."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            found = connection.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC").fetchall()
        except sqlite3.OperationalError:
            return {}
    return {name: round(size_bytes / num_rows, 1) for name, size_bytes in found if size_bytes > num_rows / 10}


if __name__ == "__main__":
    run(measure, __doc__ or "")
