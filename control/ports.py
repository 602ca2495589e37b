"""The ports of Splash: bound for listening, or found taken, with the name of who has them.

It serves nothing on them.
"""

import errno
import socket
from typing import Final

from control.command_errors import PortTaken, PortUnusable
from control.identity import port_holder, splash_home_of

BACKLOG: Final = 512


def bind(host: str, port: int, *, key: str) -> socket.socket:
    """A listening address of our own. Raises PortTaken, which names who has it; PortUnusable."""
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
            holder = port_holder(port)
            home = splash_home_of(holder)
            raise PortTaken(port=port, key=key, holder=str(holder or "a process of another user"), home=home) from error
        raise PortUnusable(host=host, port=port, key=key, reason=error.strerror or str(error)) from error
    return bound


def require_free(host: str, port: int, *, key: str) -> None:
    """Raises PortTaken or PortUnusable when it can't be bound now."""
    bind(host, port, key=key).close()
