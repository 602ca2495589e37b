"""The console's end of control's admin door: one typed method per question or order.

It keeps no state but the connection, repeats nothing, and decides nothing about what an answer means. Whoever has taken
control's port is told nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from control import wire
from webui.control_listener import ControlListener, Listener
from webui.errors import ControlGone, ControlRefused, OrderUnconfirmed
from webui.home import Home

# Control answers from memory; what takes longer than this is as good as gone for a page that asks again in a second.
TIMEOUT_S: Final = 2.0
# An order may write to the database, and nobody gives it once a second.
ORDER_TIMEOUT_S: Final = 5.0
# Before it answers, control starts a process that reads the headers of the weights.
LOAD_TIMEOUT_S: Final = 20.0
# Control itself waits 30 s for the engine, which empties the cache between two steps of the device.
CLEAR_TIMEOUT_S: Final = 35.0
# Listing models starts a process that reads folders and headers.
MODELS_TIMEOUT_S: Final = 20.0
# The gateway writes a heartbeat every 15 s, and its first at the latest 21 s after a question.
TALK_TIMEOUT_S: Final = 60.0
# Between two pieces of what is passed on to somebody who may be slow.
DOWNLOAD_TIMEOUT_S: Final = 30.0

# What goes wrong before a byte of the order is on its way; after anything else it may have arrived.
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

Answer = TypeVar("Answer")


class ControlClient:
    """HTTP+JSON to control's admin port on this machine. Every method raises ControlGone or ControlRefused.

    An order that went out and was not answered in time raises OrderUnconfirmed, a kind of ControlGone.
    """

    def __init__(self, home: Home, *, admin_port: int) -> None:
        self._home = home
        self._listener = ControlListener(home, admin_port=admin_port)
        # No proxy of the environment may come between two processes of one machine.
        self._http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{admin_port}", trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def overview(self) -> wire.Overview:
        return await self.ask("GET", wire.OVERVIEW, wire.Overview)

    async def recent_requests(self, limit: int) -> tuple[wire.RequestRow, ...]:
        page = await self.ask("GET", f"{wire.REQUESTS}?limit={limit}", wire.RequestPage)
        return tuple(listed.row for listed in page.requests)

    async def models(self) -> wire.ModelList:
        return await self.ask("GET", wire.MODELS, wire.ModelList, timeout_s=MODELS_TIMEOUT_S)

    async def load(self, order: wire.LoadRequest) -> wire.Accepted:
        return await self.ask("POST", wire.LOAD, wire.Accepted, order, timeout_s=LOAD_TIMEOUT_S)

    async def unload(self, *, force: bool) -> wire.Accepted:
        return await self.ask("POST", wire.UNLOAD, wire.Accepted, wire.UnloadRequest(force=force))

    async def restart(self) -> wire.Accepted:
        return await self.ask("POST", wire.RESTART, wire.Accepted)

    async def clear_cache(self) -> wire.CacheCleared:
        return await self.ask("POST", wire.CACHE_CLEAR, wire.CacheCleared, timeout_s=CLEAR_TIMEOUT_S)

    async def set_concurrency(self, concurrency: int) -> None:
        await self.order("POST", wire.CONCURRENCY, wire.ConcurrencyRequest(concurrency=concurrency))

    async def cancel(self, request_id: str) -> None:
        await self.order("POST", wire.CANCEL.format(id=quote(request_id, safe="")))

    async def keys(self) -> tuple[wire.KeyView, ...]:
        return (await self.ask("GET", wire.KEYS, wire.KeyList)).keys

    async def create_key(self, order: wire.NewKey) -> wire.CreatedKey:
        return await self.ask("POST", wire.KEYS, wire.CreatedKey, order)

    async def revoke_key(self, key_id: int) -> None:
        await self.order("DELETE", wire.KEY.format(id=key_id))

    async def redeem(self, token: str) -> None:
        await self.order("POST", wire.REDEEM, wire.Redeem(token=token))

    async def check_password(self, password: str, address: str) -> None:
        """Returns when it is the right one."""
        await self.order("POST", wire.PASSWORD_LOGIN, wire.PasswordLogin(password=password, address=address))

    async def quit(self, *, force: bool) -> wire.Accepted:
        return await self.ask("POST", wire.QUIT, wire.Accepted, wire.QuitRequest(force=force))

    async def talk(self, order: wire.PlaygroundRequest) -> httpx.Response:
        """The answer as it comes, which the caller must close: then the request ends, too. Raises before its start."""
        question = self._question("POST", wire.PLAYGROUND, msgspec.json.encode(order), timeout_s=TALK_TIMEOUT_S)
        try:
            response = await self._http.send(question, stream=True)
            if not response.is_success:
                await response.aread()
        except httpx.HTTPError as error:
            raise ControlGone(f"control does not answer: {type(error).__name__}") from error
        if response.is_success:
            return response
        raise _refusal(response)

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        body: msgspec.Struct | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Answer:
        content = await self.order(method, path, body, timeout_s=timeout_s)
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.MsgspecError as error:
            raise ControlGone(f"control answered {method} {path} with something else: {error}") from error

    async def order(
        self, method: str, path: str, body: msgspec.Struct | None = None, *, timeout_s: float | None = None
    ) -> bytes:
        is_question = method == "GET"
        if timeout_s is None:
            timeout_s = TIMEOUT_S if is_question else ORDER_TIMEOUT_S
        content = None if body is None else msgspec.json.encode(body)
        question = self._question(method, path, content, timeout_s=timeout_s)
        try:
            response = await self._http.send(question)
        except httpx.HTTPError as error:
            reason = f"control does not answer: {type(error).__name__}"
            if is_question or isinstance(error, _NEVER_SENT):
                raise ControlGone(reason) from error
            raise OrderUnconfirmed(reason) from error
        if response.is_success:
            return response.content
        raise _refusal(response)

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """An answer of any length, piece by piece; whoever takes it has a moment for each. Raises before the first."""
        question = self._question("GET", path, timeout_s=DOWNLOAD_TIMEOUT_S)
        try:
            response = await self._http.send(question, stream=True)
        except httpx.HTTPError as error:
            raise ControlGone(f"control does not answer: {type(error).__name__}") from error
        if response.is_success:
            return _chunks(response)
        await response.aread()
        raise _refusal(response)

    def _question(self, method: str, path: str, content: bytes | None = None, *, timeout_s: float) -> httpx.Request:
        headers = {"Authorization": f"Bearer {self._home.admin_secret()}", "Content-Type": "application/json"}
        extensions = {"trace": _Caller(self._listener).step}
        return self._http.build_request(
            method, path, headers=headers, content=content, timeout=timeout_s, extensions=extensions
        )


class _Caller:
    """Of one question: sees, when a connection is made for it, that it leads to control. Raises ControlGone."""

    def __init__(self, control: ControlListener) -> None:
        self._control = control
        self._listener: Listener | None = None

    async def step(self, event: str, information: dict[str, Any]) -> None:
        """httpx tells each step: these two when it connects, before it says anything."""
        if event == "connection.connect_tcp.started":
            self._listener = await asyncio.to_thread(self._control.find)
            if self._listener is None:
                raise ControlGone("control does not listen on its port")
        elif event == "connection.connect_tcp.complete" and not (self._listener and self._listener.is_open()):
            await information["return_value"].aclose()
            raise ControlGone("control does not listen on its port any more")


async def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
    finally:
        await response.aclose()


def _refusal(response: httpx.Response) -> ControlGone | ControlRefused:
    try:
        error = msgspec.json.decode(response.content, type=wire.AdminError)
    except msgspec.MsgspecError:
        return ControlGone(f"control answered {response.status_code} without a reason")
    retry_after = response.headers.get("retry-after", "")
    return ControlRefused(
        code=error.code,
        message=error.message,
        status=response.status_code,
        retry_after_s=int(retry_after) if retry_after.isdecimal() else None,
    )
