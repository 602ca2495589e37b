"""Which service manager a home uses: the one that a person names, that of a record, or the machine's own.

It asks launchctl what kind of session this is, and starts nothing.
"""

import sys
from typing import Final, Literal

from control.command_errors import UsageWrong
from control.home import Home
from control.services.detached import Detached
from control.services.launchctl import GUI_SESSION, find_launchctl
from control.services.launchd import Launchd
from control.services.protocol import ServiceManager
from engine.wire import ProcessRecord

ManagerChoice = Literal["detached", "launchd"]
MANAGER_CHOICES: Final[tuple[ManagerChoice, ...]] = ("detached", "launchd")


def manager_for(home: Home, wanted: ManagerChoice | None) -> ServiceManager:
    """`wanted` None: launchd on a Mac with a desktop, so that no Terminal takes Splash along; detached elsewhere.

    Raises UsageWrong when launchd is wanted where it is not.
    """
    if wanted == "detached":
        return Detached(home)
    if wanted is None and sys.platform != "darwin":
        return Detached(home)
    launchctl = find_launchctl()
    if wanted is None and (launchctl is None or launchctl.session() != GUI_SESSION):
        # Over ssh, for one: there is no desktop whose session could keep a job.
        return Detached(home)
    if launchctl is None:
        raise UsageWrong("There is no launchd on this machine; leave --manager out.")
    return Launchd(home, launchctl)


def manager_of(home: Home, record: ProcessRecord) -> ServiceManager:
    """The one that started the process of this record. Who was started by hand in a terminal is started detached.

    Raises UsageWrong when it was launchd, and there is none on this machine.
    """
    return manager_for(home, "launchd" if record.manager == "launchd" else "detached")
