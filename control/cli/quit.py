"""`splash quit`: engine, then control, then the console; each proven gone. Works when control is dead, too.

It says how many requests wait, and waits for running ones for as long as they take, and says so; then
everything is gone, by this one command.

It ends verified processes only. `--force` also ends those of ours that hang: pid, start time and command line are
right, and the port is theirs or closed, but nobody answers.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from control.cli.admin_client import AdminClient
from control.cli.processes import Found, find, wait_for
from control.cli.waiting import wait_for_requests
from control.cli.words import requests, requests_that
from control.command_errors import CommandFailed, NotAnswering, NotRunning, OrderRefused
from control.ending import FORCED, Ending, Patience, end_process
from control.home import PROCESS_NAMES, Home, LockHolder, ProcessName
from control.identity import live_process, runs_for
from control.loopback import ask
from control.wire import DatabaseHealth
from engine.wire import SHUTDOWN

ENGINE_LIMIT_S: Final = 30.0
CONTROL_LIMIT_S: Final = 15.0
SHUTDOWN_TIMEOUT_S: Final = 2.0
RECORD_LIMIT_S: Final = 5.0
SETTLE_LIMIT_S: Final = 5.0
LOOK_EVERY_S: Final = 0.25
ORDER: Final[tuple[ProcessName, ...]] = ("engine", "control", "webui")


@dataclass(frozen=True, slots=True)
class Left:
    """A process that is still there, and why."""

    name: str
    reason: str


def quit_splash(home: Home, *, force: bool, show: Callable[[str], None]) -> tuple[Left, ...]:
    """End everything of this home; return what is left, nothing when all went well. Raises NotRunning."""
    found = {name: find(home, name) for name in PROCESS_NAMES}
    found["control"] = _find(home, "control", is_patient=not force)
    for each in found.values():
        if each.record is not None and not each.is_alive:
            home.remove_record(each.record)
    if not found["control"].is_alive:
        unfound = _wait_for_control_record(home)
        if unfound is not None:
            return (Left("control", f"{unfound} holds its lock and has left no record of itself"),)
        found["control"] = find(home, "control")
    if not any(each.is_alive for each in found.values()):
        raise NotRunning
    if found["control"].is_ours:
        left = _quit_by_control(home, found["control"], force=force, show=show)
        if left:
            return left
    for name in ORDER:
        each = _find(home, name, is_patient=not force)
        if not each.is_alive or _came_later(home, each, found):
            continue
        left_one = _end(home, each, force=force, show=show)
        if left_one is not None:
            return (left_one,)
    return ()


def _find(home: Home, name: ProcessName, *, is_patient: bool) -> Found:
    """`is_patient`: one that is just starting or ending is let come to its point."""
    if is_patient:
        wait_for(lambda: find(home, name).is_settled, SETTLE_LIMIT_S)
    return find(home, name)


def _quit_by_control(home: Home, control: Found, *, force: bool, show: Callable[[str], None]) -> tuple[Left, ...]:
    """Control drains and stops the engine, and then ends itself."""
    record = control.record
    assert record is not None
    client = AdminClient(home, record)
    try:
        accepted = client.quit(force=force)
    except (NotAnswering, NotRunning, OrderRefused):
        return ()
    if accepted.waiting and not force:
        told = "they are" if accepted.waiting > 1 else "it is"
        show(f"{requests_that(accepted.waiting, 'wait')}; {told} told to come back.")
    if accepted.running and not force:
        show(f"Waiting for {requests(accepted.running)} to finish; `splash quit --force` does not wait.")
        wait_for_requests(client, record, show, goes_on=lambda overview: overview.engine.state == "draining")
    # It ends when the engine is proven gone, and not before; it may also die on the way.
    unwritten = _Unwritten(client)
    is_gone = wait_for(lambda: live_process(record) is None or not unwritten.look(), ENGINE_LIMIT_S)
    if is_gone:
        if unwritten.sentence is not None:
            show(unwritten.sentence)
        return ()
    reason = _why_engine_is_left(client)
    if reason is not None and live_process(record) is not None:
        return (Left("engine", reason),)
    wait_for(lambda: live_process(record) is None, CONTROL_LIMIT_S)
    return ()


class _Unwritten:
    """Rows of requests that the database has not taken, as control last said: when it has ended nobody can be asked."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._look_at = 0.0
        self._health = DatabaseHealth()

    def look(self) -> Literal[True]:
        """Now and then."""
        if time.monotonic() >= self._look_at:
            with suppress(CommandFailed):
                self._health = self._client.overview().database
            self._look_at = time.monotonic() + LOOK_EVERY_S
        return True

    @property
    def sentence(self) -> str | None:
        """None: there is nothing to say."""
        count, problem = self._health.waiting_rows + self._health.lost_rows, self._health.problem
        if not count:
            return None
        rows, are = ("1 row", "is") if count == 1 else (f"{count:,} rows", "are")
        because = f" ({problem})" if problem is not None else ""
        return (
            f"{rows} of requests could not be written to the database{because}, and {are} lost; `splash logs control`."
        )


def _why_engine_is_left(client: AdminClient) -> str | None:
    """None when it is gone, and only control is left."""
    try:
        overview = client.overview()
    except NotRunning:
        return None
    except CommandFailed:
        return f"control does not say within {ENGINE_LIMIT_S:.0f} s what became of it"
    if overview.engine.pid is None:
        return None
    return overview.engine.error or f"it is {overview.engine.state} after {ENGINE_LIMIT_S:.0f} s"


def _wait_for_control_record(home: Home) -> LockHolder | None:
    """A control that lives writes a missing record again; None when it did, or when there is no such control."""
    wait_for(lambda: home.holder_of("control") is None or find(home, "control").is_alive, RECORD_LIMIT_S)
    return None if find(home, "control").is_alive else home.holder_of("control")


def _came_later(home: Home, each: Found, before: dict[ProcessName, Found]) -> bool:
    """A `splash up` was quicker than the end of this quit: what it started is not ours to end."""
    witness = find(home, "control") if each.name == "engine" else each
    return witness.is_alive and witness.nonce != before[witness.name].nonce


def _end(home: Home, found: Found, *, force: bool, show: Callable[[str], None]) -> Left | None:
    record, identity = found.record, found.identity
    assert record is not None and identity is not None
    hangs = identity.verdict in ("silent", "closed") and runs_for(record, home.root)
    if not identity.is_ours and not (hangs and force):
        return Left(found.name, identity.reason + (", though it is ours" if hangs else ", and it is not ours to end"))
    ending = end_process(
        record,
        ask=(lambda: _ask_engine_to_end(home)) if found.name == "engine" and identity.is_ours else None,
        patience=FORCED if force else Patience(),
    )
    if not ending.is_proven:
        return Left(found.name, _unproven(ending))
    home.remove_record(record)
    return None


def _ask_engine_to_end(home: Home) -> None:
    launch, record = home.read_launch(), home.read_record("engine")
    if launch is not None and record is not None and launch.nonce == record.nonce:
        ask(record.port, SHUTDOWN, method="POST", secret=launch.secret, timeout_s=SHUTDOWN_TIMEOUT_S)


def _unproven(ending: Ending) -> str:
    if not ending.is_gone:
        return f"it did not end within {ending.seconds:.0f} s, not even by SIGKILL"
    return f"it ended, but its port is held by {ending.port_holder}"
