"""One-time login links: minted for somebody who already holds the admin secret, redeemed once by the console.

It keeps hashes in memory only: a restart of control forgets them, and nothing is written down.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final

from control.wire import LoginLink

# More links than a person can have in flight; the oldest is forgotten first.
LINKS_LIMIT: Final = 32


class LoginLinks:
    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._expiry_by_hash: dict[bytes, float] = {}

    def mint(self, valid_s: float) -> LoginLink:
        """A new token. Mint it as the last step before it is shown: its time runs from now."""
        now = self._monotonic()
        self._forget_expired(now)
        while len(self._expiry_by_hash) >= LINKS_LIMIT:
            del self._expiry_by_hash[next(iter(self._expiry_by_hash))]
        token = secrets.token_urlsafe(32)
        self._expiry_by_hash[_hash(token)] = now + valid_s
        return LoginLink(token=token, expires_at_s=self._wall() + valid_s)

    def redeem(self, token: str) -> bool:
        """True once; False when unknown, used or expired."""
        # Looked up by hash, so that timing tells nothing about a token.
        expires_at = self._expiry_by_hash.pop(_hash(token), None)
        return expires_at is not None and self._monotonic() < expires_at

    def _forget_expired(self, now: float) -> None:
        self._expiry_by_hash = {each: expiry for each, expiry in self._expiry_by_hash.items() if expiry > now}


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
