"""Runs one cell of the fault matrix on real processes and says what was seen: the same for the test and for the table.

It judges nothing.
"""

import json
import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from control.home import PROCESS_NAMES
from control.identity import live_process
from engine.wire import ProcessRecord
from tests.story.conftest import SLOWLY
from tests.story.fault_cells import (
    ANSWERED,
    BREAKS,
    GOES_ON,
    LATER,
    NO_ANSWER,
    NO_CONNECTION,
    REFUSED,
    STANDS,
    Cell,
    Expected,
)
from tests.story.meddled_stack import MeddledStack
from tests.story.stack import fake_engine, is_free, wait_until

# A slow process runs so long, and then stands still: each of its answers comes with such a delay.
RUNS_S = 0.03
STANDS_S = 0.1
# What comes within that time came at once; a stream that gave nothing for so long stands still.
AT_ONCE_S = 4.0
QUIET_S = 1.5
PAGE_LIMIT_S = 3.0
LOOK_EVERY_S = 0.1
STARTING = ("crashed", "loading", "starts again by itself")


@dataclass(frozen=True, slots=True)
class Seen:
    """`noticed_s` is seconds since the fault, `mended_s` since the mend, or since the fault where nobody mends.

    `left`: what a quit left, in words.
    """

    expected: Expected
    noticed_s: float
    mended_s: float
    doctor: tuple[str, ...]
    quit_s: float
    quit_code: int
    left: tuple[str, ...]


class Asking:
    """One request on a thread of its own, and what became of it."""

    def __init__(self, stack: MeddledStack, content: str, *, max_tokens: int | None = None) -> None:
        self.lines: list[str] = []
        self.newest_at = time.monotonic()
        self.end: str | None = None
        self._stack = stack
        self._body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": content}]}
        if max_tokens is not None:
            self._body["max_tokens"] = max_tokens
        self.began_at = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    @property
    def is_quiet(self) -> bool:
        return time.monotonic() - self.newest_at > QUIET_S

    def close(self) -> None:
        self._over.set()

    def _ask(self) -> None:
        try:
            with (
                self._stack.api() as api,
                api.stream("POST", "/chat/completions", json=self._body) as answer,
            ):
                for line in answer.iter_lines():
                    if self._over.is_set():
                        return
                    self._read(line)
        except httpx.ConnectError:
            self.end = REFUSED
        except httpx.HTTPError:
            self.end = BREAKS
        else:
            self.end = self.end or BREAKS

    def _read(self, line: str) -> None:
        if re.search(r'"content":\s*"[^"]', line):
            self.lines.append(line)
            self.newest_at = time.monotonic()
        code = re.search(r'"code":\s*"(\w+)"', line)
        if code is not None:
            self.end = f"ends with {code[1]}"
        elif line == "data: [DONE]":
            self.end = self.end or "done"


class Page:
    """The console in a browser that is logged in."""

    def __init__(self, login: str) -> None:
        self._base = login.partition("/login")[0]
        with self._client() as http:
            http.get(login).raise_for_status()
            self._cookies = http.cookies

    def state(self) -> str:
        try:
            with self._client() as http:
                http.cookies = self._cookies
                html = http.get(f"{self._base}/state").text
        except httpx.TimeoutException:
            return NO_ANSWER
        except httpx.HTTPError:
            return NO_CONNECTION
        found = re.search(r'id="state-word">([^<]*)<', html)
        return "no state" if found is None else found[1].strip()

    def _client(self) -> httpx.Client:
        return httpx.Client(trust_env=False, timeout=PAGE_LIMIT_S, follow_redirects=True)


def run(cell: Cell, folder: Path) -> Seen:
    """The fault, what it does, its mend; then the same fault again, and the end of everything meanwhile."""
    script = folder / "script.json"
    script.write_text(json.dumps([SLOWLY]))
    stack = MeddledStack(folder / "home", engine_command=fake_engine(script), told=folder / "told")
    try:
        return _run(cell, stack)
    finally:
        for name in PROCESS_NAMES:
            record = stack.home.read_record(name)
            if record is not None and live_process(record) is not None:
                with suppress(ProcessLookupError):
                    os.kill(record.pid, signal.SIGCONT)
        stack.clean_up()


def _run(cell: Cell, stack: MeddledStack) -> Seen:
    page = Page(stack.up()["login"])
    engine = stack.record("engine")
    stream = Asking(stack, "slowly")
    wait_until(lambda: stream.lines, "the stream to begin")
    with _befallen(cell, stack) as record:
        began_at = time.monotonic()
        request = Asking(stack, "hello", max_tokens=4)
        shown, noticed_s = _noticed(cell, page, stack, began_at)
        if cell.process != "engine" or cell.fault != "killed":
            # A killed engine is back sooner than that.
            wait_until(lambda: time.monotonic() - began_at > AT_ONCE_S, "time to pass")
        at_once = request.end
        status, doctor = _told(cell, stack)
        stood = stream.end is None and stream.is_quiet
        mended_s = _mend(cell, stack, record, befell_at=began_at)
    wait_until(lambda: stack.engine_state() == "ready", "the model", 60)
    wait_until(lambda: request.end is not None, "the request's end", 60)
    newest = stream.newest_at
    wait_until(lambda: stream.end is not None or stream.newest_at > newest, "the stream's end, or to go on", 60)
    expected = Expected(
        stream=stream.end or (STANDS if stood else GOES_ON),
        request=_outcome(at_once, request.end),
        page=shown,
        status=status,
        engine="same" if stack.record("engine").pid == engine.pid else "new",
    )
    stream.close()
    quit_s, quit_code, left = _quit_meanwhile(cell, stack)
    return Seen(expected, noticed_s, mended_s, doctor, quit_s, quit_code, left)


