"""What the engine's refusals and failures are to a client of the API.

It asks nothing and decides nothing else: the relay does.
"""

from collections.abc import Callable

from control.errors import ApiError, ContextTooLong, EngineGone, InvalidRequest, RequestFailed
from engine import wire


def translated(answer: wire.ErrorAnswer, field: Callable[[str], str | None]) -> ApiError | EngineGone:
    """Of an error answer. EngineGone: it did not look at the request, which can run as soon as an engine is ready.

    `field` is the dialect's: the client's name of a field of the engine's door.
    """
    match answer.code:
        case "not_ready" | "stopping":
            return EngineGone(answer.message, was_reached=False)
        case "context_length_exceeded":
            return ContextTooLong(
                prompt_tokens=answer.prompt_tokens or 0,
                maximum_context_tokens=answer.maximum_context_tokens or 0,
                param=field("prompt"),
            )
        case "invalid_request" | "not_implemented":
            return InvalidRequest(answer.message, param=None if answer.param is None else field(answer.param))
        case _:
            return RequestFailed(answer.message, engine_code=answer.code)


def failure(event: wire.Failed) -> ApiError:
    """Of the event that ends a stream."""
    return RequestFailed(event.message, engine_code=event.code)
