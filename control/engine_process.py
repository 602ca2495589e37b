"""One engine process: spawned in a session of its own, adopted when it is ours, watched, stopped and proven gone.

It decides nothing: when to spawn, stop or try again is `lifecycle`, told by `supervisor`.
"""

import asyncio
import logging
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from control.command_errors import HomeUnusable
from control.ending import Ending, end_process
from control.engine_client import EngineClient
from control.errors import EngineLingers
from control.home import Home
from control.identity import live_process, runs_for, start_of, verify
from control.lifecycle import Exit, Wanted
from control.listener import Listener, find_listener
from control.log_files import last_lines, open_log
from control.loopback import ask
from engine.wire import SHUTDOWN, Launch, ProcessRecord

logger = logging.getLogger(__name__)

# From the spawn or the adoption until the engine has written its record and answers; it needs no weights for that.
INTRODUCTION_LIMIT_S: Final = 60.0
SHUTDOWN_TIMEOUT_S: Final = 2.0
SECRET_BYTES: Final = 32

# Exit codes of `python -m engine`; each comes with one sentence on stderr. Trying again would end the same way.
FINAL_EXIT_CODES: Final = {2: "wrong usage", 4: "the model is refused", 5: "the port is taken"}
DEVICE_ERROR_EXIT_CODE: Final = 70
# The end of a traceback, readable in a terminal and on a page.
NUM_LAST_LINES: Final = 6
LAST_LINE_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Adopted:
    """A live engine of an earlier control. `wanted` None: its secret is lost, so that it can only be ended."""

    wanted: Wanted | None


