"""`splash quit`: engine, then control, then the console; each proven gone. Works when control is dead, too.

It ends verified processes only. `--force` also ends those of ours that hang: pid and start time are the record's, and
the port is theirs or closed, but nobody answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from control.cli.admin_client import AdminClient
from control.cli.processes import Found, find, wait_for
from control.command_errors import CommandFailed, NotRunning, OrderRefused
from control.ending import FORCED, Ending, Patience, end_process
from control.home import PROCESS_NAMES, Home, ProcessName
from control.identity import live_process
from control.loopback import ask
from engine.wire import SHUTDOWN

ENGINE_LIMIT_S: Final = 30.0
CONTROL_LIMIT_S: Final = 15.0
SHUTDOWN_TIMEOUT_S: Final = 2.0
ORDER: Final[tuple[ProcessName, ...]] = ("engine", "control", "webui")


@dataclass(frozen=True, slots=True)
class Left:
    """A process that is still there, and why."""

    name: str
    reason: str


def quit_splash(home: Home, *, force: bool, show: Callable[[str], None]) -> tuple[Left, ...]:
    """End everything of this home; return what is left, nothing when all went well. Raises NotRunning."""
    found = {name: find(home, name) for name in PROCESS_NAMES}
    for each in found.values():
        if each.record is not None and not each.is_alive:
            home.remove_record(each.record)
    if not any(each.is_alive for each in found.values()):
        raise NotRunning
    if found["control"].is_ours:
        left = _quit_by_control(home, found["control"], force=force, show=show)
        if left:
            return left
    for name in ORDER:
        each = find(home, name)
        if not each.is_alive:
            continue
        left_one = _end(home, each, force=force, show=show)
        if left_one is not None:
            return (left_one,)
    return ()


def _quit_by_control(home: Home, control: Found, *, force: bool, show: Callable[[str], None]) -> tuple[Left, ...]:
    """Control drains and stops the engine, and then ends itself."""
    assert control.record is not None
    client = AdminClient(home, control.record)
    try:
        accepted = client.quit(force=force)
    except (NotRunning, OrderRefused):
        return ()
    if accepted.running and not force:
        show(f"Waiting for {_requests(accepted.running)} to finish.")
    engine_gone = wait_for(lambda: not _is_alive(home, "engine"), ENGINE_LIMIT_S)
    if not engine_gone:
        return (Left("engine", _why_engine_is_left(client)),)
    wait_for(lambda: not _is_alive(home, "control"), CONTROL_LIMIT_S)
    return ()


def _why_engine_is_left(client: AdminClient) -> str:
    try:
        overview = client.overview()
    except CommandFailed:
        return "control stopped answering before the engine was gone"
    if overview.engine.state == "draining":
        num_running = sum(slot is not None for slot in overview.slots)
        return f"it still works on {_requests(num_running)} after {ENGINE_LIMIT_S:.0f} s, and ends when that is done"
    return overview.engine.error or f"it is {overview.engine.state} after {ENGINE_LIMIT_S:.0f} s"


def _end(home: Home, found: Found, *, force: bool, show: Callable[[str], None]) -> Left | None:
    record, identity = found.record, found.identity
    assert record is not None and identity is not None
    hangs = identity.verdict in ("silent", "closed")
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


def _is_alive(home: Home, name: ProcessName) -> bool:
    record = home.read_record(name)
    return record is not None and live_process(record) is not None


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
