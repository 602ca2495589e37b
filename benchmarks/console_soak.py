"""*Now*, open for two hours while requests come and go: the browser's memory, and whether anything on the page moves.

Control, the console and a scripted engine are real processes, the browser is Chromium, and the page polls by itself.
Once a minute, after a forced collection: heap, nodes, listeners and the renderer's memory. It measures no model.
"""

import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from benchmarks.chromium import OpenPage, chromium
from benchmarks.report import Goal, Measurement, command_line, show
from control.wire import RESTART
from tests.story.stack import Stack, fake_engine

MINUTES: Final = 120.0
QUICK_MINUTES: Final = 3.0
SAMPLE_EVERY_S: Final = 60.0
QUICK_SAMPLE_EVERY_S: Final = 12.0
# Caches of the browser fill up, and for an hour the tables of the last hour do; what grows afterwards grows for ever.
WARM_UP_SHARE: Final = 0.5
MIB: Final = 2**20

HEAP_TARGET_MIB: Final = 0.5
MEMORY_TARGET_MIB: Final = 16.0
NODES_TARGET: Final = 150
"""The page holds more while more requests wait: about 30 nodes each."""
LISTENERS_TARGET: Final = 20
POLLS_TARGET: Final = 0.9
"""Answers of the live part a second; it asks once a second."""

NUM_CLIENTS: Final = 6
PAUSE_LIMIT_S: Final = 14.0
# In the last of so many seconds nobody asks: rows and line empty themselves.
QUIET_EVERY_S: Final = 300.0
QUIET_S: Final = 40.0
RESTART_EVERY_S: Final = 900.0

SCRIPT: Final = [
    {
        "match": "a long document",
        "steps": [
            {"prefill": {"total": 61_204, "cached": 20_480, "duration_ms": 7_000}},
            {"tokens": {"text": "word " * 90, "per_second": 12}},
        ],
    },
    {
        "match": "a thought",
        "steps": [
            {"prefill": {"total": 2_310, "cached": 2_048, "duration_ms": 600}},
            {"tokens": {"text": "hm " * 40, "per_second": 15, "kind": "reasoning"}},
            {"tokens": {"text": "word " * 60, "per_second": 15}},
        ],
    },
    {
        "match": "a word",
        "steps": [
            {"prefill": {"total": 300, "duration_ms": 200}},
            {"tokens": {"text": "word " * 20, "per_second": 10}},
        ],
    },
]
QUESTIONS: Final = ("a long document", "a thought", "a word", "a word")

# What has not moved: a number that grew at its left and ends where it ended; a row of the line or of the ended requests
# that goes on in its list; and what says that the model comes or goes, while it does.
COUNT_SHIFTS: Final = """() => {
    window.shifts = {score: 0, moved: 0, what: new Set()};
    let isSettledAt = 0;
    const isNews = (near) => near.closest("#state, #engine") !== null && performance.now() < isSettledAt;
    const stays = ({previousRect: was, currentRect: is}) =>
        Math.abs(was.right - is.right) < 1 && was.top === is.top && was.height === is.height;
    new PerformanceObserver((list) => {
        if (document.getElementById("state-word").textContent !== "ready") isSettledAt = performance.now() + 3000;
        for (const entry of list.getEntries()) {
            if (entry.hadRecentInput) continue;
            window.shifts.score += entry.value;
            for (const source of entry.sources) {
                const near = source.node?.nodeType === 1 ? source.node : source.node?.parentElement;
                if (!near || stays(source) || isNews(near) || near.closest("#line tbody, #recent tbody")) continue;
                window.shifts.moved += 1;
                const place = near.closest("[id]")?.id.replace(/-.*/, "");
                const [was, is] = [source.previousRect, source.currentRect].map((at) => `${at.x},${at.y} ${at.width}`);
                const what = `${place} ${near.nodeName}.${near.className} ${was} -> ${is}`;
                if (window.shifts.what.size < 20) window.shifts.what.add(what);
            }
        }
    }).observe({type: "layout-shift", buffered: true});
}"""
IS_READY: Final = "() => document.getElementById('state-word')?.textContent === 'ready'"
REMEMBER_NODES: Final = """() => {
    const ids = ["state", "live", "figures", "figure-speed", "slots", "slot-1", "slot-2", "slot-3", "slot-4",
                 "memory", "line", "engine", "recent"];
    window.remembered = ids.map((id) => [id, document.getElementById(id)]);
}"""
LOOK: Final = """() => {
    const polls = performance.getEntriesByType("resource").filter((entry) => entry.name.endsWith("/now/live"));
    performance.clearResourceTimings();
    return {
        replaced: window.remembered.filter(([id, node]) => document.getElementById(id) !== node).map(([id]) => id),
        shift_score: window.shifts.score, moved: window.shifts.moved, moved_what: [...window.shifts.what],
        polls: polls.length, poll_ms: polls.map((entry) => entry.duration),
    };
}"""


