"""`splash restart`: control, the console or the engine ended and started anew, each without the others.

Control leaves the engine with its weights, and the new one must have adopted it before this is called done.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from control.cli.admin_client import AdminClient
from control.cli.load_progress import LoadProgressLine
from control.cli.processes import Found, find, wait_for, wait_until_found
from control.cli.starting import start_console, start_control
from control.cli.up import wait_until_unloaded
from control.cli.waiting import wait_for_requests
from control.cli.words import requests, requests_that
from control.command_errors import CommandFailed, NotAnswering, NotRunning, StartFailed
from control.config import Settings
from control.ending import end_process
from control.home import Home, ProcessName
from control.identity import live_process, runs_for, send_signal
from control.services.choice import manager_for, manager_of
from control.services.protocol import ServiceManager
from control.wire import EngineView, LoadRequest, Overview
from engine.wire import ProcessRecord

Target = Literal["control", "webui", "engine"]
TARGETS: Final[tuple[Target, ...]] = ("control", "webui", "engine")
# Whatever changes often lives in these two: they are what an upgrade restarts.
USUAL: Final[tuple[Target, ...]] = ("control", "webui")
# After the last request: control closes its connections and its database.
LEAVE_LIMIT_S: Final = 30.0
# The console finishes the pages that it is sending.
CONSOLE_LIMIT_S: Final = 15.0
ADOPTION_LIMIT_S: Final = 60.0
POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Restart:
    """What is done to one home. `show` gets what a person may want to read meanwhile."""

    settings: Settings
    home: Home
    show: Callable[[str], None]
    engine_command: str | None = None

    def control(self, *, force: bool) -> str:
        """Raises NotRunning, NotAnswering, OrderRefused, StartFailed; the engine lives on in every case."""
        before = find(self.home, "control")
        engine = find(self.home, "engine")
        if not before.is_alive or before.record is None:
            raise NotRunning
        old = before.record
        manager = self._manager(old)
        if before.is_ours:
            self._ask_to_leave(AdminClient(self.home, old), old, force=force)
        elif force and runs_for(old, self.home.root):
            # It hangs, and is ours: nothing is asked of it any more. It leaves the engine as a killed one does.
            end_process(old, at_once=True)
        else:
            raise _not_answering(before)
        if not wait_for(lambda: live_process(old) is None, LEAVE_LIMIT_S):
            raise StartFailed(
                f"control (pid {old.pid}) did not end within {LEAVE_LIMIT_S:.0f} s; `splash restart control --force` "
                "does not wait for its requests."
            )
        with self.home.only_one("up", wait=True):
            new = self._started_meanwhile("control", old)
            if new is None:
                self.home.remove_record(old)
                new = wait_until_found(self.home, "control", start_control(manager, self.home, self.engine_command))
        return f"control is pid {new.pid}{self._adopted(AdminClient(self.home, new), engine)}."

    def webui(self) -> str:
        """Raises NotRunning, NotAnswering, StartFailed."""
        control = find(self.home, "control")
        if not control.is_alive or control.record is None:
            raise NotRunning
        manager = self._manager(control.record)
        with self.home.only_one("up", wait=True):
            before = find(self.home, "webui")
            if before.is_alive and before.record is not None:
                if not before.is_ours and not runs_for(before.record, self.home.root):
                    raise _not_answering(before)
                manager = self._manager(before.record)
                self._end_console(before.record)
            launched = start_console(manager, self.settings, self.home, control.record.port)
            new = wait_until_found(self.home, "webui", launched)
        return f"webui is pid {new.pid}."

    def engine(self, client: AdminClient, *, force: bool) -> str:
        """The same model, loaded anew, once running requests have finished. Raises as a load does."""
        before = client.overview().engine
        if force:
            client.unload(force=True)
            wait_until_unloaded(client)
            client.load(LoadRequest())
        else:
            accepted = client.restart_engine()
            if accepted.running:
                self.show(f"Waiting for {requests(accepted.running)} to finish; new ones are held.")
        with LoadProgressLine() as line:
            overview = wait_until_loaded_anew(client, before, line.show)
        return f"engine is pid {overview.engine.pid}, with {overview.engine.model_name}."

    def _ask_to_leave(self, client: AdminClient, control: ProcessRecord, *, force: bool) -> None:
        accepted = client.leave(force=force)
        if accepted.waiting and not force:
            told = "they are" if accepted.waiting > 1 else "it is"
            self.show(f"{requests_that(accepted.waiting, 'wait')}; {told} told to come again.")
        if accepted.running and not force:
            self.show(f"Waiting for {requests(accepted.running)} to finish; `splash restart --force` does not wait.")
            wait_for_requests(client, control, self.show)

    def _started_meanwhile(self, name: ProcessName, old: ProcessRecord) -> ProcessRecord | None:
        """A `splash up` was quicker."""
        found = find(self.home, name)
        return found.record if found.is_ours and found.nonce != old.nonce else None

    def _adopted(self, client: AdminClient, engine: Found) -> str:
        """How the engine stands now, as a clause. Raises StartFailed when the same one is not there again."""
        if not engine.is_alive or engine.record is None:
            return ""
        pid = engine.record.pid
        seen: list[EngineView] = []

        def is_adopted() -> bool:
            seen.append(client.overview().engine)
            return seen[-1].pid == pid and seen[-1].state != "loading"

        if wait_for(is_adopted, ADOPTION_LIMIT_S) or seen[-1].pid == pid:
            name = seen[-1].model_name
            return f"; the engine, pid {pid}, went on{'' if name is None else f' with {name}'}"
        raise StartFailed(f"control runs anew, and has not adopted the engine (pid {pid}): it is {seen[-1].state}.")

    def _end_console(self, record: ProcessRecord) -> None:
        send_signal(record, signal.SIGTERM)
        if not wait_for(lambda: live_process(record) is None, CONSOLE_LIMIT_S):
            end_process(record, at_once=True)
        if live_process(record) is not None:
            raise StartFailed(f"webui (pid {record.pid}) does not end, not even by SIGKILL.")
        self.home.remove_record(record)

    def _manager(self, record: ProcessRecord) -> ServiceManager:
        """The recorded one; the machine's own in place of a terminal."""
        return manager_for(self.home, None) if record.manager == "foreground" else manager_of(self.home, record)


