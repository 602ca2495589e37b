"""The SDKs `openai` and `anthropic`: what they read from the environment, and what only a program can say.

They have no config file.
"""

from typing import Final

from control.connections.connection import LONG_WAIT_MS, Client, Connection

LONG_WAIT_S: Final = LONG_WAIT_MS // 1000
NOTES: Final = (
    'Any program: model="default" is whatever is loaded.',
    "Streams: their limit of 600 s is between two bytes, and heartbeats are bytes; nothing to set.",
    f"Whole answers send no byte before the end: give the client timeout={LONG_WAIT_S} to wait through a long hold.",
)


def openai_environment(connection: Connection) -> dict[str, str]:
    return {"OPENAI_BASE_URL": connection.api_base, "OPENAI_API_KEY": connection.key}


def anthropic_environment(connection: Connection) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": connection.origin, "ANTHROPIC_API_KEY": connection.key}


OPENAI: Final = Client(name="openai", title="The openai SDK", file=None, environment=openai_environment, notes=NOTES)
ANTHROPIC: Final = Client(
    name="anthropic", title="The anthropic SDK", file=None, environment=anthropic_environment, notes=NOTES
)
