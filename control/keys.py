"""The key ring: API keys are created, checked, changed and revoked; a key is seen once and stored as SHA-256.

It does not read HTTP headers, nor enforce a limit (`quotas` does), and checking a key never touches the database.
"""

import hashlib
import hmac
import secrets
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import UNSET
from sqlalchemy import Connection, CursorResult, Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from control.admin.errors import KeyNameInvalid, KeyNameTaken, UnknownKey
from control.metrics.tables import keys
from control.metrics.writer import Writer
from control.wire import CreatedKey, KeyChange, KeyLimits, KeyView
from engine.wire import RequestClass

KEY_PREFIX: Final = "sk-splash-"
NAME_LIMIT: Final = 64
NO_LIMITS: Final = KeyLimits()
# Columns of the table, too.
LIMITS: Final = KeyLimits.__struct_fields__


@dataclass(frozen=True, slots=True)
class Key:
    """An active key, as a request carries it along: who asks, in which class, and within which limits."""

    id: int
    name: str
    request_class: RequestClass
    limits: KeyLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What is kept of a key: its digest, and what may be shown."""

    sha256: bytes
    view: KeyView


class KeyRing:
    """Made by `load_keys`. Its state is changed on the event loop only, after the database has it."""

    def __init__(self, stored: list[StoredKey], writer: Writer, *, wall: Callable[[], float] = time.time) -> None:
        self._stored = stored
        self._writer = writer
        self._wall = wall

    def verify(self, token: bytes) -> Key | None:
        """The active key whose text is `token`. Constant time over all keys: digests compared, no early exit."""
        digest = hashlib.sha256(token).digest()
        found: KeyView | None = None
        for stored in self._stored:
            is_match = hmac.compare_digest(stored.sha256, digest)
            if is_match and stored.view.revoked_at_s is None:
                found = stored.view
        if found is None:
            return None
        return Key(id=found.id, name=found.name, request_class=found.request_class, limits=found.limits)

    def list(self) -> tuple[KeyView, ...]:
        """All of them, the revoked ones too, oldest first."""
        return tuple(stored.view for stored in self._stored)

    async def create(
        self, name: str, request_class: RequestClass = "interactive", limits: KeyLimits = NO_LIMITS
    ) -> CreatedKey:
        """A new key, on disk before it is answered. Raises KeyNameInvalid, KeyNameTaken."""
        name = _valid_name(name)
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        digest = hashlib.sha256(key.encode()).digest()
        hint = f"{KEY_PREFIX}…{key[-4:]}"
        created_at_s = self._wall()
        statement = insert(keys).values(
            name=name,
            request_class=request_class,
            hint=hint,
            sha256=digest,
            created_at_s=created_at_s,
            **msgspec.structs.asdict(limits),
        )
        try:
            key_id = await self._writer.write(lambda connection: _inserted_id(connection.execute(statement)))
        except IntegrityError as error:
            # The database is the judge: two requests for one name may be on their way at once.
            raise KeyNameTaken(name) from error
        view = KeyView(
            id=key_id,
            name=name,
            request_class=request_class,
            hint=hint,
            created_at_s=created_at_s,
            limits=limits,
        )
        self._stored.append(StoredKey(sha256=digest, view=view))
        return CreatedKey(key=key, view=view)

    async def revoke(self, key_id: int) -> KeyView:
        """From now on the key is refused; requests that run go on. Harmless when repeated. Raises UnknownKey."""
        stored = self._find(key_id)
        if stored.view.revoked_at_s is not None:
            return stored.view
        return await self._change(key_id, revoked_at_s=self._wall())

    async def change(self, key_id: int, change: KeyChange) -> KeyView:
        """Its class and limits, from the next request on. Harmless for a revoked key. Raises UnknownKey."""
        self._find(key_id)
        fields = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET}
        return await self._change(key_id, **fields) if fields else self._find(key_id).view

    async def _change(self, key_id: int, **columns: Any) -> KeyView:
        """The columns of a key that is there, on disk and then here."""
        statement = update(keys).where(keys.c.id == key_id).values(**columns)
        await self._writer.write(lambda connection: connection.execute(statement))
        # Found only now: another change of the same key may have come between.
        stored = self._find(key_id)
        view = _changed(stored.view, columns)
        self._stored[self._stored.index(stored)] = StoredKey(sha256=stored.sha256, view=view)
        return view

    def refill(self, connection: Connection) -> None:
        """Into a database that took the place of a lost one: what a key is here counts, whatever is there."""
        for stored in tuple(self._stored):
            connection.execute(insert(keys).prefix_with("OR REPLACE").values(_columns(stored)))

    def _find(self, key_id: int) -> StoredKey:
        for stored in self._stored:
            if stored.view.id == key_id:
                return stored
        raise UnknownKey(key_id)


def load_keys(engine: Engine, writer: Writer) -> KeyRing:
    """Once, at start, before the event loop serves anybody: it blocks."""
    with engine.begin() as connection:
        rows = connection.execute(select(keys).order_by(keys.c.id)).mappings().all()
    ring = KeyRing([_stored_key(dict(row)) for row in rows], writer)
    writer.refill_with(ring.refill)
    return ring


def _stored_key(row: dict[str, Any]) -> StoredKey:
    limits = KeyLimits(**{name: row.pop(name) for name in LIMITS})
    return StoredKey(sha256=row.pop("sha256"), view=KeyView(**row, limits=limits))


def _columns(stored: StoredKey) -> dict[str, Any]:
    view = msgspec.structs.asdict(stored.view)
    del view["limits"], view["today"]
    return {**view, **msgspec.structs.asdict(stored.view.limits), "sha256": stored.sha256}


def _changed(view: KeyView, columns: dict[str, Any]) -> KeyView:
    limits = {name: value for name, value in columns.items() if name in LIMITS}
    others = {name: value for name, value in columns.items() if name not in LIMITS}
    return msgspec.structs.replace(view, **others, limits=msgspec.structs.replace(view.limits, **limits))


def _inserted_id(result: CursorResult[Any]) -> int:
    return int(result.lastrowid)


def _valid_name(name: str) -> str:
    """As it is stored: NFC, without spaces around it. Raises KeyNameInvalid."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name:
        raise KeyNameInvalid("A key needs a name.")
    if len(name) > NAME_LIMIT:
        raise KeyNameInvalid(f"The name of a key has at most {NAME_LIMIT} characters; this one has {len(name)}.")
    if not name.isprintable():
        raise KeyNameInvalid("The name of a key cannot hold control characters.")
    return name