@dataclass(frozen=True, slots=True)
class Sample:
    """After a forced collection. Shifts are counted since the page was opened, `polls` since the last sample."""

    at_s: float
    heap_bytes: int
    nodes: int
    listeners: int
    renderer_bytes: int
    polls: int
    poll_p95_ms: float
    shift_score: float
    moved: int
    moved_what: tuple[str, ...]
    replaced: tuple[str, ...]


class Traffic:
    """Clients in threads that ask, pause, and now and then leave early; and an engine that is restarted."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._began_at = time.monotonic()
        self._ended = threading.Event()
        self.asked = 0
        runs = [threading.Thread(target=self._ask, args=(random.Random(n),)) for n in range(NUM_CLIENTS)]
        self._threads = [*runs, threading.Thread(target=self._restart)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, chance: random.Random) -> None:
        while not self._ended.wait(chance.uniform(0, PAUSE_LIMIT_S)):
            if (time.monotonic() - self._began_at) % QUIET_EVERY_S > QUIET_EVERY_S - QUIET_S:
                continue
            self.asked += 1
            body = {"model": "default", "stream": True, "messages": [_message(chance.choice(QUESTIONS))]}
            leaves_after = chance.choice((5, None, None, None))
            with suppress(httpx.HTTPError), self._stack.api() as api:
                self._read(api, body, leaves_after)

    def _read(self, api: httpx.Client, body: dict[str, Any], leaves_after: int | None) -> None:
        with api.stream("POST", "/chat/completions", json=body) as answer:
            for number, _ in enumerate(answer.iter_lines()):
                if self._ended.is_set() or number == leaves_after:
                    return

    def _restart(self) -> None:
        while not self._ended.wait(RESTART_EVERY_S):
            with suppress(httpx.HTTPError), self._stack.admin() as admin:
                admin.post(RESTART)


def _message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


class Watcher:
    """One page, looked at from outside."""

    def __init__(self, page: OpenPage) -> None:
        self._page = page
        self._began_at = time.monotonic()
        page.send("HeapProfiler.enable")

    def sample(self) -> Sample:
        for _ in range(2):
            self._page.send("HeapProfiler.collectGarbage")
        heap = self._page.send("Runtime.getHeapUsage")
        counters = self._page.send("Memory.getDOMCounters")
        seen = self._page.evaluate(LOOK)
        return Sample(
            at_s=round(time.monotonic() - self._began_at, 1),
            heap_bytes=int(heap["usedSize"]),
            nodes=counters["nodes"],
            listeners=counters["jsEventListeners"],
            renderer_bytes=self._renderer_bytes(),
            polls=seen["polls"],
            poll_p95_ms=_percentile(seen["poll_ms"], 0.95),
            shift_score=seen["shift_score"],
            moved=seen["moved"],
            moved_what=tuple(seen["moved_what"]),
            replaced=tuple(seen["replaced"]),
        )

    def _renderer_bytes(self) -> int:
        """Of the page's process: the largest of them, the others being spare ones."""
        found = [0]
        for process in self._page.browser.send("SystemInfo.getProcessInfo")["processInfo"]:
            if process["type"] == "renderer":
                with suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(process["id"]).memory_info().rss)
        return max(found)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0


