"""What there is of control once no command is at work on it, and a client that follows it when it is replaced.

It starts and ends nothing.
"""

from typing import Final

import msgspec

from control.cli.admin_client import TIMEOUT_S, AdminClient, Answer
from control.cli.processes import Found, find, wait_for
from control.command_errors import NotAnswering, NotRunning
from control.home import Home
from engine.wire import ProcessRecord

# A process that was just told to end, or that is just starting, needs this long to become one or the other: control
# lets its streams end, and then its connections.
SETTLE_LIMIT_S: Final = 15.0


def settled_control(home: Home, *, has_turn: bool = False) -> Found:
    """Within SETTLE_LIMIT_S, which is spent only while control starts or ends, or another command is at it.

    `has_turn`: the caller is the one command that may be.
    """
    wait_for(lambda: not _is_changing(home, has_turn=has_turn), SETTLE_LIMIT_S)
    return find(home, "control")


class FollowingClient(AdminClient):
    """Asks the next control when the one that it knew has been replaced. An order goes to one control only."""

    def __init__(self, home: Home, control: ProcessRecord) -> None:
        super().__init__(home, control)
        self._home = home

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        body: msgspec.Struct | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        try:
            return super()._ask(method, path, kind, body, timeout_s=timeout_s)
        except (NotAnswering, NotRunning):
            successor = settled_control(self._home) if method == "GET" else None
            if successor is None or not successor.is_ours or successor.record is None:
                raise
            if successor.nonce == self._control.nonce:
                raise
            super().__init__(self._home, successor.record)
            return super()._ask(method, path, kind, body, timeout_s=timeout_s)


def _is_changing(home: Home, *, has_turn: bool) -> bool:
    found = find(home, "control")
    if found.is_ours:
        return False
    is_opening_or_closing = found.identity is not None and found.identity.verdict == "closed"
    return is_opening_or_closing or (not has_turn and home.holder_of("up") is not None)
