"""Checks of the four ports: taken by a process that is not of this home, which is named; and ours at a wrong address.

Pure: facts in, findings out.
"""

from collections.abc import Iterator
from typing import Final

from control.doctor.facts import Facts, Holder, PortFacts
from control.doctor.finding import Finding
from control.misplaced import Misplaced

WILDCARDS: Final = ("0.0.0.0", "::", "*")
COMMAND_LENGTH: Final = 120
TITLES: Final = {"control": "Control", "webui": "The console"}


def port_findings(facts: Facts) -> Iterator[Finding]:
    for port in facts.ports:
        foreign = [holder for holder in port.holders if holder.home != facts.home.root]
        is_ours_there = any(h.home == facts.home.root and h.address == port.host for h in port.holders)
        if foreign and not is_ours_there:
            yield _taken(port, foreign[0])
    for each in facts.misplaced:
        yield _misplaced(each)


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


def _misplaced(about: Misplaced) -> Finding:
    return Finding(
        "open_address",
        "wrong",
        f"{TITLES[about.name]} (pid {about.pid}) listens at {about.listens_at} on port {about.port}, and the settings "
        f"say {about.wanted}.",
        "Other machines reach it, and should not." if about.is_open else "Other machines do not reach it, and should.",
        "`splash up` restarts it where it belongs; `splash lan` says what is chosen.",
    )


def _cut(command: str) -> str:
    if not command:
        return "command unknown"
    return command if len(command) <= COMMAND_LENGTH else f"{command[:COMMAND_LENGTH]}…"
