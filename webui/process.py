"""The console as a process: take the port, write the record, serve, and leave nothing behind.

It makes no pages and reads no arguments.
"""

import logging
import os
import secrets
import signal
import socket
import time
from dataclasses import dataclass
from importlib.metadata import version
from types import FrameType
from typing import Final, Literal

import psutil
import uvicorn

from control.wire import Health, ProcessRecord
from webui.app import make_app
from webui.control_client import ControlClient
from webui.ended_sessions import EndedSessions
from webui.errors import PortTaken
from webui.farewell import Farewell
from webui.home import Home
from webui.http_protocol import HttpProtocol
from webui.last_act import remove_services_afterwards
from webui.sessions import Sessions
from webui.watch import Watch

logger = logging.getLogger(__name__)

Manager = Literal["detached", "launchd", "control", "foreground"]

BACKLOG: Final = 128
# A page that is being sent is finished; a connection that only stays open is not waited for.
GRACE_S: Final = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where this console serves, and whose it is. `is_lan_on`: it answers other machines, too."""

    home: Home
    host: str
    port: int
    admin_port: int
    manager: Manager
    is_lan_on: bool


def run(place: Place, listener: socket.socket) -> None:
    """Serve on `listener` until SIGTERM, SIGINT or the end of Splash. The record is gone when this returns."""
    record = _record(place, port=listener.getsockname()[1])
    place.home.write_record(record)
    try:
        _serve(place, listener, record)
    finally:
        place.home.remove_record(record)
    logger.info("console stopped pid=%d", record.pid)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises PortTaken, which names the holder when the system tells it."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family is socket.AF_INET6:
        # `::` is every address, those of IPv4, too, whatever this system does by itself.
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        listener.bind((host, port))
        # At once: two bound sockets can share a port until one of them listens.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PortTaken(host=host, port=port, holder=_holder(port)) from error
    return listener


def _serve(place: Place, listener: socket.socket, record: ProcessRecord) -> None:
    control = ControlClient(place.home, admin_port=place.admin_port)
    sessions = Sessions(place.home.session_key(), port=record.port, ended=EndedSessions(place.home))
    server: uvicorn.Server | None = None

    def leave(_signal: int = 0, _frame: FrameType | None = None) -> None:
        assert server is not None, "nobody can leave before the server exists"
        server.should_exit = True

    def leave_for_good() -> None:
        if place.manager == "launchd":
            remove_services_afterwards(place.home)
        leave()

    app = make_app(
        control=control,
        watch=Watch(control, fate=lambda: place.home.fate("control")),
        sessions=sessions,
        farewell=Farewell(place.home, leave_for_good),
        health=Health(name="webui", pid=record.pid, nonce=record.nonce),
        port=record.port,
        has_password=place.home.has_password,
        is_lan_on=place.is_lan_on,
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            loop="uvloop",
            http=HttpProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    # uvicorn raises the signal again after it has stopped: this handler makes that a clean exit.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    logger.info("console serves pid=%d port=%d home=%s", record.pid, record.port, place.home.root)
    server.run(sockets=[listener])


def _record(place: Place, *, port: int) -> ProcessRecord:
    created_at_s = psutil.Process().create_time()
    return ProcessRecord(
        name="webui",
        pid=os.getpid(),
        created_at_s=created_at_s,
        nonce=secrets.token_hex(16),
        port=port,
        manager=place.manager,
        started_at_s=time.time(),
        version=version("splash-server"),
        # Linux adds the boot time to what the kernel keeps, and that moves when the clock is set.
        created_after_boot_s=created_at_s - psutil.boot_time() if psutil.LINUX else None,
    )


def _holder(port: int) -> str | None:
    """Pid and command of who listens on `port`. Other people's processes may be hidden from us."""
    for process in psutil.process_iter():
        try:
            connections = process.net_connections(kind="tcp")
            if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections):
                return f"pid {process.pid} ({' '.join(process.cmdline())[:120] or process.name()})"
        except psutil.Error:
            continue
    return None