def wait_until_loaded_anew(client: AdminClient, before: EngineView, show: Callable[[EngineView], None]) -> Overview:
    """Until another engine process than before is ready. Raises StartFailed with the engine's own sentence."""
    while True:
        overview = client.overview()
        engine = overview.engine
        show(engine)
        if engine.state == "ready" and engine.pid != before.pid:
            return overview
        if engine.state == "failed":
            raise StartFailed(engine.error or "The engine did not start again.")
        if engine.state == "unloaded" and engine.wanted_model is None:
            raise StartFailed(engine.error or "The load was called off by somebody else.")
        time.sleep(POLL_S)


def wanted_targets(names: Sequence[Target]) -> tuple[Target, ...]:
    """In the order in which they are restarted: control first, for the console's and the engine's sake."""
    return tuple(name for name in TARGETS if name in (names or USUAL))


def restart(order: Restart, names: Sequence[Target], *, force: bool) -> Iterator[str]:
    """A sentence about each as soon as it runs anew. Raises CommandFailed; what was done before stays done."""
    wanted = wanted_targets(names)
    if "control" in wanted:
        port_before = _port(order.home)
        yield order.control(force=force)
        if _port(order.home) != port_before and "webui" not in wanted:
            # The console knows control by its port.
            yield order.webui()
    if "webui" in wanted:
        yield order.webui()
    if "engine" in wanted:
        yield order.engine(_client(order.home), force=force)


def _client(home: Home) -> AdminClient:
    found = find(home, "control")
    if not found.is_ours or found.record is None:
        raise _not_answering(found) if found.is_alive else NotRunning()
    return AdminClient(home, found.record)


def _port(home: Home) -> int | None:
    record = home.read_record("control")
    return None if record is None else record.port


def _not_answering(found: Found) -> CommandFailed:
    assert found.identity is not None
    if found.name == "control":
        return NotAnswering(found.identity.reason)
    return StartFailed(f"{found.name} can't be restarted: {found.identity.reason}, and it is not ours to end.")