def _outcome(at_once: str | None, in_the_end: str | None) -> str:
    if in_the_end != "done":
        return str(in_the_end)
    return ANSWERED if at_once == "done" else LATER


def _noticed(cell: Cell, page: Page, stack: MeddledStack, began_at: float) -> tuple[str, float]:
    """What the page says of it, and since when; at once what it says of a fault that is none to see."""
    if cell.fault == "slow":
        wait_until(lambda: page.state() not in (NO_CONNECTION, NO_ANSWER), "the page", 20)
        return page.state(), 0.0
    said = wait_until(lambda: (state := page.state()) != "ready" and state, f"a word about {cell.name}", 30)
    noticed_s = time.monotonic() - began_at
    if said in STARTING:
        said = "crashed or loading"
    return ("silent" if said.startswith("silent") else said), noticed_s


def _told(cell: Cell, stack: MeddledStack) -> tuple[str, tuple[str, ...]]:
    """The state of the process by `splash status`, and what `splash doctor` finds."""
    state = stack.status()[cell.process]["state"]
    doctor = json.loads(stack.splash("doctor", "--json").stdout)
    names = sorted({each["check"] for each in doctor["findings"] if each["level"] == "wrong"} - OF_THE_MACHINE)
    return ("starting" if state in STARTING else state), tuple(names)


# What this machine lacks is none of the fault's doing.
OF_THE_MACHINE = {"low_disk", "wrong_version", "not_installed"}


@contextmanager
def _befallen(cell: Cell, stack: MeddledStack) -> Iterator[ProcessRecord]:
    """The process is killed, stopped, hangs or is slow until the end of the block, or until it has ended."""
    record = stack.record(cell.process)
    if cell.fault == "killed":
        stack.kill(cell.process)
        yield record
    elif cell.fault == "stopped":
        stack.kill(cell.process, signal.SIGSTOP)
        yield record
    elif cell.fault == "hung":
        stack.hang(cell.process)
        yield record
    else:
        with _slowed(record):
            yield record


@contextmanager
def _slowed(record: ProcessRecord) -> Iterator[None]:
    over = threading.Event()

    def slow_down() -> None:
        while not over.wait(RUNS_S) and _signal(record, signal.SIGSTOP):
            over.wait(STANDS_S)
            _signal(record, signal.SIGCONT)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _signal(record, signal.SIGCONT)


def _signal(record: ProcessRecord, number: signal.Signals) -> bool:
    """False when the process has ended."""
    if live_process(record) is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(record.pid, number)
    return True


def _mend(cell: Cell, stack: MeddledStack, record: ProcessRecord, *, befell_at: float) -> float:
    """Seconds until all three answer as themselves again, from when the mend began; from the fault without any."""
    began_at = befell_at if cell.mend == "by itself" else time.monotonic()
    if cell.mend == "continued":
        os.kill(record.pid, signal.SIGCONT)
    elif cell.mend != "by itself":
        words = list(cell.mend)
        hidden = ["--no-open"] if words[0] == "up" else []
        if words[0] == "up" or "control" in words:
            hidden += ["--engine-command", stack.engine_command or ""]
        done = stack.splash(*words, *hidden)
        assert done.returncode == 0, f"splash {shlex.join(words)}: {done.stderr}\n{stack.logs()}"
    elif cell.fault == "slow":
        return 0.0
    wait_until(lambda: _all_well(stack), f"{cell.name} to be mended", 90)
    return time.monotonic() - began_at


def _all_well(stack: MeddledStack) -> bool:
    status = stack.status()
    return all(entry.get("identity") == "ours" for entry in status.values()) and status["engine"]["state"] == "ready"


def _quit_meanwhile(cell: Cell, stack: MeddledStack) -> tuple[float, int, tuple[str, ...]]:
    """Seconds, the exit code, and what is left."""
    records = [stack.record(name) for name in PROCESS_NAMES]
    with _befallen(cell, stack):
        began_at = time.monotonic()
        done = stack.splash(*cell.quit)
        quit_s = time.monotonic() - began_at
    left = [each.name for each in records if live_process(each) is not None]
    left += [f"port of {name}" for name, port in stack.ports.items() if not is_free(port)]
    left += [file.name for file in (stack.home.root / "run").glob("*.json")]
    return quit_s, done.returncode, tuple(left)
