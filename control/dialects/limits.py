"""How much of anything one request may hold, in every dialect.

It holds no limit of the model's (the engine knows those), nor of how deep a value may be (`nesting`).
"""

from typing import Annotated, Final

import msgspec

from control.errors import InvalidRequest

# Messages, and the parts, blocks and calls in them. Each costs a microsecond or two; a session that fills a million
# tokens has some thousands.
ITEMS_LIMIT: Final = 50_000
# OpenAI's own limit is 128; a client with many MCP servers has some hundreds.
TOOLS_LIMIT: Final = 1000
# OpenAI's own limit is 4; other servers allow more, and their clients use it.
STOPS_LIMIT: Final = 16
# They are looked for behind every token; markers and whole lines are shorter.
STOP_CHARS_LIMIT: Final = 1024
# It is kept with the request, and shown; the path of a folder may be a name.
MODEL_NAME_LIMIT: Final = 4096
ALTERNATIVES_LIMIT: Final = 20
# No vocabulary is that large.
TOP_K_LIMIT: Final = 2**31 - 1
# What stands for "as many as there can be" where a client says more: no context is that long.
TOKENS_LIMIT: Final = 2**31 - 1

ModelName = Annotated[str, msgspec.Meta(max_length=MODEL_NAME_LIMIT)]
Alternatives = Annotated[int, msgspec.Meta(ge=0, le=ALTERNATIVES_LIMIT)]
TokenLimit = Annotated[int, msgspec.Meta(ge=-1)]
"""-1 is how clients of other local servers say no limit (`sampling.limit_of`)."""


def check_number(number: int, limit: int, things: str, field: str) -> None:
    """Raises InvalidRequest."""
    if number > limit:
        raise InvalidRequest(f"At most {limit} {things} are supported.", param=field)