class EngineProcess:
    """At most one at a time. `record` is set from the spawn or the adoption until the end is proven."""

    def __init__(self, home: Home, *, port: int, command: Sequence[str]) -> None:
        self.record: ProcessRecord | None = None
        self.client: EngineClient | None = None
        """Set once the identity is verified."""
        self._home = home
        self._port = port
        self._command = tuple(command)
        self._child: subprocess.Popen[bytes] | None = None
        self._launch: Launch | None = None
        self._listener: Listener | None = None
        self._log_began_at = 0
        self._waits_since = 0.0

    @property
    def is_running(self) -> bool:
        return self.record is not None

    def require_startable(self) -> None:
        """Raises HomeUnusable when it is known already that no engine could be started: before a good one is ended."""
        self._home.require_room_for_launch()

    def spawn(self, wanted: Wanted) -> None:
        """Raises EngineLingers when an earlier engine is still there, HomeUnusable and OSError when none can start."""
        assert self.record is None
        self._require_nobody_lingers()
        # The engine has a record and a log to write, too: better no engine than one that fails by a full disk.
        self.require_startable()
        launch = Launch(
            secret=secrets.token_urlsafe(SECRET_BYTES),
            nonce=secrets.token_urlsafe(SECRET_BYTES),
            port=self._port,
            model=wanted.model,
            context=wanted.context,
            budget_bytes=wanted.budget_bytes,
            kv_bits=wanted.kv_bits,
            max_gap_ms=wanted.max_gap_ms,
            decode_share=wanted.decode_share,
        )
        self._home.write_launch(launch)
        # A file, never a pipe: a pipe that nobody reads any more would block or kill an engine that outlives control.
        with open_log(self._home.log_file("engine")) as log:
            self._log_began_at = log.tell()
            self._child = subprocess.Popen(
                [*self._command, "--home", str(self._home.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._home.root,
                start_new_session=True,
            )
        start = start_of(self._child.pid)
        record = ProcessRecord(
            name="engine",
            pid=self._child.pid,
            created_at_s=start.at_s,
            nonce=launch.nonce,
            port=launch.port,
            manager="control",
            started_at_s=time.time(),
            version="",
            created_after_boot_s=start.after_boot_s,
        )
        # The engine writes the same soon; until then nobody else would know of it, if control died right now.
        try:
            self._home.write_record(record)
        except HomeUnusable:
            self._child.kill()
            self._child.wait()
            self._child = None
            raise
        self.record = record
        self._launch = launch
        self._waits_since = time.monotonic()
        logger.info("engine spawned pid=%d port=%d model=%r", self._child.pid, launch.port, wanted.model)

    async def adopt(self) -> Adopted | None:
        """Take over the live engine of an earlier control, if there is one. Raises EngineLingers: not ours to take.

        One that does not answer yet is taken by its command line, and introduces itself later like a spawned one.
        """
        record = self._home.read_record("engine")
        if self.is_running or record is None:
            return None
        # Found before it is verified: if it is open still when we connect, it was all the time.
        listener = await asyncio.to_thread(find_listener, record, record.port)
        identity = await asyncio.to_thread(verify, record)
        if self.record is not None:
            return None
        if not identity.is_alive:
            logger.info("stale record removed name=engine pid=%d", record.pid)
            self._home.remove_record(record)
            return None
        if not identity.is_ours and (identity.verdict == "stranger" or not runs_for(record, self._home.root)):
            raise self._lingers(record, identity.reason)
        launch = self._home.read_launch()
        self.record = record
        if launch is None or launch.nonce != record.nonce:
            logger.warning("engine found without its secret pid=%d port=%d", record.pid, record.port)
            return Adopted(None)
        self._launch = launch
        self._waits_since = time.monotonic()
        if identity.is_ours and listener is not None:
            self._trust(launch, listener)
        logger.info("engine adopted pid=%d port=%d verdict=%s", record.pid, record.port, identity.verdict)
        return Adopted(_wanted(launch))

    async def introduce(self) -> bool:
        """Whether the identity of the process is verified by now; only from then on does it get its secret."""
        if self.client is not None:
            return True
        expected, launch, found = self.record, self._launch, self._home.read_record("engine")
        if expected is None or launch is None or found is None:
            return False
        if (found.pid, found.nonce) != (expected.pid, expected.nonce):
            return False
        listener = await asyncio.to_thread(find_listener, found, found.port)
        if listener is None or not (await asyncio.to_thread(verify, found)).is_ours or self.record is not expected:
            return False
        self.record = found
        self._trust(launch, listener)
        return True

    @property
    def is_overdue(self) -> bool:
        """It was spawned or taken over long ago, and has not said who it is."""
        is_awaited = self._launch is not None and self.client is None
        return is_awaited and time.monotonic() - self._waits_since > INTRODUCTION_LIMIT_S

    def woke(self) -> None:
        """The machine slept, or control stood still: one that has not introduced itself gets its time anew."""
        self._waits_since = time.monotonic()

    async def recheck(self) -> None:
        """After a sleep: if somebody else answers on its port, it gets its secret no more and is overdue at once."""
        record = self.record
        if record is None or self.client is None:
            return
        identity = await asyncio.to_thread(verify, record)
        if identity.verdict == "stranger" and self.record is record:
            logger.error("engine is not itself any more reason=%s", identity.reason)
            self.client = None
            self._waits_since = float("-inf")

    def poll(self) -> Exit | None:
        """How it ended, when it has. A child is reaped by this, so that no zombie stays."""
        if self.record is None:
            return None
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                return None
            end = self._exit_of_child(self._child.pid, code)
        elif live_process(self.record) is None:
            end = Exit(f"The engine (pid {self.record.pid}) ended by itself or was killed.")
        else:
            return None
        self._forget()
        return end

    async def stop(self, *, is_forced: Callable[[], bool], is_stuck: bool = False) -> Ending:
        """End it and prove it. When that succeeded, there is no process any more.

        `is_stuck`: it is not asked, but killed. Raises EngineLingers when it can't be said then that it is ours.
        """
        record = self.record
        assert record is not None
        if is_stuck and not await asyncio.to_thread(self._is_ours_though_stuck, record):
            raise self._lingers(record, f"pid {record.pid} is stuck, and does not look like our engine")
        ending = await asyncio.to_thread(
            end_process, record, ask=self._ask_to_end, is_forced=is_forced, at_once=is_stuck
        )
        if ending.is_gone:
            if self._child is not None:
                self._child.poll()
            self._forget()
        return ending

    async def aclose(self) -> None:
        """Let go of the engine, which lives on."""
        if self.client is not None:
            await self.client.aclose()

    def _is_ours_though_stuck(self, record: ProcessRecord) -> bool:
        """A child that was not reaped keeps its pid; another is known by what it answers, else by its command line."""
        return self._child is not None or verify(record).is_ours or runs_for(record, self._home.root)

    def _trust(self, launch: Launch, listener: Listener) -> None:
        self._listener = listener
        self.client = EngineClient(port=listener.port, secret=launch.secret, is_there=listener.is_open)

    def _ask_to_end(self) -> None:
        launch, listener = self._launch, self._listener
        if launch is not None and listener is not None and self.client is not None:
            ask(
                listener.port,
                SHUTDOWN,
                method="POST",
                secret=launch.secret,
                timeout_s=SHUTDOWN_TIMEOUT_S,
                is_ours=listener.is_open,
            )

    def _require_nobody_lingers(self) -> None:
        record = self._home.read_record("engine")
        if record is None:
            return
        if live_process(record) is not None:
            raise self._lingers(record, f"pid {record.pid} on port {record.port}")
        self._home.remove_record(record)

    def _lingers(self, record: ProcessRecord, reason: str) -> EngineLingers:
        return EngineLingers(
            f"The engine's record names a process that can't be adopted ({reason}). `splash quit --force` ends it "
            f"if it is ours; if it is none of Splash, remove {self._home.record_file(record.name)}."
        )

    def _exit_of_child(self, pid: int, code: int) -> Exit:
        lines = self._last_lines()
        said = lines[-1].strip() if lines else None
        logger.warning("engine ended pid=%d code=%d", pid, code)
        if code in FINAL_EXIT_CODES:
            return Exit(said or f"The engine did not start: {FINAL_EXIT_CODES[code]}.", is_final=True)
        if code < 0:
            reason = f"The engine (pid {pid}) was killed by {signal.Signals(-code).name}."
        elif code == DEVICE_ERROR_EXIT_CODE:
            reason = f"The engine (pid {pid}) ended after an error of the device: {said}"
        elif code == 0:
            reason = f"The engine (pid {pid}) ended by itself."
        else:
            reason = f"The engine (pid {pid}) ended with exit code {code}: {said or 'it said nothing'}"
        return Exit(reason, last_lines=lines)

    def _last_lines(self) -> tuple[str, ...]:
        """What this process wrote last, long lines cut."""
        lines = last_lines(self._home.log_file("engine"), since_byte=self._log_began_at)
        return tuple(line[:LAST_LINE_LENGTH] for line in lines[-NUM_LAST_LINES:])

    def _forget(self) -> None:
        if self.record is not None:
            self._home.remove_record(self.record)
        self.record = None
        self.client = None
        self._child = None
        self._launch = None
        self._listener = None


def secret_lost(record: ProcessRecord | None) -> str:
    """Why an adopted engine can only be ended, as one sentence."""
    pid = "?" if record is None else record.pid
    return (
        f"An engine of an earlier start (pid {pid}) runs and can't be asked anything, because its secret is lost; "
        "the next load ends it and starts another."
    )


def _wanted(launch: Launch) -> Wanted:
    return Wanted(
        model=launch.model,
        context=launch.context,
        budget_bytes=launch.budget_bytes,
        kv_bits=launch.kv_bits,
        max_gap_ms=launch.max_gap_ms,
        decode_share=launch.decode_share,
    )
