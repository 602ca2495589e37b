"""What each client must be told to use this Splash, as the admin API answers it: a part of the door.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only. Clients import `control.wire`.
"""

from typing import Final

from engine.wire import Frozen

# Stands where the key belongs. A shell needs no quotes around it, so that a key in its place needs none, either.
KEY_PLACEHOLDER: Final = "SPLASH-KEY-GOES-HERE"


class ClientConnection(Frozen, frozen=True, omit_defaults=False):
    """`text` is what `splash connect NAME` prints, with KEY_PLACEHOLDER where it prints the key.

    `file`: the client's own config, into which `splash connect NAME --write` merges it; None: it has none, or nothing
    to write. `is_file_content`: `text` is the content of that file; else it is for a shell. `lacks_context`: no model
    is loaded, so how long its context is was left out.
    """

    name: str
    title: str
    text: str
    file: str | None
    is_file_content: bool
    lacks_context: bool


class ConnectionList(Frozen, frozen=True, omit_defaults=False):
    """GET /connections. No key is made for it, and none is in it."""

    api_base: str
    clients: tuple[ClientConnection, ...]
