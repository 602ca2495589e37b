"""The clients that `splash connect` knows, by the name that a person types."""

from typing import Final

from control.connections.claude import CLAUDE
from control.connections.codex import CODEX
from control.connections.connection import Client
from control.connections.curl import CURL
from control.connections.opencode import OPENCODE
from control.connections.sdk import ANTHROPIC, OPENAI

CLIENTS: Final[dict[str, Client]] = {
    client.name: client for client in (CLAUDE, CODEX, OPENCODE, OPENAI, ANTHROPIC, CURL)
}
