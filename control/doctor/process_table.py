"""Which processes of this machine are of Splash, by their command lines, and of which home; records are not asked.

It judges none of them and signals nobody. Only processes of this user are looked at.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import psutil

from control.config import HOME_KEY
from control.home import PROCESS_NAMES, ProcessName

# What `python -m engine` does beside serving; each ends by itself.
TASKS: Final = ("fetch", "plan", "models")
AWAKE: Final = "caffeinate"
CONTROL_FOLDERS: Final = ("run", "secrets")


@dataclass(frozen=True, slots=True)
class UserProcess:
    """One process of this user. `folder` and `told_home` (its SPLASH_HOME) are read of candidates only."""

    pid: int
    parent_pid: int
    name: str
    words: tuple[str, ...]
    created_at_s: float
    resident_bytes: int | None = None
    folder: Path | None = None
    told_home: str | None = None
    works_in_home: bool = False
    """Its working directory has the folders of a home in it."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a process is of a Splash. `task` None: it serves; else it does one thing and ends."""

    process: UserProcess
    role: ProcessName
    home: Path
    task: str | None

    @property
    def title(self) -> str:
        return self.role if self.task is None else f"{self.role} {self.task}"


@dataclass(frozen=True, slots=True)
class Other:
    """A process of a home beside its three recorded ones. `is_unrecorded`: it serves, and no record names it."""

    role: ProcessName
    process: UserProcess
    title: str
    is_unrecorded: bool


def parts(processes: Iterable[UserProcess], root: Path) -> tuple[Part, ...]:
    """All that are of Splash, of any home; `root` is this one, for which any command with `--home ROOT` counts."""
    found = (_part(process, root) for process in processes)
    return tuple(part for part in found if part is not None)


def others(processes: Iterable[UserProcess], root: Path, recorded_pids: Mapping[ProcessName, int]) -> tuple[Other, ...]:
    """What belongs to this home beside the processes of `recorded_pids`, which are alive and theirs.

    That is what serves without a record, what does a task, what any of these has started, and what keeps the Mac
    awake for one of them, which can outlive the control that started it.
    """
    seen = {process.pid: process for process in processes}
    own = {part.process.pid: part for part in parts(seen.values(), root) if part.home == root}
    roles: dict[int, ProcessName] = {pid: part.role for pid, part in own.items()}
    roles |= {pid: role for role, pid in recorded_pids.items()}
    found = []
    for pid, process in sorted(seen.items()):
        if pid in recorded_pids.values():
            continue
        part = own.get(pid)
        ancestors = tuple(_ancestors(process, seen))
        relatives = (*ancestors, *_watched(process))
        role = part.role if part is not None else next((roles[each] for each in relatives if each in roles), None)
        if role is None:
            continue
        is_kin = _is_kin(pid, ancestors, recorded_pids.get(role), seen)
        is_unrecorded = part is not None and part.task is None and not is_kin
        found.append(Other(role, process, part.title if part is not None else process.name, is_unrecorded))
    return tuple(found)


def user_processes() -> tuple[UserProcess, ...]:
    """Takes a moment: a tenth of a second for 200 processes on two slow cores."""
    attributes = ["pid", "ppid", "name", "cmdline", "uids", "create_time", "memory_info"]
    user, found = os.getuid(), []
    for process in psutil.process_iter(attributes):
        about = process.info
        if about["uids"] is None or about["uids"].real != user:
            continue
        words = tuple(about["cmdline"] or ())
        is_candidate = _module(words) is not None or _option(words, "--home") is not None
        folder = _folder(process) if is_candidate else None
        memory = about["memory_info"]
        found.append(
            UserProcess(
                pid=process.pid,
                parent_pid=about["ppid"] or 0,
                name=about["name"] or "?",
                words=words,
                created_at_s=about["create_time"] or 0.0,
                resident_bytes=None if memory is None else int(memory.rss),
                folder=folder,
                told_home=_told_home(process) if _module(words) == "control" else None,
                works_in_home=folder is not None and all((folder / name).is_dir() for name in CONTROL_FOLDERS),
            )
        )
    return tuple(found)


def expanded(text: str) -> Path:
    """With `~` as a home folder, where there is such a user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _part(process: UserProcess, root: Path) -> Part | None:
    module, home = _module(process.words), _home(process)
    if home is None:
        return None
    task = next((word for word in process.words[1:] if word in TASKS), None)
    if module is not None:
        return Part(process, module, home, task if module == "engine" else None)
    # Another program that stands for the engine, as tests have it. Of foreign homes nobody can say what that is.
    return Part(process, "engine", home, task) if home == root else None


def _module(words: Sequence[str]) -> ProcessName | None:
    """The process that `python -m NAME` starts."""
    if "-m" not in words[:-1]:
        return None
    module = words[words.index("-m") + 1]
    return next((name for name in PROCESS_NAMES if name == module), None)


def _home(process: UserProcess) -> Path | None:
    """None for what does not say it: a program of somebody else may be called control, too."""
    told = _option(process.words, "--home")
    if told is None and _module(process.words) == "control":
        told = process.told_home or (str(process.folder) if process.works_in_home else None)
    if told is None:
        return None
    path = expanded(told)
    if not path.is_absolute():
        if process.folder is None:
            return None
        path = process.folder / path
    return Path(os.path.realpath(path))


def _option(words: Sequence[str], name: str) -> str | None:
    for word, following in pairwise(words):
        if word == name:
            return following
    return next((word.removeprefix(f"{name}=") for word in words if word.startswith(f"{name}=")), None)


def _ancestors(process: UserProcess, seen: Mapping[int, UserProcess]) -> Iterator[int]:
    """Nearest first. A pid that was reused can make a circle."""
    met: set[int] = set()
    pid = process.parent_pid
    while pid in seen and pid not in met:
        met.add(pid)
        yield pid
        pid = seen[pid].parent_pid


def _watched(process: UserProcess) -> Iterator[int]:
    """Whom `caffeinate -w PID` waits for."""
    pid = _option(process.words, "-w") if process.name == AWAKE else None
    if pid is not None and pid.isdecimal():
        yield int(pid)


def _is_kin(pid: int, ancestors: Sequence[int], recorded_pid: int | None, seen: Mapping[int, UserProcess]) -> bool:
    """It was started by the recorded process, or it is a wrapper that has started it."""
    if recorded_pid is None:
        return False
    recorded = seen.get(recorded_pid)
    return recorded_pid in ancestors or (recorded is not None and pid in _ancestors(recorded, seen))


def _folder(process: psutil.Process) -> Path | None:
    try:
        return Path(process.cwd())
    except (psutil.Error, OSError):
        return None


def _told_home(process: psutil.Process) -> str | None:
    """This one variable of its environment, and no other, is looked at."""
    try:
        told: str | None = process.environ().get(HOME_KEY)
    except (psutil.Error, OSError):
        return None
    return told
