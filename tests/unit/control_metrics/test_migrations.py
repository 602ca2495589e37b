"""From every earlier schema to the newest: the same tables, nothing lost, and sums of it; wholly or not at all."""

import os
import sqlite3
import subprocess
import sys
import textwrap

import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, inspect, select

from control.errors import DatabaseUnusable
from control.keys import load_keys
from control.metrics import database as database_module
from control.metrics.database import MIGRATIONS, open_database
from control.metrics.recording import record
from control.metrics.settings import load_settings
from control.metrics.tables import SCHEMA_REVISION, metadata
from control.metrics.tables import requests as requests_table
from control.metrics.writer import Writer
from control.wire import KeyLimits, RequestRow
from tests.unit.control_gateway.test_metrics import NOON, row
from tests.unit.control_metrics import earlier_schemas
from tests.unit.control_metrics.histories import requests

SUMS = [name for name in metadata.tables if name.startswith(("hourly_", "daily_"))]
# What a row of an earlier schema can't say.
UNKNOWN = {"first_emission_tokens": 0, "drafted_tokens": 0, "accepted_tokens": 0, "largest_gap_ms": None}
ROWS = [
    row(1, queue_ms=20.0, ttft_ms=170.0, decode_ms=900.0, completion_tokens=10),
    row(2, outcome="rejected", queue_ms=3.0),
    row(3, outcome="cancelled", started_at_s=NOON + 3600, queue_ms=None, ttft_ms=None, key="phone"),
    row(4, outcome="failed", started_at_s=NOON - 90_000, model="large", completion_tokens=1, decode_ms=0.0),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "splash.db"


def sums_of(engine) -> dict[str, list[tuple]]:
    with engine.begin() as connection:
        return {
            name: sorted(tuple(each) for each in connection.execute(select(metadata.tables[name]))) for name in SUMS
        }


def sums_of_recorded(rows: list[RequestRow]) -> dict[str, list[tuple]]:
    """What the newest Splash would have summed up from them."""
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as connection:
        record(connection, rows)
    sums = sums_of(engine)
    engine.dispose()
    return sums


def schema_of(engine) -> dict[str, object]:
    tables = inspect(engine)
    return {
        name: (
            [(each["name"], str(each["type"]), each["nullable"], each["default"]) for each in tables.get_columns(name)],
            tables.get_pk_constraint(name)["constrained_columns"],
            sorted((each["name"], each["unique"], tuple(each["column_names"])) for each in tables.get_indexes(name)),
            sorted(tuple(each["column_names"]) for each in tables.get_unique_constraints(name)),
            "WITHOUT ROWID" in sql_of(engine, name),
            "AUTOINCREMENT" in sql_of(engine, name),
        )
        for name in tables.get_table_names()
        if name != "alembic_version"
    }


def sql_of(engine, name: str) -> str:
    with engine.connect() as connection:
        return connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).scalar_one()


def dump_of(path) -> list[str]:
    with sqlite3.connect(path) as connection:
        lines = list(connection.iterdump())
    connection.close()
    return lines


def test_every_migration_but_the_newest_is_an_earlier_schema_that_is_tested():
    scripts = ScriptDirectory(str(MIGRATIONS)).walk_revisions()

    assert {script.revision for script in scripts} == {*earlier_schemas.EARLIER, SCHEMA_REVISION}


@pytest.mark.parametrize("before", [*earlier_schemas.EARLIER, None])
def test_every_earlier_schema_becomes_exactly_the_tables(path, before):
    if before is None:
        path.touch()
    else:
        earlier_schemas.make(path, before, ROWS)
    fresh = create_engine("sqlite://")
    metadata.create_all(fresh)

    engine = open_database(path)
    with engine.begin() as connection:
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        differences = compare_metadata(MigrationContext.configure(connection), metadata)

    assert revision == SCHEMA_REVISION
    assert schema_of(engine) == schema_of(fresh)
    assert differences == []
    engine.dispose()
    fresh.dispose()


@pytest.mark.parametrize("before", earlier_schemas.EARLIER)
def test_an_earlier_schema_keeps_its_keys_settings_and_rows_and_has_their_sums(path, before):
    earlier_schemas.make(path, before, ROWS)

    engine = open_database(path)
    sums = sums_of(engine)
    with engine.begin() as connection:
        kept = [RequestRow(**each) for each in connection.execute(select(requests_table)).mappings()]
    writer = Writer(engine)
    [key] = load_keys(engine, writer).list()
    concurrency = load_settings(engine, writer).get("concurrency", int)
    writer.close()

    assert kept == ROWS
    assert sums == sums_of_recorded(ROWS)
    assert sums["daily_requests"] != []
    limits = KeyLimits(tokens_per_day=None if before == "0001" else 7)
    assert (key.id, key.name, key.request_class, key.limits) == (3, "old", "batch", limits)
    assert concurrency == 3


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(requests(), max_size=30, unique_by=lambda each: each.id))
def test_the_sums_of_a_migration_are_those_of_the_writer_whatever_the_rows(drawn, tmp_path_factory):
    path = tmp_path_factory.mktemp("earlier") / "splash.db"
    rows = [msgspec.structs.replace(each, **UNKNOWN) for each in drawn]
    earlier_schemas.make(path, "0002", rows)

    engine = open_database(path)

    assert sums_of(engine) == sums_of_recorded(rows)
    engine.dispose()


@pytest.mark.parametrize("before", earlier_schemas.EARLIER)
def test_a_migration_that_fails_at_its_end_leaves_the_file_as_it_was(path, before, monkeypatch):
    earlier_schemas.make(path, before, ROWS)
    was = dump_of(path)

    def upgraded_and_then_full(*_):
        command_upgrade(*_)
        raise sqlite3.OperationalError("database or disk is full")

    from alembic import command

    command_upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", upgraded_and_then_full)
    with pytest.raises(DatabaseUnusable, match="database or disk is full"):
        open_database(path)
    monkeypatch.undo()

    assert dump_of(path) == was
    engine = open_database(path)
    assert sums_of(engine) == sums_of_recorded(ROWS)
    engine.dispose()


def test_a_migration_that_is_killed_in_its_middle_leaves_the_file_as_it_was(path):
    earlier_schemas.make(path, "0001", ROWS)
    was = dump_of(path)
    program = textwrap.dedent(
        f"""
        import os, signal
        from pathlib import Path
        from alembic import op
        from control.metrics.database import open_database

        create_table = op.create_table
        def killed_at_the_last_table(name, *columns, **options):
            if name == "daily_times":
                os.kill(os.getpid(), signal.SIGKILL)
            return create_table(name, *columns, **options)
        op.create_table = killed_at_the_last_table
        open_database(Path({str(path)!r}))
        """
    )

    ended = subprocess.run([sys.executable, "-c", program], env=os.environ, capture_output=True, timeout=60)

    assert ended.returncode == -9
    assert dump_of(path) == was
    engine = open_database(path)
    assert sums_of(engine) == sums_of_recorded(ROWS)
    engine.dispose()


def test_a_database_of_a_newer_splash_is_refused_in_one_sentence_and_stays(path):
    engine = open_database(path)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()

    with pytest.raises(DatabaseUnusable, match=r"newer Splash \(revision 9999\)"):
        open_database(path)

    assert path.exists()


def test_a_file_that_was_refused_is_let_go(path, monkeypatch):
    path.write_bytes(b"no database" * 500)

    with pytest.raises(database_module.DatabaseUnusable):
        open_database(path)

    assert [each.name for each in path.parent.iterdir()] == ["splash.db"]
