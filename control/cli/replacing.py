"""Control or the console ended, and another one started in its place, by whoever holds the home's turn.

Nothing is ended for a start that can't succeed. Control leaves the engine with its weights, for the next to adopt.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from control.cli.addresses import require_addresses
from control.cli.admin_client import AdminClient
from control.cli.processes import Found, find, wait_for, wait_until_found
from control.cli.starting import start_console, start_control
from control.cli.waiting import wait_for_requests
from control.cli.words import requests, requests_that
from control.command_errors import CommandFailed, NotAnswering, NotRunning, OrderRefused, StartFailed
from control.config import HOME_KEY, Settings
from control.ending import end_process
from control.home import Home
from control.identity import live_process, runs_for, send_signal, verify
from control.misplaced import Misplaced, misplaced
from control.services.choice import manager_for, manager_of
from control.services.protocol import ServiceManager
from control.wire import Overview
from engine.wire import ProcessRecord

# After the last request: control closes its connections and its database.
LEAVE_LIMIT_S: Final = 30.0
# It may be busy for a moment; one that keeps its port and answers nothing for so long does not end by itself.
HANG_LIMIT_S: Final = 5.0
# The console finishes the pages that it is sending.
CONSOLE_LIMIT_S: Final = 15.0
FORCE: Final = "`splash restart control --force` ends it and starts the next; the engine keeps its weights."


def settings_now(home: Home) -> Settings:
    """As they stand at this moment: what was read before a wait may be out of date. Raises SettingsInvalid."""
    return Settings.from_env(os.environ | {HOME_KEY: str(home.root)})


@dataclass(frozen=True, slots=True)
class Replacing:
    """What is done to one home. `show` gets what a person may want to read meanwhile."""

    home: Home
    show: Callable[[str], None]
    engine_command: str | None = None

    def control(self, *, force: bool) -> ProcessRecord:
        """The new one. Raises NotRunning, NotAnswering, OrderRefused; StartFailed, PortTaken, HomeUnusable.

        The engine lives on in every case.
        """
        before = find(self.home, "control")
        if not before.is_alive or before.record is None:
            raise NotRunning
        old = before.record
        self._require_startable()
        if before.is_ours:
            self._ask_to_leave(AdminClient(self.home, old), old, force=force)
        elif force and runs_for(old, self.home.root):
            # It hangs, and is ours: nothing is asked of it any more. It leaves the engine as a killed one does.
            end_process(old, at_once=True)
        else:
            raise not_answering(before)
        self._await_end(old)
        self.home.remove_record(old)
        return self.start_control(old)

    def webui(self, *, ended: ProcessRecord | None = None) -> ProcessRecord:
        """The new one; where control does not run, it is started for the next. `ended`: the console until just now.

        Raises NotRunning, StartFailed, HomeUnusable.
        """
        control, before = find(self.home, "control"), find(self.home, "webui")
        settings = settings_now(self.home)
        console = before.record if before.is_alive else ended
        if control.is_alive and control.record is not None:
            admin_port, manager = control.record.port, self._manager(console or control.record)
        elif console is not None:
            admin_port, manager = settings.admin_port, self._manager(console)
        else:
            raise NotRunning
        self.home.require_room_for_record("webui")
        if before.is_alive:
            self._end_console(before)
        return wait_until_found(self.home, "webui", start_console(manager, settings, self.home, admin_port))

    def put_in_place(self, *, force: bool = False) -> Iterator[tuple[Misplaced, ProcessRecord]]:
        """Replace what listens elsewhere than it should: each with the one that came for it. Raises as those do."""
        for each in misplaced(self.home, settings_now(self.home)):
            yield each, self.webui() if each.name == "webui" else self.control(force=force)

    def close_console(self, *, only_if_open: bool) -> ProcessRecord | None:
        """End the console at once, whoever has the turn; the one that was ended. Raises StartFailed.

        `only_if_open`: only one that other machines reach, and should not.
        """
        console = find(self.home, "webui")
        if not console.is_alive:
            return None
        found = misplaced(self.home, settings_now(self.home))
        if only_if_open and not any(each.name == "webui" and each.is_open for each in found):
            return None
        self._end_console(console)
        return console.record

    def start_control(self, like: ProcessRecord) -> ProcessRecord:
        """In the place of one that has ended, in the hands of the same manager. Raises StartFailed, HomeUnusable."""
        launched = start_control(self._manager(like), self.home, self.engine_command)
        return wait_until_found(self.home, "control", launched)

    def _end_console(self, console: Found) -> None:
        """Raises StartFailed when it is not ours, or does not end."""
        record = console.record
        assert record is not None
        if not console.is_ours and not runs_for(record, self.home.root):
            raise not_answering(console)
        send_signal(record, signal.SIGTERM)
        if not wait_for(lambda: live_process(record) is None, CONSOLE_LIMIT_S):
            end_process(record, at_once=True)
        if live_process(record) is not None:
            raise StartFailed(f"webui (pid {record.pid}) does not end, not even by SIGKILL.")
        self.home.remove_record(record)

    def _require_startable(self) -> None:
        """While the old control still serves. Raises HomeUnusable, SettingsInvalid, PortTaken."""
        self.home.require_room_for_record("control")
        require_addresses(self.home, settings_now(self.home))

    def _ask_to_leave(self, client: AdminClient, control: ProcessRecord, *, force: bool) -> None:
        try:
            accepted = client.leave(force=force)
        except NotAnswering as error:
            raise StartFailed(f"control (pid {control.pid}) hangs: it does not answer. {FORCE}") from error
        if accepted.waiting and not force:
            told = "they are" if accepted.waiting > 1 else "it is"
            self.show(f"{requests_that(accepted.waiting, 'wait')}; {told} told to come again.")
        if accepted.running and not force:
            self.show(f"Waiting for {requests(accepted.running)} to finish; `splash restart --force` does not wait.")
            wait_for_requests(client, control, self.show, goes_on=_still_leaves)

    def _await_end(self, old: ProcessRecord) -> None:
        """Raises StartFailed."""
        heard_at = time.monotonic()

        def is_over() -> bool:
            nonlocal heard_at
            if live_process(old) is None:
                return True
            if verify(old).verdict != "silent":
                heard_at = time.monotonic()
            return time.monotonic() - heard_at >= HANG_LIMIT_S

        wait_for(is_over, LEAVE_LIMIT_S)
        if live_process(old) is None:
            return
        if time.monotonic() - heard_at >= HANG_LIMIT_S:
            raise StartFailed(f"control (pid {old.pid}) hangs: it does not answer any more. {FORCE}")
        raise StartFailed(f"control (pid {old.pid}) did not end within {LEAVE_LIMIT_S:.0f} s. {FORCE}")

    def _manager(self, record: ProcessRecord) -> ServiceManager:
        """The recorded one; the machine's own in place of a terminal."""
        return manager_for(self.home, None) if record.manager == "foreground" else manager_of(self.home, record)


def not_answering(found: Found) -> CommandFailed:
    assert found.identity is not None
    if found.name == "control":
        return NotAnswering(found.identity.reason)
    return StartFailed(f"{found.name} can't be restarted: {found.identity.reason}, and it is not ours to end.")


def _still_leaves(overview: Overview) -> bool:
    """Raises OrderRefused: who quits Splash does not want the next control."""
    if overview.quitting:
        raise OrderRefused("Splash quits: somebody else ordered it while control was leaving, so no other is started.")
    return True
