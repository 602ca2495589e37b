"""`splash connect CLIENT`: a key of its own for a client, and exactly what that client needs to use it.

It prints that, or with `--write` merges it into the client's config. What a client needs is in `control.connections`.
"""

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
import typer

from control.cli.admin_client import AdminClient
from control.cli.places import AsJson, running_control, this_place
from control.cli.tables import printable
from control.cli.words import one_of
from control.command_errors import UsageWrong
from control.connections.clients import CLIENTS
from control.connections.connection import (
    Client,
    ConfigFile,
    ConfigInvalid,
    Connection,
    context_tokens_of,
    instructions,
)
from control.connections.merging import ConfigUnusable, Written, read_config, write_config
from control.loopback import ask
from control.wire import CreatedKey, KeyView, Overview

KEY_CHECK_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Order:
    """`key_name` None: the client's name, and a key that its config holds already is kept."""

    client: Client
    writes: bool = False
    key_name: str | None = None
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Connected:
    """`is_demo`: of the loaded model.

    `key_name` None: the key that the config held was kept. `written` None: nothing was to be written.

    `held_name`: what the key that the config held is called, as long as it is good. `revoked_name`: the key that is no
    longer. Both None where there is none.
    """

    client: Client
    connection: Connection
    path: Path | None
    is_demo: bool
    key_name: str | None
    written: Written | None = None
    held_name: str | None = None
    revoked_name: str | None = None


