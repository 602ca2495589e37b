"""Where a command of the command line works: the settings of this environment, their home, and its running control.

It starts nothing.
"""

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from control.cli.admin_client import AdminClient
from control.cli.processes import find
from control.command_errors import NotAnswering, NotRunning
from control.config import Settings
from control.home import Home

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


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
    """Raises NotRunning; NotAnswering when control lives and can't be asked."""
    control = find(place.home, "control")
    if control.is_ours and control.record is not None:
        return AdminClient(place.home, control.record)
    if control.is_alive and control.identity is not None:
        raise NotAnswering(control.identity.reason)
    holder = place.home.holder_of("control")
    if holder is not None:
        raise NotAnswering(f"{holder} has left no record of itself")
    raise NotRunning
