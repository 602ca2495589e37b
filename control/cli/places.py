"""Where a command of the command line works: the settings of this environment, their home, and its running control.

It starts nothing.
"""

import os
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from control.cli.admin_client import AdminClient
from control.cli.processes import find
from control.cli.settling import FollowingClient, settled_control
from control.command_errors import ControlGone, NotAnswering, NotRunning
from control.config import Settings
from control.home import Home, ProcessName

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

# Who may run on without control, and what a person calls it.
REST: Final[dict[ProcessName, str]] = {"webui": "the console", "engine": "the engine"}


@dataclass(frozen=True, slots=True)
class Place:
    settings: Settings
    home: Home


def this_place() -> Place:
    """Raises SettingsInvalid, HomeUnusable."""
    settings = Settings.from_env(os.environ)
    home = Home(settings.home)
    home.create()
    return Place(settings, home)


def running_control(place: Place) -> AdminClient:
    """Raises NotRunning, ControlGone when the others run; NotAnswering when control lives and can't be asked."""
    control = settled_control(place.home)
    if control.is_ours and control.record is not None:
        return FollowingClient(place.home, control.record)
    if control.is_alive and control.identity is not None:
        raise NotAnswering(control.identity.reason)
    holder = place.home.holder_of("control")
    if holder is not None:
        raise NotAnswering(f"{holder} has left no record of itself")
    rest = [title for name, title in REST.items() if find(place.home, name).is_ours]
    if rest:
        raise ControlGone(rest=f"{' and '.join(rest)} {'are' if len(rest) > 1 else 'is'}")
    raise NotRunning
