"""What was left out of a request, mostly because nobody here knows its type: one line in the log says so, by type.

It decides nothing: what a model cannot go on without is refused where it is found.
"""

import logging
import re
from typing import Final

logger = logging.getLogger(__name__)

# A client has a handful of them; a request made of nothing else shall not fill the log.
KINDS_LIMIT: Final = 20
# A second tool with the name of another: the model could not tell them apart, so the first is the one.
SAME_NAME: Final = "same_name"
# What stands where a type should be may be anything, a secret too.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")


class Skipped:
    """Of one request."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()

    def add(self, what: str, kind: str) -> None:
        if len(self.kinds) < KINDS_LIMIT:
            self.kinds.add(f"{what}:{kind if _PLAIN.fullmatch(kind) else '?'}")

    def log(self, request_id: str) -> None:
        if self.kinds:
            logger.info("left out of the request id=%s kinds=%s", request_id, ",".join(sorted(self.kinds)))
