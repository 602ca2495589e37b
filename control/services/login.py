"""Start at login, which a person chose: a third agent in ~/Library/LaunchAgents that runs `splash up` once.

The jobs of control and of the console are started by that command, as by hand. Unrun on a Mac.
"""

import plistlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from xml.parsers.expat import ExpatError

from control.command_errors import ServiceStays, UsageWrong
from control.config import default_home
from control.home import Home
from control.services.agents import Agent, exit_limit_s, job_environment, label_of, program, property_list
from control.services.launchctl import Launchctl, find_launchctl
from control.services.launchd import BOOTOUT_SLACK_S, RETRY_EVERY_S, delete_property_list, put_property_list

# launchd reads this folder at each login.
LOGIN_FOLDER: Final = Path("Library") / "LaunchAgents"
# All that plistlib lets through from what it is made of, when a file is no property list.
UNREADABLE: Final = (
    *(OSError, ExpatError, plistlib.InvalidFileException),
    *(ValueError, AttributeError, TypeError, LookupError, OverflowError, RecursionError),
)
# stale: it starts a Splash that is not there any more, or with other settings. broken: launchd can't read it, either.
LoginState = Literal["on", "off", "stale", "broken"]


@dataclass(frozen=True, slots=True)
class LoginAgent:
    home: Home
    launchctl: Launchctl
    folder: Path
    splash: Path

    @property
    def label(self) -> str:
        return label_of("login", self.home.root, default_root=default_home())

    @property
    def file(self) -> Path:
        return self.folder / f"{self.label}.plist"

    def state(self, environment: Mapping[str, str]) -> LoginState:
        if not self.file.exists():
            return "off"
        found = listed(self.file)
        if found is None:
            return "broken"
        return "on" if found == plistlib.loads(self._content(environment)) else "stale"

    def turn_on(self, environment: Mapping[str, str]) -> None:
        """From the next login on; nothing is started now. Raises StartFailed, HomeUnusable."""
        put_property_list(self.file, self._content(environment))

    def turn_off(self) -> None:
        """Harmless when it is off; what runs goes on. Raises ServiceStays, HomeUnusable."""
        delete_property_list(self.file)
        limit_s = exit_limit_s("login") + BOOTOUT_SLACK_S
        deadline = time.monotonic() + limit_s
        while self.launchctl.find(self.label) is not None:
            done = self.launchctl.bootout(self.label)
            if time.monotonic() >= deadline:
                raise ServiceStays(label=self.label, limit_s=limit_s, reason=str(done))
            time.sleep(RETRY_EVERY_S)

    def _content(self, environment: Mapping[str, str]) -> bytes:
        agent = Agent(
            label=self.label,
            command=program((str(self.splash), "up", "--no-open")),
            environment=job_environment(environment, self.home.root),
            root=self.home.root,
            log=self.home.login_log,
            # `splash up` prints a login link, and the first time a key: neither belongs into a log.
            is_stdout_dropped=True,
        )
        return property_list("login", agent)


def listed(file: Path) -> dict[str, object] | None:
    """What a property list of launchd says; None when it is none, or can't be read."""
    try:
        found = plistlib.loads(file.read_bytes())
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None


def login_agent(home: Home) -> LoginAgent:
    """Raises UsageWrong on a machine without launchd."""
    launchctl = find_launchctl()
    if launchctl is None:
        raise UsageWrong("There is no launchd on this machine; start at login is for a Mac.")
    return LoginAgent(home, launchctl, Path.home() / LOGIN_FOLDER, Path(sys.executable).parent / "splash")
