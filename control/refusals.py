"""What the engine's refusals and failures are to a client of the API.

It asks nothing and decides nothing else: the relay does.
"""

from control.errors import ApiError, ContextTooLong, EngineGone, InvalidRequest, RequestFailed
from engine import wire


def translated(answer: wire.ErrorAnswer) -> ApiError | EngineGone:
    """Of an error answer. EngineGone: it did not look at the request, which can run as soon as an engine is ready."""
    match answer.code:
        case "not_ready" | "stopping":
            return EngineGone(answer.message, was_reached=False)
        case "context_length_exceeded":
            return ContextTooLong(
                prompt_tokens=answer.prompt_tokens or 0, maximum_context_tokens=answer.maximum_context_tokens or 0
            )
        case "invalid_request" | "not_implemented":
            return InvalidRequest(answer.message, param=_field(answer.param))
        case _:
            return RequestFailed(answer.message, engine_code=answer.code)


def failure(event: wire.Failed) -> ApiError:
    """Of the event that ends a stream."""
    return RequestFailed(event.message, engine_code=event.code)


def _field(param: str | None) -> str | None:
    """The client knows its own fields, not the form in which control hands them on."""
    if param is None:
        return None
    return param.removeprefix("prompt.").removeprefix("sampling.")
