"""The command line's side of the admin API: one blocking call for each thing that a person can ask of control.

It prints nothing and starts nothing.
"""

import http.client
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from control import wire
from control.command_errors import NotAnswering, NotRunning, OrderRefused, UsageWrong
from control.home import Home
from control.identity import live_process
from control.listener import find_listener
from control.loopback import ask, pieces
from engine.wire import ProcessRecord

# A switch answers only after the new model's headers were read.
TIMEOUT_S: Final = 90.0
# Control only takes note of it.
LEAVE_TIMEOUT_S: Final = 10.0
_BAD_REQUEST: Final = 400
Answer = TypeVar("Answer", bound=msgspec.Struct)


class AdminClient:
    """Talks to a control whose record was verified, and to nobody who took its port since."""

    def __init__(self, home: Home, control: ProcessRecord) -> None:
        self._secret = home.admin_secret()
        self._control = control
        self._listener = find_listener(control, control.port)

    def overview(self, *, timeout_s: float = TIMEOUT_S) -> wire.Overview:
        return self._ask("GET", wire.OVERVIEW, wire.Overview, timeout_s=timeout_s)

    def load(self, request: wire.LoadRequest) -> wire.Accepted:
        return self._ask("POST", wire.LOAD, wire.Accepted, request)

    def unload(self, *, force: bool) -> wire.Accepted:
        return self._ask("POST", wire.UNLOAD, wire.Accepted, wire.UnloadRequest(force=force))

    def clear_cache(self) -> wire.CacheCleared:
        return self._ask("POST", wire.CACHE_CLEAR, wire.CacheCleared)

    def quit(self, *, force: bool) -> wire.Accepted:
        return self._ask("POST", wire.QUIT, wire.Accepted, wire.QuitRequest(force=force))

    def leave(self, *, force: bool) -> wire.Accepted:
        return self._ask("POST", wire.LEAVE, wire.Accepted, wire.LeaveRequest(force=force), timeout_s=LEAVE_TIMEOUT_S)

    def restart_engine(self) -> wire.Accepted:
        return self._ask("POST", wire.RESTART, wire.Accepted)

    def keys(self) -> tuple[wire.KeyView, ...]:
        return self._ask("GET", wire.KEYS, wire.KeyList).keys

    def new_key(
        self, name: str, request_class: wire.RequestClass, limits: wire.KeyLimits | None = None
    ) -> wire.CreatedKey:
        order = wire.NewKey(name=name, request_class=request_class, limits=limits or wire.KeyLimits())
        return self._ask("POST", wire.KEYS, wire.CreatedKey, order)

    def limit_key(self, key_id: int, change: wire.KeyChange) -> wire.KeyView:
        return self._ask("PATCH", wire.KEY.format(id=key_id), wire.KeyView, change)

    def revoke_key(self, key_id: int) -> wire.KeyView:
        return self._ask("DELETE", wire.KEY.format(id=key_id), wire.KeyView)

    def models(self) -> tuple[wire.ModelOnDisk, ...]:
        return self._ask("GET", wire.MODELS, wire.ModelList).models

    def set_concurrency(self, concurrency: int) -> None:
        order = wire.ConcurrencyRequest(concurrency=concurrency)
        self._ask("POST", wire.CONCURRENCY, wire.ConcurrencyRequest, order)

    def set_keep_awake(self, keep_awake: wire.KeepAwake) -> None:
        order = wire.KeepAwakeRequest(keep_awake=keep_awake)
        self._ask("POST", wire.KEEP_AWAKE, wire.KeepAwakeRequest, order)

    def aliases(self) -> tuple[wire.Alias, ...]:
        return self._ask("GET", wire.ALIASES, wire.AliasList).aliases

    def set_aliases(self, aliases: tuple[wire.Alias, ...]) -> None:
        self._ask("PUT", wire.ALIASES, wire.AliasList, wire.AliasList(aliases=aliases))

    def heartbeats(self) -> wire.HeartbeatSettings:
        return self._ask("GET", wire.HEARTBEATS, wire.HeartbeatSettings)

    def set_heartbeat(self, dialect: str, mode: str) -> None:
        self._ask("PUT", wire.HEARTBEATS, wire.HeartbeatSettings, wire.HeartbeatModes(modes={dialect: mode}))

    def prices(self) -> wire.PriceList:
        return self._ask("GET", wire.PRICES, wire.PriceList)

    def set_prices(self, prices: wire.PriceList) -> None:
        self._ask("PUT", wire.PRICES, wire.PriceList, prices)

    def request_choices(self) -> wire.RequestChoices:
        return self._ask("GET", wire.REQUEST_CHOICES, wire.RequestChoices)

    def login_link(self, *, valid_s: float) -> wire.LoginLink:
        return self._ask("POST", wire.LOGIN_LINKS, wire.LoginLink, wire.NewLoginLink(valid_s=valid_s))

    def export(self, query: str) -> Iterator[bytes]:
        """Raises as the others do, also in the middle: then what came before is not the whole."""
        path = f"{wire.REQUEST_EXPORT}?{query}"
        try:
            for piece in pieces(
                self._control.port, path, secret=self._secret, timeout_s=TIMEOUT_S, is_ours=self._is_there
            ):
                if piece.status >= 400:
                    raise _refusal(piece.status, piece.body)
                yield piece.body
        except (OSError, http.client.HTTPException) as error:
            raise self._silence(path) from error

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        body: msgspec.Struct | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """Raises NotRunning, NotAnswering, and with control's sentence UsageWrong or OrderRefused."""
        try:
            encoded = b"{}" if body is None else msgspec.json.encode(body)
        except UnicodeEncodeError as error:
            raise UsageWrong("An argument is not text in UTF-8.") from error
        answer = ask(
            self._control.port,
            path,
            method=method,
            body=None if method == "GET" else encoded,
            secret=self._secret,
            timeout_s=timeout_s,
            is_ours=self._is_there,
        )
        if answer is None:
            raise self._silence(path)
        if answer.status >= 400:
            raise _refusal(answer.status, answer.body)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            raise OrderRefused(f"Control answers in a form that is not understood ({error}); is it older?") from error

    def _is_there(self) -> bool:
        return self._listener is not None and self._listener.is_open()

    def _silence(self, path: str) -> NotRunning | NotAnswering:
        if live_process(self._control) is None:
            return NotRunning()
        return NotAnswering(f"pid {self._control.pid} on port {self._control.port} said nothing to {path}")


def _refusal(status: int, body: bytes) -> UsageWrong | OrderRefused:
    """What is wrong in itself is wrong usage, whoever noticed it; all else depends on how things stand."""
    return UsageWrong(_sentence(body)) if status == _BAD_REQUEST else OrderRefused(_sentence(body))


def _sentence(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=wire.AdminError).message
    except msgspec.DecodeError:
        return "control refused, and did not say why."
