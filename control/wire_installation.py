"""Where this Splash keeps its things, and how much: a part of the door that `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only. Clients import `control.wire`.
"""

from engine.wire import Frozen


class StoredRows(Frozen, frozen=True, omit_defaults=False):
    """Request rows in splash.db; `oldest_at_s`: when the oldest began, None without any."""

    requests: int
    oldest_at_s: float | None


class Installation(Frozen, frozen=True, omit_defaults=False):
    """GET /installation. `rows` None: the database does not answer. `database_bytes`: what it takes on the disk now.

    `ports` by the name of their setting (SPLASH_API_PORT …). `lan_api`, `lan_console`: the addresses that other
    machines use, empty while they can't.
    """

    home: str
    database: str
    database_bytes: int
    logs: str
    logs_bytes: int
    disk_free_bytes: int | None
    rows: StoredRows | None
    host: str
    ports: dict[str, int]
    version: str
    python: str
    system: str
    lan_api: tuple[str, ...] = ()
    lan_console: tuple[str, ...] = ()
