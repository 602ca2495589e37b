"""One blocking request to a process on this machine: no proxy, no reverse DNS, no name look-up.

It is for identity checks and the CLI, where nothing else runs meanwhile; the event loop talks through `engine_client`.
"""

import http.client
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# What a process listens at to be reached at every address of the machine, by the loopback one of the same family.
EVERY_ADDRESS: Final = {"127.0.0.1": "0.0.0.0", "::1": "::"}
CONNECT_TIMEOUT_S: Final = 1.0
PIECE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


def ask(
    port: int,
    path: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    secret: str | None = None,
    timeout_s: float,
    host: str = LOOPBACK,
    is_ours: Callable[[], bool] | None = None,
) -> Answer | None:
    """The answer, or None when nobody answers HTTP there in time.

    `is_ours` is asked once connected; when it says no, nothing is sent, as if nobody had answered.
    """
    headers = {"Host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if secret is not None:
        headers["Authorization"] = f"Bearer {secret}"
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.connect()
        if is_ours is not None and not is_ours():
            return None
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def pieces(port: int, path: str, *, secret: str, timeout_s: float, is_ours: Callable[[], bool]) -> Iterator[Answer]:
    """A GET whose answer may be long, piece by piece, each with the same status. `is_ours` as in `ask`.

    Raises OSError and HTTPException when nobody answers in time, or the answer breaks off.
    """
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.connect()
        if not is_ours():
            raise ConnectionRefusedError(f"somebody else listens on port {port}")
        connection.request("GET", path, headers={"Host": f"{LOOPBACK}:{port}", "Authorization": f"Bearer {secret}"})
        answer = connection.getresponse()
        while piece := answer.read(PIECE_BYTES):
            yield Answer(answer.status, piece)
    finally:
        connection.close()


def reached_at(address: str) -> str:
    """Where a listener is asked from this machine: one at every address is asked at the loopback one."""
    return next((loopback for loopback, every in EVERY_ADDRESS.items() if every == address), address)


def is_listening(port: int, *, host: str = LOOPBACK) -> bool:
    """Somebody accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True
