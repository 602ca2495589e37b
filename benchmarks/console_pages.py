"""Every page of the console over a long history: the time until its last byte, and the growth of the database.

Control, the console and a scripted engine are real processes; the file has 1,000,000 request rows and the sums of two
years. A page is asked over one kept connection, as a browser asks; what it asks of control is inside its time.
"""

import math
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import msgspec

from benchmarks.console_history import make_history
from benchmarks.gateway_stack import Gateway
from benchmarks.report import Goal, Measurement, run
from control import wire

NUM_ROWS: Final = 1_000_000
QUICK_NUM_ROWS: Final = 50_000
NUM_DAYS: Final = 730
NUM_VISITS: Final = 40
NUM_WARM_UPS: Final = 2
PAGE_TARGET_MS: Final = 150.0
NOW_TARGET_MS: Final = 15.0
GROWTH_TARGET_BYTES: Final = 600.0

NOW: Final = ("/", "/now/live", "/state")
REQUEST_LINK: Final = re.compile(r'href="(/requests/[^"?/]+)"')
OTHERS: Final = (
    "/performance?range=hour",
    "/performance?range=day",
    "/performance?range=week",
    "/performance?range=month",
    "/performance?range=all",
    "/requests",
    "/requests?range=month",
    "/requests?range=month&sort=ttft&direction=desc",
    "/requests?range=month&key=claude&sort=speed&direction=desc",
    "/requests?range=month&outcome=failed",
    "/requests?range=month&key=nobody",
    "/requests?range=month&model=demo&sort=output&direction=asc",
    "/model",
    "/cost?range=day",
    "/cost?range=month",
    "/cost?range=all",
    "/clients",
    "/playground",
    "/logs",
    "/settings",
    "/quit",
)
SCRIPT: Final[list[dict[str, Any]]] = [{"match": "", "steps": [{"prefill": {}}, {"tokens": {"text": "done"}}]}]


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


@contextmanager
def console(started: Gateway) -> Iterator[httpx.Client]:
    """A browser that is logged in, without a browser."""
    ports, home = started.stack.ports, started.stack.home.root
    places = ("--home", str(home), "--port", str(ports["console"]), "--admin-port", str(ports["admin"]))
    child = started.stack.start("webui", *places)
    address = f"http://127.0.0.1:{ports['console']}"
    with httpx.Client(base_url=address, trust_env=False, timeout=60, follow_redirects=True) as client:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                client.get("/healthz")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        link = msgspec.json.decode(started.order(wire.LOGIN_LINKS, wire.NewLoginLink()), type=wire.LoginLink)
        client.get("/login", params={"token": link.token}).raise_for_status()
        yield client
    child.terminate()
    child.wait(10)


def visit(client: httpx.Client, path: str) -> float:
    """Milliseconds until the last byte. Raises HTTPStatusError for a page that is not there."""
    began_at = time.perf_counter()
    answer = client.get(path)
    taken_ms = (time.perf_counter() - began_at) * 1000
    answer.raise_for_status()
    return taken_ms


def times_of(client: httpx.Client, path: str) -> list[float]:
    for _ in range(NUM_WARM_UPS):
        visit(client, path)
    return [visit(client, path) for _ in range(NUM_VISITS)]


def growth_bytes(path: Path, num_rows: int) -> float:
    """Bytes a request of what the 30 days' rows take with all that belongs to them: their own table and its indexes."""
    connection = sqlite3.connect(path)
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.close()
    return pages * page_bytes / num_rows


def measure(is_quick: bool) -> Measurement:
    num_rows = QUICK_NUM_ROWS if is_quick else NUM_ROWS
    with TemporaryDirectory(prefix="splash-pages-") as name:
        folder = Path(name)
        alone = folder / "alone.db"
        make_history(alone, now_s=time.time(), num_rows=num_rows, num_days=0)
        grown_bytes = growth_bytes(alone, num_rows)
        alone.unlink()
        started = Gateway(folder, SCRIPT)
        started.stack.home.create()
        made = folder / "history.db"
        make_history(made, now_s=time.time(), num_rows=num_rows, num_days=NUM_DAYS)
        shutil.move(made, started.stack.home.database)
        try:
            started.start()
            with console(started) as client:
                link = REQUEST_LINK.search(client.get("/requests").text)
                assert link is not None, "the page Requests has no request"
                paths = (*NOW, *OTHERS, link[1])
                found = {path: times_of(client, path) for path in paths}
        finally:
            started.clean_up()
    p95_ms = {path: percentile(times, 0.95) for path, times in found.items()}
    worst = max((path for path in p95_ms if path not in NOW), key=lambda path: p95_ms[path])
    return Measurement(
        name="console_pages",
        value=round(p95_ms[worst], 1),
        unit="ms p95 of the slowest page",
        target=PAGE_TARGET_MS,
        better="lower",
        detail={
            "rows": num_rows,
            "slowest": worst,
            "p95_ms": {path: round(value, 1) for path, value in p95_ms.items()},
            "p50_ms": {path: round(percentile(times, 0.5), 1) for path, times in found.items()},
        },
        goals=(
            Goal("now_p95_ms", round(max(p95_ms[path] for path in NOW), 1), NOW_TARGET_MS, "lower"),
            Goal("growth_bytes_a_request", round(grown_bytes, 1), GROWTH_TARGET_BYTES, "lower"),
        ),
    )


if __name__ == "__main__":
    run(measure, __doc__ or "")
