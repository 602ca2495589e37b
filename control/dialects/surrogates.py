"""Half of a surrogate pair, escaped in JSON: no text, though some languages write it, where a text was cut in two.

It decodes nothing, and touches no other escape.
"""

import re
from typing import Final

# A backslash that is escaped comes first, so that what follows it is not taken for an escape.
_ESCAPE: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_REPLACEMENT: Final = rb"\ufffd"


def without_halves(json_text: bytes) -> bytes:
    """Each as U+FFFD, which is what a client gets that cuts its texts at whole characters."""
    return _ESCAPE.sub(lambda escape: _REPLACEMENT if escape["half"] else escape[0], json_text)
