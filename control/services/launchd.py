"""launchd as a service manager: one job for a process, loaded from SPLASH_HOME/launchd for as long as it runs.

launchd never starts one by itself, and restarts none. Unrun on a Mac: proven against `tests/fakes/launchctl`.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from control.command_errors import HomeUnusable, ServiceStays, StartFailed
from control.config import default_home
from control.home import Home, Manager, ProcessName, write_whole
from control.log_files import open_log
from control.services.agents import Agent, exit_limit_s, job_environment, label_of, program, property_list
from control.services.launchctl import NO_SUCH_PROCESS, UNKNOWN_SERVICE, Done, Job, Launchctl
from control.services.protocol import Ended
from engine.wire import ProcessRecord

# A label that was booted out can't be loaded again for 3 to 5 s. Source: notes/console.md §0, finding 4.
LOAD_LIMIT_S: Final = 15.0
RETRY_EVERY_S: Final = 0.5
# Beyond ExitTimeOut: for SIGKILL, and for launchd's own work.
BOOTOUT_SLACK_S: Final = 15.0
LOOK_EVERY_S: Final = 0.5
LINT_LIMIT_S: Final = 20.0
WITHOUT: Final = "`splash up --manager detached` does without launchd."

Preparation = Literal["load", "load anew", "none"]


def preparation(job: Job | None, *, is_same_list: bool) -> Preparation:
    """What must happen before a kickstart. A loaded job that has ended is loaded anew: then what it says of its last
    end, and launchd's patience with it, is of this start."""
    if job is None:
        return "load"
    return "none" if job.pid is not None and is_same_list else "load anew"


@dataclass(slots=True)
class LaunchedJob:
    """A job after its kickstart. launchd says its pid, as long as it prints it in a form that is understood."""

    manager: "Launchd"
    name: ProcessName
    label: str
    log_from_byte: int
    nonce_before: str | None
    _job: Job | None = None
    _looked_at: float = field(default=float("-inf"))

    def ended(self) -> Ended | None:
        self._look()
        if self._job is None:
            return Ended(None, "launchd does not know it any more")
        return self._job.ended

    def wrote(self, record: ProcessRecord) -> bool:
        self._look()
        if record.manager != "launchd" or record.nonce == self.nonce_before:
            return False
        return self._job is None or self._job.pid in (None, record.pid)

    def end(self) -> None:
        self.manager.remove(self.name)
        record = self.manager.home.read_record(self.name)
        if record is not None and record.manager == "launchd" and record.nonce != self.nonce_before:
            self.manager.home.remove_record(record)

    def _look(self) -> None:
        """Not more often than LOOK_EVERY_S: each look is a process."""
        if self.manager.now() - self._looked_at >= LOOK_EVERY_S:
            self._job, self._looked_at = self.manager.launchctl.find(self.label), self.manager.now()


@dataclass(frozen=True, slots=True)
class Launchd:
    home: Home
    launchctl: Launchctl
    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    @property
    def name(self) -> Manager:
        return "launchd"

    def label(self, name: ProcessName) -> str:
        assert name != "engine", "control starts the engine"
        return label_of(name, self.home.root, default_root=default_home())

    def file(self, name: ProcessName) -> Path:
        return self.home.launchd_folder / f"{self.label(name)}.plist"

    def start(self, name: ProcessName, command: Sequence[str], environment: Mapping[str, str]) -> LaunchedJob:
        label, file = self.label(name), self.file(name)
        content = self._property_list(name, command, environment)
        record = self.home.read_record(name)
        # The file must be there, and private, before launchd opens it; launchd turns nothing over.
        with open_log(self.home.log_file(name)) as log:
            log_from_byte = log.tell()
        to_do = preparation(self.launchctl.find(label), is_same_list=_read(file) == content)
        if to_do == "load anew":
            self._boot_out(name)
        if to_do != "none":
            put_property_list(file, content)
            self._lint(file)
        self._load_and_start(name, label, file, is_loaded=to_do == "none")
        # The record of a job that runs already may be there before this start began.
        nonce_before = None if record is None or to_do == "none" else record.nonce
        return LaunchedJob(self, name, label, log_from_byte, nonce_before)

    def remove(self, name: ProcessName) -> None:
        self._boot_out(name)
        delete_property_list(self.file(name))
        # The folder of a Splash that does not run is gone, too.
        with suppress(OSError):
            self.home.launchd_folder.rmdir()

    def last_end(self, name: ProcessName) -> Ended | None:
        """How a job ended that is still known; None while it runs, and where launchd does not say."""
        job = self.launchctl.find(self.label(name))
        return None if job is None else job.ended

    def _property_list(self, name: ProcessName, command: Sequence[str], environment: Mapping[str, str]) -> bytes:
        assert name != "engine", "control starts the engine"
        agent = Agent(
            label=self.label(name),
            command=program(command),
            environment=job_environment(environment, self.home.root),
            root=self.home.root,
            log=self.home.log_file(name),
        )
        return property_list(name, agent)

    def _load_and_start(self, name: ProcessName, label: str, file: Path, *, is_loaded: bool) -> None:
        """Raises StartFailed, and leaves nothing of the job, when launchd goes on refusing for LOAD_LIMIT_S."""
        deadline = self.now() + LOAD_LIMIT_S
        while True:
            done = Done(0, "") if is_loaded else self.launchctl.bootstrap(file)
            # A job that is there, whoever loaded it, is what was wanted.
            is_loaded = done.code == 0 or self.launchctl.find(label) is not None
            if is_loaded:
                done = self.launchctl.kickstart(label)
                if done.code == 0:
                    return
                is_loaded = done.code != UNKNOWN_SERVICE
            if not done.is_passing or self.now() >= deadline:
                break
            self.pause(RETRY_EVERY_S)
        if self._runs(label):
            return
        with suppress(ServiceStays):
            self.remove(name)
        raise StartFailed(f"launchd does not start {name}: {done}. {WITHOUT}")

    def _runs(self, label: str) -> bool:
        job = self.launchctl.find(label)
        return job is not None and job.pid is not None

    def _boot_out(self, name: ProcessName) -> None:
        """Until launchd does not know the job. Raises ServiceStays. A job that is not loaded is none."""
        label = self.label(name)
        if self.launchctl.find(label) is None:
            return
        assert name != "engine", "control starts the engine"
        limit_s = exit_limit_s(name) + BOOTOUT_SLACK_S
        deadline = self.now() + limit_s
        done = self.launchctl.bootout(label)
        while self.launchctl.find(label) is not None:
            if self.now() >= deadline:
                raise ServiceStays(label=label, limit_s=limit_s, reason=str(done))
            self.pause(RETRY_EVERY_S)
            if done.code not in (0, NO_SUCH_PROCESS):
                done = self.launchctl.bootout(label)

    def _lint(self, file: Path) -> None:
        """Raises StartFailed with the words of `plutil`, where there is one."""
        plutil = shutil.which("plutil")
        if plutil is None:
            return
        try:
            ran = subprocess.run(
                [plutil, "-lint", "-s", str(file)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LINT_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return
        if ran.returncode != 0:
            said = " ".join((ran.stdout or ran.stderr).split())
            delete_property_list(file)
            raise StartFailed(f"{file} is not a property list: {said}. {WITHOUT}")


def put_property_list(file: Path, content: bytes) -> None:
    """It appears whole, and private. Raises HomeUnusable."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, content)


def delete_property_list(file: Path) -> None:
    """Raises HomeUnusable."""
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise HomeUnusable(f"{file} can't be removed: {error.strerror}.") from error


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
