"""Settings that several change at once: none is lost, and what is in force is what the next start finds."""

import asyncio
import sqlite3

import httpx
import msgspec
import pytest
from sqlalchemy.exc import OperationalError

from control import wire
from control.heartbeats import HEARTBEATS_SETTING, Heartbeats
from tests.unit.control_lifecycle.test_admin_api import api  # noqa: F401  # a fixture


def on_disk(api, name):  # noqa: F811
    with sqlite3.connect(api.database) as connection:
        [(value,)] = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchall()
    return msgspec.json.decode(value)


async def test_heartbeats_of_several_dialects_that_are_changed_at_once_are_all_kept(api):  # noqa: F811
    choices = msgspec.json.decode((await api.client.get(wire.HEARTBEATS)).content, type=wire.HeartbeatSettings).choices
    wanted = {dialect: modes[-1] for dialect, modes in choices.items()}

    for _ in range(5):
        await asyncio.gather(*(change_heartbeat(api, dialect, mode) for dialect, mode in wanted.items()))

        assert on_disk(api, HEARTBEATS_SETTING) == wanted
        wanted = {
            dialect: choices[dialect][0 if mode == choices[dialect][-1] else -1] for dialect, mode in wanted.items()
        }


async def test_what_is_in_force_after_many_changes_at_once_is_what_is_on_disk(api):  # noqa: F811
    await asyncio.gather(
        *(api.client.post(wire.CONCURRENCY, json={"concurrency": number % 4 + 1}) for number in range(20)),
        *(api.client.put(wire.ALIASES, json={"aliases": [{"name": f"a{number}"}]}) for number in range(20)),
        *(change_heartbeat(api, "messages", mode) for mode in ("ping", "comment", "typed") * 5),
    )

    assert on_disk(api, "concurrency") == api.scene.line.concurrency
    assert [alias["name"] for alias in on_disk(api, "aliases")] == [alias.name for alias in api.aliases.list()]
    assert on_disk(api, HEARTBEATS_SETTING)["messages"] == Heartbeats(api.settings).mode_of("messages")


async def test_limits_of_one_key_that_are_changed_at_once_are_all_kept(api):  # noqa: F811
    await api.keys.create("laptop")

    await asyncio.gather(
        *(api.client.patch(wire.KEY.format(id=1), json={"max_in_flight": number}) for number in range(1, 20)),
        *(api.client.patch(wire.KEY.format(id=1), json={"tokens_per_day": number}) for number in range(1, 20)),
        *(api.client.patch(wire.KEY.format(id=1), json={"requests_per_day": number}) for number in range(1, 20)),
    )

    with sqlite3.connect(api.database) as connection:
        kept = connection.execute("SELECT max_in_flight, requests_per_day, tokens_per_day FROM keys").fetchone()
    [view] = api.keys.list()
    assert kept == msgspec.structs.astuple(view.limits)
    assert None not in kept


async def test_one_change_that_fails_takes_no_other_with_it(api, monkeypatch):  # noqa: F811
    write = api.writer.write
    fails = iter([False, True, False])

    async def at_times(job):
        if next(fails):
            raise OperationalError("INSERT", None, sqlite3.OperationalError("disk is full"))
        return await write(job)

    monkeypatch.setattr(api.writer, "write", at_times)

    answers = await asyncio.gather(
        change_heartbeat(api, "chat", "comment"),
        change_heartbeat(api, "messages", "ping"),
        change_heartbeat(api, "responses", "comment"),
    )

    assert sorted(answer.status_code for answer in answers) == [200, 200, 503]
    kept = msgspec.json.decode((await api.client.get(wire.HEARTBEATS)).content, type=wire.HeartbeatSettings).modes
    assert on_disk(api, HEARTBEATS_SETTING) == kept


async def test_a_change_whose_caller_has_gone_is_in_force_when_it_is_on_disk(api):  # noqa: F811
    changing = asyncio.create_task(
        api.settings.change("concurrency", lambda: 3, in_force=api.scene.line.set_concurrency)
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    changing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await changing
    await api.settings.change("other", lambda: 1, in_force=lambda _: None)

    assert (on_disk(api, "concurrency"), api.scene.line.concurrency) == (3, 3)


async def change_heartbeat(api, dialect: str, mode: str) -> httpx.Response:  # noqa: F811
    return await api.client.put(wire.HEARTBEATS, json={"modes": {dialect: mode}})
