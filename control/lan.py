"""What this machine is called on its network: its name, its addresses, and the Host headers that mean it in LAN mode.

It asks no DNS, opens no socket, and believes no header about who has forwarded a request.
"""

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psutil

_LABEL: Final = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class LanHosts:
    """The Host headers beside the loopback ones. The name is read anew each time: a machine can be renamed."""

    port: int
    hostname: Callable[[], str] = socket.gethostname

    def allows(self, host: str, connected_to: tuple[str, int | None] | None) -> bool:
        """`host` in lower case, as it was sent; `connected_to`: our end of the connection, as ASGI tells it.

        An IP address that is asked for by itself can't be another site's name, so it can't be rebound.
        """
        label = machine_label(self.hostname)
        if label is not None and host in (f"{label}.local:{self.port}", f"{label}:{self.port}"):
            return True
        literal = None if connected_to is None else _literal(connected_to[0])
        return literal is not None and host == f"{literal}:{self.port}"


def machine_label(hostname: Callable[[], str] = socket.gethostname) -> str | None:
    """The first label of the machine's name; None when it has none that others could use."""
    label = hostname().partition(".")[0].lower()
    return label if _LABEL.fullmatch(label) and label != "localhost" else None


def lan_urls(port: int) -> tuple[str, ...]:
    """What other machines use: by name, and by each address in this network."""
    label = machine_label()
    names = () if label is None else (f"{label}.local",)
    return tuple(f"http://{host}:{port}" for host in (*names, *local_ipv4()))


def local_ipv4() -> tuple[str, ...]:
    """The IPv4 addresses of the interfaces that are up, without loopback and without public ones."""
    stats = psutil.net_if_stats()
    addresses = (
        ipaddress.IPv4Address(each.address)
        for name, each_of in psutil.net_if_addrs().items()
        if name in stats and stats[name].isup
        for each in each_of
        if each.family == socket.AF_INET
    )
    return tuple(str(each) for each in addresses if not each.is_global and not each.is_loopback)


def is_loopback(address: str) -> bool:
    """Whether a peer of that address is on this machine. What is no address is not."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def _literal(address: str) -> str | None:
    """As it stands in a Host header; an IPv4 client of an IPv6 socket has used the IPv4 one. None: it is no address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return f"[{found}]" if found.ipv4_mapped is None else str(found.ipv4_mapped)
