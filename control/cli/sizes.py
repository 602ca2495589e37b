"""Sizes as people write and read them: `12GiB` to bytes, and bytes to `12.0 GiB`. Units are powers of 1024.

It knows nothing of what the bytes are for.
"""

import re
from typing import Final

_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,16}(\.[0-9]{1,16})?)\s*(?P<unit>[kmgt]?)i?b?", re.IGNORECASE)


def bytes_of(text: str) -> int | None:
    """As `python -m engine plan --budget` reads it. None for what is no size."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(float(match["number"]) * _UNITS[match["unit"].lower()])


def size_text(num_bytes: int) -> str:
    """As `python -m engine models` writes it."""
    if num_bytes >= 2**30:
        return f"{num_bytes / 2**30:,.1f} GiB"
    return f"{num_bytes / 2**20:,.0f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:,.0f} KiB"
