"""A console in this process, in front of a scripted control on a real socket, and a browser without a screen."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from control.wire import Health
from tests.fakes.control import FakeControl
from webui.app import make_app
from webui.control_client import ControlClient
from webui.ended_sessions import EndedSessions
from webui.farewell import Farewell
from webui.home import Home
from webui.sessions import Sessions
from webui.watch import Watch

PORT = 18_999
ORIGIN = f"http://127.0.0.1:{PORT}"


@dataclass
class Console:
    """`browser` keeps cookies, and follows nothing by itself."""

    browser: httpx.AsyncClient
    control: FakeControl
    sessions: Sessions
    home: Home
    farewell: Farewell
    watch: Watch
    has_left: asyncio.Event

    def forget_control(self) -> None:
        """As if it had ended in order: it takes its record with it."""
        (self.home.root / "run" / "control.json").unlink()

    async def log_in(self) -> None:
        self.control.links.add("a-link")
        answer = await self.browser.get("/login", params={"token": "a-link"})
        assert answer.status_code == 303

    async def post(self, path: str, form_token: str | None = None, **fields: str) -> httpx.Response:
        """As a browser sends a form of ours."""
        if form_token is None:
            session = self.sessions.read(dict(self.browser.cookies))
            form_token = session.form_token if session is not None else ""
        return await self.browser.post(
            path, data={"form_token": form_token, **fields}, headers={"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
        )


@asynccontextmanager
async def serve(control: FakeControl, home: Home, *, is_lan_on: bool = False):
    has_left = asyncio.Event()
    client = ControlClient(home, admin_port=control.port)
    watch = Watch(client, fate=lambda: home.fate("control"))
    farewell = Farewell(home, has_left.set)
    sessions = Sessions(home.session_key(), port=PORT, ended=EndedSessions(home))
    app = make_app(
        control=client,
        sessions=sessions,
        farewell=farewell,
        watch=watch,
        health=Health(name="webui", pid=1, nonce="nonce"),
        port=PORT,
        has_password=home.has_password,
        is_lan_on=is_lan_on,
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as browser:
        yield Console(browser, control, sessions, home, farewell, watch, has_left)
    await farewell.close()
    await watch.close()
    await client.close()
