"""The manager that every system has: a child in a session of its own, which no terminal takes along.

Nobody keeps it: when it has ended, nothing of it is left but its record, which is `home`'s.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from control.home import Home, Manager, ProcessName
from control.log_files import open_log
from control.services.protocol import Ended
from engine.wire import ProcessRecord

END_LIMIT_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class Child:
    """A detached process while the one that started it still lives."""

    home: Home
    name: ProcessName
    process: subprocess.Popen[bytes]
    log_from_byte: int

    def ended(self) -> Ended | None:
        code = self.process.poll()
        return None if code is None else Ended(code, f"it ended with exit code {code}")

    def wrote(self, record: ProcessRecord) -> bool:
        return record.pid == self.process.pid

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # One that is ended before it can see a signal does not remove its record itself.
        record = self.home.read_record(self.name)
        if record is not None and self.wrote(record):
            self.home.remove_record(record)


@dataclass(frozen=True, slots=True)
class Detached:
    home: Home

    @property
    def name(self) -> Manager:
        return "detached"

    def start(self, name: ProcessName, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        with open_log(self.home.log_file(name)) as log:
            log_from_byte = log.tell()
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Python puts the working directory before the installed packages: it must hold none of ours or theirs.
                cwd=self.home.root,
                start_new_session=True,
            )
            return Child(self.home, name, process, log_from_byte)

    def last_end(self, name: ProcessName) -> Ended | None:
        """Who started it has not waited for its end."""
        return None

    def remove(self, name: ProcessName) -> None:
        """There is nothing: a detached process is known to its record only."""
