"""Checks of the four ports: taken by a process that is not of this home, which is named.

Pure: facts in, findings out.
"""

from collections.abc import Iterator
from typing import Final

from control.doctor.facts import Facts, Holder, PortFacts
from control.doctor.finding import Finding

WILDCARDS: Final = ("0.0.0.0", "::", "*")
COMMAND_LENGTH: Final = 120


def port_findings(facts: Facts) -> Iterator[Finding]:
    for port in facts.ports:
        foreign = [holder for holder in port.holders if holder.home != facts.home.root]
        if foreign and len(foreign) == len(port.holders):
            yield _taken(port, foreign[0])


def collides(address: str, host: str) -> bool:
    """Whether a listener at `address` is in the way of one at `host`, both numeric."""
    return address == host or address in WILDCARDS or host in WILDCARDS


def _taken(port: PortFacts, holder: Holder) -> Finding:
    if holder.home is not None:
        who = f"pid {holder.pid}, of another Splash: {holder.home}"
        mend = f"Give one of the two homes other ports ({port.key}), or `SPLASH_HOME={holder.home} splash quit`."
    elif holder.pid is None:
        who = "a process that this user may not see"
        mend = f"Give Splash another port with {port.key}, or find it with `sudo lsof -i :{port.port}`."
    else:
        who = f"pid {holder.pid} ({_cut(holder.command)})"
        mend = f"End that program, or give Splash another port with {port.key}."
    return Finding(
        "taken_port",
        "wrong",
        f"Port {port.port} ({port.key}) is taken by {who}.",
        "Splash can't start on it, and never ends a program that is not its own.",
        mend,
    )


def _cut(command: str) -> str:
    if not command:
        return "command unknown"
    return command if len(command) <= COMMAND_LENGTH else f"{command[:COMMAND_LENGTH]}…"
