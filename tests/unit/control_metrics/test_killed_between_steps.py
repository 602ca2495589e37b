"""A writer that is killed, in whatever it does: rows and their sums are there together, pruned or not."""

import signal
import subprocess
import sys

import pytest
from sqlalchemy import func, select

from control.metrics.database import open_database
from control.metrics.tables import daily_requests, hourly_requests, requests

NUM_ROWS = 4000
# Every tenth row a step of pruning, as small as can be, so that there are many between which it can end.
WRITER = f"""
import sys
from pathlib import Path
from control.metrics import pruning
from control.metrics.database import open_database
from control.metrics.recording import record
from control.metrics.tables import requests
from tests.unit.control_gateway.test_metrics import NOON, row

pruning.ROWS_A_STEP = 7
engine = open_database(Path(sys.argv[1]))
for number in range({NUM_ROWS}):
    with engine.begin() as connection:
        record(connection, [row(number, started_at_s=NOON + number * 60, prompt_tokens=number)])
    if number % 10 == 9:
        with engine.begin() as connection:
            pruning.remove_some(connection, requests, NOON + (number - 50) * 60)
    print(number, flush=True)
"""


@pytest.mark.parametrize("num_seen", [1, 57, 230])
def test_a_writer_that_is_killed_leaves_sums_that_are_those_of_its_rows(tmp_path, num_seen):
    path = tmp_path / "splash.db"
    child = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
    for _ in range(num_seen):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.communicate()

    engine = open_database(path)
    with engine.begin() as connection:
        numbers = connection.execute(select(requests.c.number).order_by(requests.c.number)).scalars().all()
        sums = [
            tuple(connection.execute(select(func.sum(table.c.requests), func.sum(table.c.prompt_tokens))).one())
            for table in (hourly_requests, daily_requests)
        ]
    engine.dispose()
    num_written = numbers[-1] + 1
    assert num_seen <= num_written < NUM_ROWS
    assert numbers == list(range(numbers[0], num_written))
    assert sums == [(num_written, num_written * (num_written - 1) // 2)] * 2
