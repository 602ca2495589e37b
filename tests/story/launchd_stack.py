"""A whole Splash under a launchd of its own: the fake one, which is found on PATH before a real one."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.story.stack import ROOT, Stack, wait_until

FAKES = ROOT / "tests" / "fakes"


class LaunchdStack(Stack):
    """`jobs` is what that launchd knows, by label; `calls` what it was asked, one line a call."""

    def __init__(self, folder: Path, *, engine_command: str, state: Path) -> None:
        super().__init__(folder, engine_command=engine_command)
        self.state = state

    @property
    def environment(self) -> dict[str, str]:
        inherited = super().environment
        return inherited | {"PATH": f"{FAKES}:{inherited['PATH']}", "FAKE_LAUNCHD": str(self.state)}

    def up(self, *arguments: str):
        given = () if "--manager" in arguments else ("--manager", "launchd")
        return super().up(*given, *arguments)

    @property
    def jobs(self) -> dict[str, dict]:
        files = self.state.glob("io.github.splash.*.json")
        return {file.stem: json.loads(file.read_text()) for file in files}

    @property
    def property_lists(self) -> list[Path]:
        return sorted(self.home.launchd_folder.glob("*"))

    @property
    def calls(self) -> list[str]:
        return (self.state / "calls.log").read_text().splitlines()

    def clean_up(self) -> None:
        super().clean_up()
        # Jobs that have left no record. None is anybody else's: this launchd is of this test alone.
        for job in self.jobs.values():
            if job["pid"] is not None:
                with suppress(ProcessLookupError):
                    os.kill(job["pid"], signal.SIGKILL)
        wait_until(lambda: all(job["pid"] is None for job in self.jobs.values()), "the keepers to be done")