@contextmanager
def running_stack() -> Iterator[tuple[Stack, str]]:
    """With the link that logs in."""
    with tempfile.TemporaryDirectory(prefix="splash-soak-") as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps(SCRIPT))
        stack = Stack(Path(folder) / "home", engine_command=fake_engine(script))
        try:
            yield stack, stack.up()["login"]
        finally:
            stack.quit("--force")
            stack.clean_up()


def watch(minutes: float, every_s: float) -> tuple[list[Sample], int]:
    samples: list[Sample] = []
    with running_stack() as (stack, link), chromium() as browser:
        page = OpenPage(browser, link)
        page.wait_for(IS_READY)
        page.evaluate(COUNT_SHIFTS)
        page.evaluate(REMEMBER_NODES)
        watcher = Watcher(page)
        with Traffic(stack) as traffic:
            deadline = time.monotonic() + minutes * 60
            while time.monotonic() < deadline:
                time.sleep(every_s)
                samples.append(watcher.sample())
                print(json.dumps(asdict(samples[-1])), file=sys.stderr, flush=True)
    return samples, traffic.asked


def growth(values: list[float]) -> float:
    """Between the first and the last quarter of what came after the warm-up; of each the median."""
    warm = values[int(len(values) * WARM_UP_SHARE) :]
    quarter = max(1, len(warm) // 4)
    return statistics.median(warm[-quarter:]) - statistics.median(warm[:quarter])


def measure(minutes: float, every_s: float) -> Measurement:
    samples, asked = watch(minutes, every_s)
    heap_mib = growth([sample.heap_bytes / MIB for sample in samples])
    replaced = sorted({node for sample in samples for node in sample.replaced})
    num_polls, duration_s = sum(sample.polls for sample in samples[1:]), samples[-1].at_s - samples[0].at_s
    goals = (
        Goal("heap_growth_mib", heap_mib, HEAP_TARGET_MIB, "lower"),
        Goal(
            "renderer_growth_mib",
            growth([sample.renderer_bytes / MIB for sample in samples]),
            MEMORY_TARGET_MIB,
            "lower",
        ),
        Goal("nodes_growth", growth([float(sample.nodes) for sample in samples]), NODES_TARGET, "lower"),
        Goal("listeners_growth", growth([float(sample.listeners) for sample in samples]), LISTENERS_TARGET, "lower"),
        Goal("elements_moved", samples[-1].moved, 0.0, "lower"),
        Goal("nodes_replaced", len(replaced), 0.0, "lower"),
        Goal("polls_per_s", num_polls / max(duration_s, 1.0), POLLS_TARGET, "higher"),
    )
    detail = {
        "minutes": round(samples[-1].at_s / 60, 1),
        "requests": asked,
        "heap_mib": [round(sample.heap_bytes / MIB, 2) for sample in samples],
        "renderer_mib": [round(sample.renderer_bytes / MIB, 1) for sample in samples],
        "nodes": [sample.nodes for sample in samples],
        "listeners": [sample.listeners for sample in samples],
        "poll_p95_ms": round(statistics.median(sample.poll_p95_ms for sample in samples), 1),
        "layout_shift_score": round(samples[-1].shift_score, 4),
        "moved": samples[-1].moved_what,
        "replaced": replaced,
    }
    return Measurement("console_soak", heap_mib, "MiB", HEAP_TARGET_MIB, "lower", detail=detail, goals=goals)


if __name__ == "__main__":
    # However it ends, the stack and the browser end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = command_line(__doc__ or "")
    parser.add_argument("--minutes", type=float, help="that the page stays open; 120, or 3 with --quick")
    asked_for = parser.parse_args()
    show(
        measure(
            asked_for.minutes or (QUICK_MINUTES if asked_for.quick else MINUTES),
            QUICK_SAMPLE_EVERY_S if asked_for.quick else SAMPLE_EVERY_S,
        ),
        is_json=asked_for.json,
    )
