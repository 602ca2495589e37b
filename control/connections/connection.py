"""What a client must be told of this Splash, and the form in which each client module tells it.

It reads and writes no file (`control.connections.merging`) and mints no key (`control.cli.connect`).
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from control.wire import EngineView

# The longest that the gateway holds a request; heartbeats flow meanwhile, and no client may give up before.
LONG_WAIT_MS: Final = 24 * 60 * 60 * 1000
# What Claude Code asks for; a model with a short context needs most of it for its prompt.
OUTPUT_LIMIT_TOKENS: Final = 32_000
OUTPUT_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class Connection:
    """`api_base` ends with /v1. `context_tokens` is the loaded model's, None when none is loaded."""

    api_base: str
    key: str
    context_tokens: int | None = None

    @property
    def origin(self) -> str:
        """For clients that add /v1 themselves."""
        return self.api_base.removesuffix("/v1")

    @property
    def output_tokens(self) -> int | None:
        """The longest answer that a client should ask for."""
        if self.context_tokens is None:
            return None
        return min(OUTPUT_LIMIT_TOKENS, max(1, self.context_tokens // OUTPUT_SHARE))


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A client's own config file.

    `merged(text, connection)` is the file with what the client needs in it, everything else as it was; an empty text is
    a file that is not there. `key_in(text)` is the key that an earlier merge left, None without. Both raise
    ConfigInvalid when the client itself could not read the text.
    """

    path: Callable[[Mapping[str, str], Path], Path]
    merged: Callable[[str, Connection], str]
    key_in: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Client:
    """`environment`: what can be set in a shell instead, empty when that is not enough. `notes`: what can't be set.

    `command`: what is run as it is, for a client that has neither. `first_prompt_tokens`: about what it sends before
    the person has said anything; None where nobody has measured it.
    """

    name: str
    title: str
    file: ConfigFile | None
    environment: Callable[[Connection], dict[str, str]]
    notes: tuple[str, ...] = ()
    command: Callable[[Connection], str] | None = None
    first_prompt_tokens: int | None = None


class ConfigInvalid(Exception):
    """`str(error)` ends the sentence "FILE …", and holds nothing of the file's content."""


def instructions(client: Client, connection: Connection) -> str:
    """What a person copies: lines for a shell, or the content of the client's config file."""
    if client.command is not None:
        return client.command(connection)
    variables = client.environment(connection)
    if variables:
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    assert client.file is not None, "a client without variables and command has a file"
    return client.file.merged("", connection).rstrip("\n")


def context_tokens_of(engine: EngineView) -> int | None:
    """What the loaded model takes; None when none is loaded."""
    return None if engine.model is None else engine.model.maximum_context_tokens


def no_environment(_connection: Connection) -> dict[str, str]:
    return {}
