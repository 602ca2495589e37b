"""Files as an earlier Splash left them: made by its own migrations, with something in each table. Not a test."""

import sqlite3
from pathlib import Path

import msgspec
from alembic import command
from alembic.config import Config
from sqlalchemy import URL, create_engine

from control.metrics.database import MIGRATIONS
from control.wire import RequestRow

EARLIER = ("0001", "0002")
KEY_COLUMNS = "id, name, request_class, hint, sha256, created_at_s, revoked_at_s"


def make(path: Path, revision: str, rows: list[RequestRow]) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    engine = create_engine(URL.create("sqlite", database=str(path)))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            f"INSERT INTO keys ({KEY_COLUMNS}) VALUES (3, 'old', 'batch', 'sk-…abcd', x'00ff', 1.5, NULL)"
        )
        if revision != "0001":
            connection.execute("UPDATE keys SET tokens_per_day = 7")
        connection.execute("INSERT INTO settings VALUES ('concurrency', '3')")
        columns = [column[1] for column in connection.execute("PRAGMA table_info(requests)")]
        values = [[msgspec.structs.asdict(row)[column] for column in columns] for row in rows]
        connection.executemany(f"INSERT INTO requests VALUES ({', '.join('?' for _ in columns)})", values)
    connection.close()
