"""A conversation that the console's page *Try it* has with the model: a part of the door that `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only. Clients import `control.wire`.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from engine.wire import Frozen

# A pasted file of some ten thousand lines; a conversation of a person is far below it.
PLAYGROUND_LIMIT_BYTES: Final = 2 * 1024 * 1024


class PlaygroundMessage(Frozen, frozen=True, omit_defaults=False, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: str


class PlaygroundRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /playground: the conversation so far. What is None is as the model's folder says.

    Answered like a streaming /v1/chat/completions, with usage, by the loaded model or the one that is on its way; the
    header `x-request-id` is the request's id in the overview. A refusal before the stream begins is an AdminError; when
    the caller hangs up, the request is cancelled. In lists its key is `console`.
    """

    messages: Annotated[tuple[PlaygroundMessage, ...], Meta(min_length=1)]
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
