"""`splash restart`: control, the console or the engine ended and started anew, each without the others.

Control leaves the engine with its weights, and the new one must have adopted it before this is called done. Commands
at the same time come one after the other; how a process is replaced is in `replacing`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from control.cli.admin_client import AdminClient
from control.cli.load_progress import LoadProgressLine
from control.cli.processes import Found, find, wait_for
from control.cli.replacing import Replacing, not_answering
from control.cli.settling import FollowingClient, settled_control
from control.cli.turns import turn
from control.cli.up import wait_until_unloaded
from control.cli.words import requests
from control.command_errors import CommandFailed, ControlLeaves, NotRunning, StartFailed
from control.home import Home
from control.identity import live_process
from control.wire import EngineView, LoadRequest, Overview

Target = Literal["control", "webui", "engine"]
TARGETS: Final[tuple[Target, ...]] = ("control", "webui", "engine")
# Whatever changes often lives in these two: they are what an upgrade restarts.
USUAL: Final[tuple[Target, ...]] = ("control", "webui")
ADOPTION_LIMIT_S: Final = 60.0
POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Restart:
    """What is done to one home. `show` gets what a person may want to read meanwhile."""

    home: Home
    show: Callable[[str], None]
    engine_command: str | None = None

    def control(self, *, force: bool) -> str:
        """Raises NotRunning, NotAnswering, OrderRefused, StartFailed …; the engine lives on in every case."""
        before, engine = find(self.home, "control"), find(self.home, "engine")
        if force:
            hurry_leaving_control(self.home)
        with turn(self.home, self.show) as waited_for:
            now = settled_control(self.home, has_turn=True)
            if waited_for is not None and _is_another(now, before):
                return f"control was restarted just now by {waited_for}; it is {_pid(now)}."
            new = self.replacing.control(force=force)
        return f"control is pid {new.pid}{self._adopted(FollowingClient(self.home, new), engine)}."

    def webui(self) -> str:
        """Raises NotRunning, NotAnswering, StartFailed."""
        before = find(self.home, "webui")
        with turn(self.home, self.show) as waited_for:
            now = find(self.home, "webui")
            if waited_for is not None and _is_another(now, before):
                return f"webui was restarted just now by {waited_for}; it is {_pid(now)}."
            return f"webui is pid {self.replacing.webui().pid}."

    def engine(self, *, force: bool) -> str:
        """The same model, loaded anew, once running requests have finished. Raises as a load does."""
        client = client_for_orders(self.home, self.show)
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

    def put_in_place(self, *, force: bool) -> Iterator[str]:
        """A sentence about each that listened elsewhere than it should; the caller has the turn."""
        engine = find(self.home, "engine")
        for misplaced, new in self.replacing.put_in_place(force=force):
            is_control = misplaced.name == "control"
            clause = self._adopted(FollowingClient(self.home, new), engine) if is_control else ""
            yield f"{misplaced.name} is pid {new.pid}{clause}."

    @property
    def replacing(self) -> Replacing:
        return Replacing(self.home, self.show, self.engine_command)

    def _adopted(self, client: AdminClient, engine: Found) -> str:
        """How the engine stands now, as a clause. Raises StartFailed when the same one lives, and is not adopted."""
        if not engine.is_alive or engine.record is None:
            return ""
        record = engine.record
        seen: list[EngineView] = []

        def is_decided() -> bool:
            seen.append(client.overview().engine)
            return live_process(record) is None or (seen[-1].pid == record.pid and seen[-1].state != "loading")

        wait_for(is_decided, ADOPTION_LIMIT_S)
        name, pid = seen[-1].model_name, seen[-1].pid
        if pid == record.pid:
            return f"; the engine, pid {pid}, went on{'' if name is None else f' with {name}'}"
        if live_process(record) is None:
            instead = f", and pid {pid} is in its place" if pid is not None else ""
            return f"; the engine that ran before (pid {record.pid}) has ended meanwhile{instead}"
        state = seen[-1].state
        raise StartFailed(f"control runs anew, and has not adopted the engine (pid {record.pid}): it is {state}.")


def client_for_orders(home: Home, show: Callable[[str], None]) -> AdminClient:
    """Of a control that stays: whoever starts or restarts it is let finish first. Raises NotRunning, NotAnswering.

    Raises ControlLeaves when it ends, and nobody is there to start the next: its order to leave was interrupted.
    """
    with turn(home, show):
        found = settled_control(home, has_turn=True)
    if not found.is_ours or found.record is None:
        raise not_answering(found) if found.is_alive else NotRunning()
    client = FollowingClient(home, found.record)
    overview = client.overview()
    if overview.leaving:
        raise ControlLeaves(waits_for=requests(num_running(overview)))
    return client


def hurry_leaving_control(home: Home) -> None:
    """Somebody else's order to leave waits for requests: they are cut, as by that order with force."""
    found = find(home, "control")
    if not found.is_ours or found.record is None:
        return
    client = AdminClient(home, found.record)
    with suppress(CommandFailed):
        if client.overview().leaving:
            client.leave(force=True)


def interrupted(home: Home) -> str:
    """What a person who has interrupted a restart should know: what goes on by itself, and what does not."""
    control = find(home, "control")
    if not control.is_alive:
        return "Control has ended, and no other was started; `splash up` does that, and takes the engine over."
    overview = None
    if control.is_ours and control.record is not None:
        with suppress(CommandFailed):
            overview = AdminClient(home, control.record).overview()
    if overview is not None and overview.leaving:
        return (
            f"Control goes on leaving: it waits for {requests(num_running(overview))} to finish, and then nobody "
            "starts the next. `splash up` waits for that and does; `splash restart --force` does not wait."
        )
    if not find(home, "webui").is_alive:
        return "Control runs; the console does not, and `splash up` starts it."
    return "Control and the console run."


def num_running(overview: Overview) -> int:
    return sum(slot is not None for slot in overview.slots)


def _is_another(now: Found, before: Found) -> bool:
    return now.is_ours and now.nonce != before.nonce


def _pid(found: Found) -> str:
    return f"pid {found.record.pid if found.record is not None else '?'}"


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
        yield order.engine(force=force)


def _port(home: Home) -> int | None:
    record = home.read_record("control")
    return None if record is None else record.port
