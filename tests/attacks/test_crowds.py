"""Other machines, one or many of them, take every place or ask who runs here: whoever sits at this one is served still.

Their addresses are what the socket says, so here a socket says it: a machine has only so many of its own.
"""

import asyncio
import socket
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from control.http_protocol import TOLD_LIMIT
from control.http_protocol import HttpProtocol as ControlProtocol
from tests.unit.webui.conftest import control as control
from tests.unit.webui.conftest import home as home
from tests.unit.webui.conftest import running_control as running_control
from tests.unit.webui.console_stage import PORT, serve
from webui.http_protocol import HttpProtocol as ConsoleProtocol

HERE = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
PLACES = 128
DOORS = {"API": ControlProtocol.limited_to(PLACES), "console": ConsoleProtocol}


async def nothing(scope, receive, send) -> None:
    """Nobody asks for anything."""


class Connection:
    """As the server sees it: a transport that can be cut."""

    def __init__(self, address: str) -> None:
        self.is_cut = False
        self._peer = (address, 50_000)

    def get_extra_info(self, name: str) -> object:
        return self if name == "socket" else None

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def getsockname(self) -> tuple[str, int]:
        return ("192.168.1.1", 1)

    def setsockopt(self, *_: int) -> None:
        """Nothing is sent."""

    def is_closing(self) -> bool:
        return self.is_cut

    def abort(self) -> None:
        self.is_cut = True


class Crowd:
    """Connections to one door, which nobody of them leaves."""

    def __init__(self, door: str) -> None:
        self._config = uvicorn.Config(nothing, http=DOORS[door], lifespan="off", log_config=None)
        self._state = ServerState()
        self._protocol = DOORS[door]

    def come(self, address: str) -> str:
        """What becomes of one more: a place, a word that there is none, or nothing at all."""
        protocol = self._protocol(self._config, self._state, {}, asyncio.get_running_loop())
        connection = Connection(address)
        protocol.connection_made(connection)
        if connection.is_cut:
            protocol.connection_lost(ConnectionAbortedError())
            return "cut"
        return "told" if getattr(protocol, "_is_one_too_many", False) else "served"


@pytest.mark.parametrize("door", DOORS)
async def test_one_other_machine_has_a_quarter_of_the_places_and_the_next_one_finds_its_own(door):
    crowd = Crowd(door)

    greedy = [crowd.come("192.168.1.66") for _ in range(1_000)]
    modest = [crowd.come("192.168.1.7") for _ in range(6)]

    assert greedy.count("served") == PLACES // 4
    assert greedy.count("told") == (TOLD_LIMIT if door == "API" else 0)
    assert modest == ["served"] * 6


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("here", HERE)
async def test_however_many_machines_come_a_quarter_of_the_places_is_kept_for_this_one(door, here):
    crowd = Crowd(door)

    for number in range(4 * PLACES):
        crowd.come(f"fe80::{number:x}")
    own = [crowd.come(here) for _ in range(PLACES // 4)]

    assert own == ["served"] * (PLACES // 4)


async def test_this_machine_itself_may_have_all_places_but_no_more():
    for door in DOORS:
        crowd = Crowd(door)

        own = [crowd.come("127.0.0.1") for _ in range(PLACES + 1)]

        assert (own[:-1], own[-1] == "served") == (["served"] * PLACES, False)


@pytest.mark.parametrize(
    ("address", "is_here"), [*((each, True) for each in HERE), ("192.168.1.9", False), ("fe80::1", False), ("", False)]
)
async def test_who_runs_here_is_told_to_this_machine_only(control, home, address, is_here):
    async with serve(control, home, is_lan_on=True) as console:
        app = console.browser._transport.app
        asker = httpx.ASGITransport(app, client=(address, 50_000))
        async with httpx.AsyncClient(transport=asker, base_url=f"http://{socket.gethostname()}:{PORT}") as client:
            answer = (await client.get("/healthz", headers={"Host": f"127.0.0.1:{PORT}"})).json()

    told = SimpleNamespace(**{"pid": None, "nonce": None} | answer)
    assert (told.pid, told.nonce) == ((1, "nonce") if is_here else (None, None))
