"""Connection help: for each client what to paste, with the key that was just made or a mark in its place.

It knows no client's config: control sends the blocks that `splash connect` prints.
"""

from dataclasses import dataclass
from typing import Final

from control.wire import KEY_PLACEHOLDER, ClientConnection, ConnectionList
from webui.text import Text

_NOTE_TEXT: Final[dict[str, str]] = {
    "claude": "connect.claude",
    "codex": "connect.codex",
    "opencode": "connect.opencode",
    "openai": "connect.openai",
    "anthropic": "connect.anthropic",
    "curl": "connect.curl",
}
# What is a product's name is the same everywhere.
_TITLE_TEXT: Final[dict[str, str]] = {"openai": "connect.openai_title", "anthropic": "connect.anthropic_title"}


@dataclass(frozen=True, slots=True)
class ConnectBlock:
    """`place`: where `text` belongs. `command` does it all, with a key of its own."""

    name: str
    title: str
    place: str
    text: str
    note: str
    command: str
    command_effect: str
    warning: str


def connect_blocks(connections: ConnectionList, text: Text, *, key: str | None) -> tuple[ConnectBlock, ...]:
    """`key` None: whoever pastes it puts one in."""
    return tuple(_block(client, text, key) for client in connections.clients)


def _block(client: ClientConnection, text: Text, key: str | None) -> ConnectBlock:
    writes = client.file is not None
    return ConnectBlock(
        name=client.name,
        title=text(_TITLE_TEXT[client.name]) if client.name in _TITLE_TEXT else client.title,
        place=_place(client, text),
        text=client.text.replace(KEY_PLACEHOLDER, key if key is not None else f"<{text('connect.a_key')}>"),
        note=text(_NOTE_TEXT[client.name]) if client.name in _NOTE_TEXT else "",
        command=f"splash connect {client.name}{' --write' if writes else ''}",
        command_effect=text("connect.writes", file=client.file) if writes else text("connect.prints"),
        warning=text("connect.no_context") if client.lacks_context else "",
    )


def _place(client: ClientConnection, text: Text) -> str:
    if client.is_file_content:
        return text("connect.into_file", file=client.file)
    return text("connect.into_shell")
