"""What was found out about this machine and this home at one moment; the checks read this and nothing else.

It asks nobody: `collection` does. Bytes and seconds, as everywhere.
"""

from dataclasses import dataclass, field
from pathlib import Path

from control.doctor.process_table import Other, Part
from control.home import ProcessName
from control.identity import Verdict
from control.misplaced import Misplaced
from control.wire import MemoryUser
from engine.wire import ProcessRecord


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """What is known of one of the three processes.

    `is_file`: there is a record; `record` None then means that it can't be understood. `pid_is_taken`: some process
    has the pid. `runs_for_home`: its command line is one of Splash for this home.
    """

    name: ProcessName
    file: Path
    is_file: bool = False
    record: ProcessRecord | None = None
    verdict: Verdict | None = None
    reason: str = ""
    age_s: float = 0.0
    pid_is_taken: bool = False
    runs_for_home: bool = False
    wire_version: int | None = None

    @property
    def is_alive(self) -> bool:
        """The process that wrote the record exists."""
        return self.verdict not in (None, "gone")

    @property
    def is_ours(self) -> bool:
        return self.is_alive and (self.verdict == "ours" or self.runs_for_home)


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who listens on a port. `pid` None: the system does not tell. `home`: of which Splash it is."""

    pid: int | None
    command: str = ""
    home: Path | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class PortFacts:
    """`key` is the name of its setting. `host`: where Splash has to listen on it by its settings."""

    key: str
    port: int
    holders: tuple[Holder, ...] = ()
    host: str = ""


@dataclass(frozen=True, slots=True)
class LockFacts:
    """Who holds the lock that only a control of this home holds. `age_s` 0 when it can't be told."""

    pid: int | None
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PathFacts:
    path: Path
    mode: int
    owner: int
    is_folder: bool
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class HomeFacts:
    """`damaged` are secrets that can't be understood. `needed_bytes` has the database in it, for a copy of it."""

    root: Path
    is_there: bool = True
    is_writable: bool = True
    user: int = 0
    paths: tuple[PathFacts, ...] = ()
    unreadable: tuple[Path, ...] = ()
    damaged: tuple[Path, ...] = ()
    engine_secret_is_lost: bool = False
    free_bytes: int | None = None
    database_bytes: int = 0
    models_folder: Path = Path()
    models_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LoginFacts:
    """One plist that starts Splash at login. `program` None: it could not be read."""

    file: Path
    program: Path | None
    program_is_there: bool


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """What the running engine may use in all by its plan, on which device, and what that recommends at most.

    None: it has no plan yet, or a CPU computes.
    """

    limit_bytes: int | None = None
    device: str | None = None
    working_set_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """`wired_limit_mib` and `is_translated` are None off macOS. `engine` None: none runs that could be asked.

    `users` are the largest programs by memory, ours among them. `login` has what starts at login.
    """

    total_bytes: int = 0
    available_bytes: int = 0
    swap_used_bytes: int = 0
    users: tuple[MemoryUser, ...] = ()
    wired_limit_mib: int | None = None
    is_translated: bool | None = None
    engine: EngineMemory | None = None
    quarantined: tuple[Path, ...] = ()
    login: tuple[LoginFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class Package:
    """A package as it is installed, and the one version that is wanted. `installed` None: it is missing.

    `is_required`: the engine reaches into its inside, so that no other version will do.
    """

    name: str
    wanted: str
    installed: str | None
    is_required: bool


@dataclass(frozen=True, slots=True)
class VersionFacts:
    splash: str | None = None
    python: tuple[int, int] = (3, 11)
    packages: tuple[Package, ...] = ()
    control_wire: int = 1
    engine_wire: int = 1


@dataclass(frozen=True, slots=True)
class Facts:
    """`parts`: all processes of Splash of any home; `others`: those of this home that are not the recorded three."""

    home: HomeFacts
    records: tuple[RecordFacts, ...] = ()
    parts: tuple[Part, ...] = ()
    others: tuple[Other, ...] = ()
    gone_homes: frozenset[Path] = frozenset()
    listening: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Ports by the pid of a process of Splash."""
    lock: LockFacts | None = None
    ports: tuple[PortFacts, ...] = ()
    misplaced: tuple[Misplaced, ...] = ()
    machine: MachineFacts = MachineFacts()
    versions: VersionFacts = VersionFacts()
    now_s: float = 0.0

    def record_of(self, name: ProcessName) -> RecordFacts | None:
        return next((each for each in self.records if each.name == name), None)
