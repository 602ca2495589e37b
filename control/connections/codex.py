"""Codex: a provider of its own in config.toml, and that it is used. Comments and order of the file are kept.

Measured with 0.171.0. Codex has no variables for any of this.
"""

import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from control.connections.connection import (
    LONG_WAIT_MS,
    Client,
    ConfigFile,
    ConfigInvalid,
    Connection,
    no_environment,
)

# The gateway's pattern `codex-*` answers it with whatever is loaded, so that it outlives a switch of models.
MODEL: Final = "codex-splash"
PROVIDER: Final = "splash"
PROVIDERS: Final = "model_providers"
KEY_FIELD: Final = "experimental_bearer_token"


def path(variables: Mapping[str, str], home: Path) -> Path:
    folder = variables.get("CODEX_HOME")
    return (Path(folder) if folder else home / ".codex") / "config.toml"


def merged(text: str, connection: Connection) -> str:
    document = _parsed(text)
    _merge(document, connection)
    changed = tomlkit.dumps(document)
    _check(changed, text, connection)
    return changed


def key_in(text: str) -> str | None:
    providers = _table(_parsed(text), PROVIDERS)
    key = _table(providers, PROVIDER).get(KEY_FIELD)
    return str(key) if isinstance(key, str) else None


def _merge(document: MutableMapping[str, Any], connection: Connection) -> None:
    document["model"] = MODEL
    document["model_provider"] = PROVIDER
    if connection.context_tokens is not None:
        document["model_context_window"] = connection.context_tokens
    if PROVIDERS not in document:
        document[PROVIDERS] = tomlkit.table(is_super_table=True)
    providers = _table(document, PROVIDERS)
    if PROVIDER not in providers:
        providers[PROVIDER] = tomlkit.inline_table() if isinstance(providers, InlineTable) else tomlkit.table()
    _table(providers, PROVIDER).update(
        {
            "name": "Splash",
            "base_url": connection.api_base,
            "wire_api": "responses",
            KEY_FIELD: connection.key,
            "stream_idle_timeout_ms": LONG_WAIT_MS,
        }
    )


def _check(changed: str, before: str, connection: Connection) -> None:
    """tomlkit puts a new key where it does not belong in a few rare files: then the file is left to its owner."""
    wanted = tomllib.loads(before)
    _merge(wanted, connection)
    try:
        is_right = tomllib.loads(changed) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise ConfigInvalid("is laid out in a way that can't be merged; add what `splash connect codex` prints by hand")


def _parsed(text: str) -> tomlkit.TOMLDocument:
    try:
        # tomlkit accepts a little more than the language does.
        tomllib.loads(text)
        return tomlkit.parse(text)
    except (TOMLKitError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigInvalid("is not valid TOML") from error


def _table(parent: MutableMapping[str, Any], name: str) -> MutableMapping[str, Any]:
    """An empty one where there is none. Raises ConfigInvalid when the name stands for something else."""
    table = parent.get(name, {})
    if not isinstance(table, MutableMapping):
        raise ConfigInvalid(f'has a "{name}" that is not a table')
    return table


CODEX: Final = Client(
    name="codex",
    title="Codex",
    file=ConfigFile(path=path, merged=merged, key_in=key_in),
    environment=no_environment,
)