def connect(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help=f"Who is to use this Splash: {', '.join(CLIENTS)}.")],
    write: Annotated[bool, typer.Option("--write", help="Merge it into the client's own config.")] = False,
    key: Annotated[str | None, typer.Option("--key", metavar="NAME", help="What its key is called.")] = None,
    replace_key: Annotated[bool, typer.Option("--replace", help="Revoke the key that has that name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a key for a client, and print what it needs, or write it.

    `--write` merges it into the client's own config, and keeps a copy of that.
    """
    order = Order(CLIENTS[one_of(client, tuple(CLIENTS), "a client")], write, key, replace_key)
    if key is not None and not key.strip():
        raise UsageWrong("--key is empty; it takes the name that the key gets.")
    done = connected(running_control(this_place()), order, Path.home())
    if as_json:
        typer.echo(msgspec.json.encode(report(done)).decode())
        return
    if done.written is None:
        typer.echo(instructions(done.client, done.connection))
    typer.echo("\n".join(remarks(done)), err=True)


def connected(admin: AdminClient, order: Order, home: Path) -> Connected:
    """Carry it out. Raises UsageWrong, ConfigUnusable before anything was changed, and what the admin API refuses."""
    file, client = order.client.file, order.client
    if file is None and order.writes:
        raise UsageWrong(f"{client.title} has no config file; use what `splash connect {client.name}` prints.")
    path = None if file is None else file.path(os.environ, home)
    overview = admin.overview()
    connection, model = connection_of(overview, key=""), overview.engine.model
    is_demo = model is not None and model.is_demo
    if file is None or path is None or not order.writes:
        revoked = _revoked_for(admin, order)
        made = minted(admin, order)
        connection = replace(connection, key=made.key)
        return Connected(client, connection, path, is_demo, made.view.name, revoked_name=revoked)
    before = read_config(path)
    # Before a key is made for it: a config that can't take one is left alone, and so are the keys.
    kept = _checked(file, path, before, connection)
    if kept is not None and order.key_name is None and not order.replaces and _is_accepted(connection, kept):
        connection = replace(connection, key=kept)
        written = write_config(path, file.merged(before, connection), before=before)
        return Connected(client, connection, path, is_demo, None, written, held_name=_name_of(admin.keys(), kept))
    revoked = _revoked_for(admin, order)
    held = None if kept is None else _name_of(admin.keys(), kept)
    made = minted(admin, order)
    connection = replace(connection, key=made.key)
    try:
        written = write_config(path, file.merged(before, connection), before=before)
    except ConfigUnusable:
        # Nobody has seen it.
        admin.revoke_key(made.view.id)
        raise
    return Connected(client, connection, path, is_demo, made.view.name, written, held, revoked)


def connection_of(overview: Overview, *, key: str) -> Connection:
    return Connection(api_base=overview.api_base, key=key, context_tokens=context_tokens_of(overview.engine))


def minted(admin: AdminClient, order: Order) -> CreatedKey:
    """A new key. A taken name gets a number."""
    wanted = _wanted_name(order)
    views = admin.keys()
    taken = {view.name for view in views if view.revoked_at_s is None}
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted} {number}", number + 1
    return admin.new_key(name, "interactive")


def remarks(done: Connected) -> list[str]:
    """What it did, and what is left to do, each in a sentence."""
    client, written = done.client, done.written
    said = []
    if written is not None:
        said.append(f"{written.path} {'has' if written.is_changed else 'had'} all that {client.title} needs.")
        if written.backup is not None:
            said.append(f"As it was before, it is kept as {written.backup}.")
    elif client.file is not None:
        said.append(f"For {done.path}; {_write_hint(done)}.")
    said += _key_remarks(done)
    if client.file is not None and done.connection.context_tokens is None:
        again = f"`splash connect {client.name}{' --write' if written is not None else ''}`"
        said.append(f"No model is loaded, so how long its context is was left out; run {again} again when one is.")
    return [*said, *client.notes, *warnings(done)]


def warnings(done: Connected) -> list[str]:
    """What will go wrong, though everything is set up."""
    title, context, needed = done.client.title, done.connection.context_tokens, done.client.first_prompt_tokens
    said = []
    if context is not None and needed is not None and context < needed + (done.connection.output_tokens or 0):
        said.append(
            f"{title}'s first prompt alone is about {needed:,} tokens, and the loaded model takes {context:,}, prompt "
            "and answer together: load it with a larger --context, or another model."
        )
    if done.is_demo:
        said.append(
            f"The demo is loaded: it shows that {title} connects, and writes nonsense that never stops. Load a real "
            "model to work with."
        )
    return said


def report(done: Connected) -> dict[str, Any]:
    """What `--json` prints."""
    written, file = done.written, done.client.file
    return {
        "client": done.client.name,
        "key": done.connection.key,
        "key_name": done.key_name,
        "revoked": done.revoked_name,
        "api": done.connection.api_base,
        "context": done.connection.context_tokens,
        "warnings": warnings(done),
        "environment": done.client.environment(done.connection),
        "file": None if done.path is None else str(done.path),
        "content": None if file is None else file.merged("", done.connection),
        "written": written is not None,
        "changed": written is not None and written.is_changed,
        "backup": None if written is None or written.backup is None else str(written.backup),
    }


def _checked(file: ConfigFile, path: Path, before: str, connection: Connection) -> str | None:
    """The key that is in the config. Raises ConfigUnusable when the client could not read it, or nothing fits in."""
    try:
        file.merged(before, connection)
        return file.key_in(before)
    except ConfigInvalid as error:
        raise ConfigUnusable(f"{path} {error}; nothing was changed.") from error


def _wanted_name(order: Order) -> str:
    return (order.key_name or order.client.name).strip()


def _revoked_for(admin: AdminClient, order: Order) -> str | None:
    """The name of the key that has made way; None when none had to."""
    if order.replaces:
        views = admin.keys()
        for view in views:
            if view.name == _wanted_name(order) and view.revoked_at_s is None:
                return admin.revoke_key(view.id).name
    return None


def _name_of(views: tuple[KeyView, ...], key: str) -> str | None:
    """What an active key is called, by the end that its hint shows; None when that fits none, or several."""
    names = [view.name for view in views if view.revoked_at_s is None and _fits(view.hint, key)]
    return names[0] if len(names) == 1 else None


def _fits(hint: str, key: str) -> bool:
    beginning, is_hint, end = hint.partition("…")
    return bool(is_hint) and key.startswith(beginning) and key.endswith(end)


def _write_hint(done: Connected) -> str:
    """The key is seen this once, so whoever has it written gets another: then this one must not be left behind."""
    assert done.key_name is not None
    named = "" if done.key_name == done.client.name else f" --key {shlex.quote(done.key_name)}"
    command = f"splash connect {done.client.name} --write --replace{named}"
    return f"`{command}` merges it in with a new key, revokes this one, and keeps the rest of the file"


def _key_remarks(done: Connected) -> list[str]:
    """Which key was made, kept, revoked, or is left."""
    held = None if done.held_name is None else printable(done.held_name)
    if done.key_name is None:
        return ["The key in it is kept." if held is None else f'The key in it, "{held}", is kept.']
    said = []
    if done.revoked_name is not None:
        said.append(f'The key that was called "{printable(done.revoked_name)}" is revoked.')
    said.append(f'The key is new, and called "{printable(done.key_name)}".')
    if held is not None:
        end = f"`splash keys revoke {shlex.quote(held)}` ends it"
        said.append(f'The key that was in the file before, "{held}", stays good; {end}.')
    return said


def _is_accepted(connection: Connection, key: str) -> bool:
    """The gateway knows the key, and it is not revoked."""
    address = urlsplit(connection.api_base)
    if not key or not key.isascii() or not key.isprintable() or address.port is None or address.hostname is None:
        return False
    path = f"{address.path}/models"
    answer = ask(address.port, path, secret=key, timeout_s=KEY_CHECK_TIMEOUT_S, host=address.hostname)
    return answer is not None and answer.status == 200
