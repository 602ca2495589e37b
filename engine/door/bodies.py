"""Decodes request bodies, and says in the client's terms what is wrong with one.

It checks types and presence only: `engine.door.checks` and `engine.text.prompts` check meaning.
"""

import re
from typing import TypeVar

import msgspec

from engine.errors import InvalidRequest

Body = TypeVar("Body", bound=msgspec.Struct)


def decode(body: bytes, kind: type[Body]) -> Body:
    """Raises InvalidRequest, naming the field where there is one."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON that can be read: {error}") from error


def _explained(complaint: str) -> InvalidRequest:
    """msgspec says: Expected `int`, got `str` - at `$.max_tokens`, or - at `key` in `$.a`, or names a missing field."""
    said, _, place = complaint.partition(" - at ")
    path = place.rpartition("`$")[2].strip("`").removeprefix(".")
    missing = re.search(r"missing required field `([^`]+)`", said)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
    return InvalidRequest(said, param=path or None)
