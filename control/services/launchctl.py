"""`launchctl`, the program: its verbs, its exit codes, and what it prints, in our words.

It decides nothing and never retries; that is `launchd`. Nothing that it prints is logged: it shows environments.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from control.services.protocol import Ended

NO_SUCH_PROCESS: Final = 3
INPUT_OUTPUT_ERROR: Final = 5
IN_PROGRESS: Final = 36
ALREADY_IN_PROGRESS: Final = 37
UNKNOWN_SERVICE: Final = 113
# What a verb answers while an earlier bootout of the same label still goes on, and only for as long.
# Source: notes/console.md §0, finding 4.
PASSING: Final = frozenset((INPUT_OUTPUT_ERROR, IN_PROGRESS, ALREADY_IN_PROGRESS, UNKNOWN_SERVICE))
# It answers in milliseconds; one that hangs is treated as one that failed.
TIMEOUT_S: Final = 20.0
GUI_SESSION: Final = "Aqua"
# The service's own fields are indented once; what it holds in blocks, such as another `state`, more.
_FIELD: Final = re.compile(r"^(?:\t| {1,8})([a-z][a-z ]*[a-z]) = (.+)$", re.MULTILINE)
_NUMBER: Final = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True)
class Done:
    """`code` None: it did not answer within TIMEOUT_S. `words` is what it said, on one line."""

    code: int | None
    words: str
    output: str = ""

    @property
    def is_passing(self) -> bool:
        """It may well succeed in a moment."""
        return self.code in PASSING

    def __str__(self) -> str:
        return self.words or ("no answer" if self.code is None else f"exit code {self.code}")


@dataclass(frozen=True, slots=True)
class Job:
    """What launchd knows of a loaded service. None: it does not say, or this reader does not understand it.

    `last_exit_code` and `last_signal` are of the run before, and exclude each other.
    """

    pid: int | None = None
    last_exit_code: int | None = None
    last_signal: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.pid is None and (self.last_exit_code is not None or self.last_signal is not None)

    @property
    def ended(self) -> Ended | None:
        """How; None while it runs, or when nobody knows."""
        if not self.has_ended:
            return None
        if self.last_signal is not None:
            return Ended(None, f"a signal ended it ({self.last_signal})")
        return Ended(self.last_exit_code, f"it ended with exit code {self.last_exit_code}")


def read_job(text: str) -> Job:
    """What `launchctl print` says of a service. Its form is not stable: what is not understood is None."""
    fields: dict[str, str] = {}
    for key, value in _FIELD.findall(text):
        fields.setdefault(key, value.strip())
    return Job(
        pid=_number(fields.get("pid")),
        last_exit_code=_number(fields.get("last exit code")),
        last_signal=fields.get("last terminating signal"),
    )


@dataclass(frozen=True, slots=True)
class Launchctl:
    """The jobs of this person's GUI session."""

    program: str
    domain: str

    def find(self, label: str) -> Job | None:
        """None: launchd does not know it. A service of which it says nothing understandable is a Job without facts."""
        done = self._run("print", f"{self.domain}/{label}")
        if done.code == 0:
            return read_job(done.output)
        return None if done.code in (UNKNOWN_SERVICE, NO_SUCH_PROCESS) else Job()

    def bootstrap(self, file: Path) -> Done:
        return self._run("bootstrap", self.domain, str(file))

    def kickstart(self, label: str) -> Done:
        """Start a loaded service; one that runs goes on (`-k` would kill it, and is never used)."""
        return self._run("kickstart", f"{self.domain}/{label}")

    def bootout(self, label: str) -> Done:
        """Answered before it is done: SIGTERM, SIGKILL after ExitTimeOut, and only then the service is unknown."""
        return self._run("bootout", f"{self.domain}/{label}")

    def session(self) -> str | None:
        """The kind of session that this process is in: `Aqua` where there is a desktop."""
        done = self._run("managername")
        return done.output.strip() if done.code == 0 else None

    def _run(self, *words: str) -> Done:
        try:
            ran = subprocess.run(
                [self.program, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return Done(None, f"launchctl {words[0]} did not answer within {TIMEOUT_S:.0f} s")
        except OSError as error:
            return Done(None, f"launchctl can't be run: {error.strerror}")
        return Done(ran.returncode, " ".join(ran.stderr.split()), ran.stdout)


def find_launchctl() -> Launchctl | None:
    """None on a machine without launchd."""
    program = shutil.which("launchctl") or shutil.which("launchctl", path="/bin")
    return None if program is None else Launchctl(program, f"gui/{os.getuid()}")


def _number(text: str | None) -> int | None:
    found = None if text is None else _NUMBER.match(text)
    return None if found is None else int(found.group())
