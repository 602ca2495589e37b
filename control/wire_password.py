"""A login to the console by its password: a part of control's door, which `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only.
"""

from engine.wire import Frozen


class PasswordLogin(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /login/password. `address`: the IP address of the browser, as the console's own socket tells it."""

    password: str
    address: str
