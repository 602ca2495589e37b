"""`splash login on|off|status`: whether Splash starts when this person logs in.

Only on a Mac, and off until it is chosen. What it takes is in `control.services.login`.
"""

import os
from typing import Final, Literal

import typer

from control.cli.places import this_place
from control.cli.words import one_of
from control.services.login import LoginState, login_agent

Order = Literal["on", "off", "status"]
ORDERS: Final[tuple[Order, ...]] = ("on", "off", "status")
SENTENCES: Final[dict[LoginState, str]] = {
    "on": "Splash starts at login; `splash login off` ends that.",
    "off": "Splash does not start at login; `splash login on` makes it.",
    "stale": "Splash starts at login, as it was set up then; `splash login on` takes this place and these settings.",
    "broken": "Splash does not start at login: the file that says so is damaged; `splash login on` writes it anew.",
}


def login(order: str = typer.Argument("status", help="on, off or status.")) -> None:
    """Start Splash at login, with the last model. A Mac only."""
    chosen = one_of(order, ORDERS, "an order")
    agent = login_agent(this_place().home)
    if chosen == "on":
        agent.turn_on(os.environ)
    elif chosen == "off":
        agent.turn_off()
    typer.echo(SENTENCES[agent.state(os.environ)])
