"""The ports of Splash: bound for listening, or found taken, with the name of who has them.

It serves nothing on them. Only who listens has a port; an outgoing connection is let go by.
"""

import errno
import socket
import time
from typing import Final

from control.command_errors import PortPassing, PortTaken, PortUnusable
from control.identity import outgoing_holder, port_holder, splash_home_of
from control.lan import local_ipv4
from control.loopback import EVERY_ADDRESS, is_listening, reached_at

BACKLOG: Final = 512
# The system gives such a port away for as long as a connection lasts, which is mostly short.
PASSING_LIMIT_S: Final = 5.0
RETRY_EVERY_S: Final = 0.2


def bind(host: str, port: int, *, key: str) -> socket.socket:
    """A listening address of our own. Raises PortTaken, which names who has it; PortPassing; PortUnusable."""
    deadline = time.monotonic() + PASSING_LIMIT_S
    while True:
        try:
            return _bind(host, port, key=key)
        except PortPassing:
            if time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_EVERY_S)


def require_free(host: str, port: int, *, key: str) -> None:
    """Raises PortTaken, PortPassing or PortUnusable when it can't be bound now."""
    bind(host, port, key=key).close()


def _bind(host: str, port: int, *, key: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    # Only for the connections of an earlier process that still linger: two listeners are refused all the same.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family is socket.AF_INET6:
        # `::` is every address, those of IPv4, too, whatever this system does by itself.
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        bound.bind((host, port))
        # Without listening, a second process could still bind, and both would believe that the port is theirs.
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise _taken(host, port, key) from error
        raise PortUnusable(host=host, port=port, key=key, reason=error.strerror or str(error)) from error
    return bound


def _taken(host: str, port: int, key: str) -> PortTaken | PortPassing:
    holder = port_holder(port)
    if holder is None and not _somebody_answers(host, port):
        user = outgoing_holder(port) or "a process that has ended, or that this user may not see"
        return PortPassing(port=port, key=key, user=str(user))
    home = splash_home_of(holder)
    return PortTaken(port=port, key=key, holder=str(holder or "a process of another user"), home=home)


def _somebody_answers(host: str, port: int) -> bool:
    """Somebody listens there whom this user may not see."""
    addresses = (reached_at(host), *(local_ipv4() if host in EVERY_ADDRESS.values() else ()))
    return any(is_listening(port, host=address) for address in addresses)
