"""What the scheduler can tell the worker to do next.

It holds no behaviour: `scheduler.py` chooses, `worker.py` does.
"""

from dataclasses import dataclass

from engine.errors import OutOfMemory
from engine.request import Request


@dataclass(frozen=True, slots=True)
class Start:
    """The request was admitted: restore what the cache has of it."""

    request: Request


@dataclass(frozen=True, slots=True)
class Prefill:
    """Append the next `num_tokens` tokens of the input to the request's caches."""

    request: Request
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Join:
    """The input is done but for its last token: the request joins the decoding streams."""

    request: Request


@dataclass(frozen=True, slots=True)
class Decode:
    """One token for every decoding stream."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """The request is back in line: publish its state to the cache and free its memory."""

    request: Request


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request ends here for lack of memory."""

    request: Request
    error: OutOfMemory


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until a request arrives."""


Action = Start | Prefill | Join | Decode | Suspend | Refuse | Idle
