"""The four doors of a running Splash, as an attacker on this machine sees them: raw bytes in, one answer out.

It judges nothing. What a door's rightful client sends are its `pass_headers`.
"""

import contextlib
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

from engine.wire import COUNT, STATUS
from tests.story.stack import Stack

NAMES = ("api", "admin", "console", "engine")
PATIENCE_S = 20.0
PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` None: the connection was closed without a word."""

    status: int | None
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode() + b":"
        lines = [line for line in self.head.split(b"\r\n") if line.lower().startswith(wanted)]
        return lines[0].partition(b":")[2].strip().decode("latin-1") if lines else None


@dataclass(frozen=True, slots=True)
class Door:
    """`page`: a GET that needs the pass. `order`: a POST that needs it, and reads a body."""

    name: str
    port: int
    page: str
    order: str
    pass_headers: tuple[str, ...]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def said(self, data: bytes) -> Answer:
        """Send `data` on a connection of its own; the first answer, read until the other side closes or it is whole."""
        with self.connected() as client:
            with contextlib.suppress(OSError):
                client.sendall(data)
            return first_answer(client)

    def asked(
        self,
        path: str | None = None,
        *,
        method: str = "GET",
        host: str | None = None,
        headers: Iterable[str] = (),
        body: bytes = b"",
        has_pass: bool = False,
    ) -> Answer:
        return self.said(
            self.request(path, method=method, host=host, headers=headers, body=body, has_pass=has_pass),
        )

    def request(
        self,
        path: str | None = None,
        *,
        method: str = "GET",
        host: str | None = None,
        headers: Iterable[str] = (),
        body: bytes = b"",
        has_pass: bool = False,
    ) -> bytes:
        lines = [f"{method} {self.page if path is None else path} HTTP/1.1", f"Host: {host or self.host}"]
        lines += [*(self.pass_headers if has_pass else ()), *headers]
        if method == "HEAD":
            # Its answer announces a body that does not come.
            lines.append("Connection: close")
        if body or method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("utf-8") + body

    def connected(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client


def doors_of(splash: Stack) -> dict[str, Door]:
    """With a fresh session of the console; the model is loaded."""
    launch = splash.home.read_launch()
    assert launch is not None, "the engine was started"
    engine, admin = (f"Authorization: Bearer {secret}" for secret in (launch.secret, splash.home.admin_secret()))
    ports = splash.ports
    return {
        "api": Door(
            "api", ports["api"], "/v1/models", "/v1/chat/completions", (f"Authorization: Bearer {splash.key}",)
        ),
        "admin": Door("admin", ports["admin"], "/overview", "/login-links", (admin,)),
        "console": Door("console", ports["console"], "/model", "/preferences", (f"Cookie: {new_session(splash)}",)),
        "engine": Door("engine", ports["engine"], STATUS, COUNT, (engine,)),
    }


def new_session(splash: Stack) -> str:
    """The cookie of a browser that has just come in, as it sends it."""
    with splash.admin() as admin:
        token = admin.post("/login-links", json={"valid_s": 30}).json()["token"]
    console = Door("console", splash.ports["console"], "/", "/", ())
    cookie = console.asked(f"/login?token={token}").header("set-cookie")
    assert cookie is not None, "the link is new"
    return cookie.partition(";")[0]


def first_answer(client: socket.socket) -> Answer:
    """Of what comes within 20 s: until the connection ends, or the announced body is there."""
    received = b""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline and not _is_whole(received):
            piece = client.recv(PIECE_BYTES)
            if not piece:
                break
            received += piece
    except ConnectionResetError:
        pass
    head, _, body = received.partition(b"\r\n\r\n")
    return Answer(int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/1.") else None, head, body)


def is_cut(client: socket.socket, *, within_s: float = PATIENCE_S) -> bool:
    """The other side ends this connection in that time; what it still says is thrown away."""
    client.settimeout(within_s)
    try:
        while client.recv(PIECE_BYTES):
            continue
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def _is_whole(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    lowered = head.lower()
    if not end:
        return False
    if b"\r\ncontent-length: " in lowered:
        return len(body) >= int(lowered.partition(b"\r\ncontent-length: ")[2].split(b"\r\n")[0])
    return b"transfer-encoding: chunked" in lowered and body.endswith(b"0\r\n\r\n")
