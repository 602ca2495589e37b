"""How an error looks to the client of a path: OpenAI's shape, or Anthropic's on the paths of Messages.

It decides no code, and the status only where Anthropic has one of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from control.errors import ApiError, ContextTooLong, InvalidRequest

ANTHROPIC_PATHS: Final = "/v1/messages"
# Anthropic's clients know 529, not 503; they send the request again after either.
OVERLOADED: Final = 529
ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}

PATIENCE_LIMIT_S: Final = 600


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """A whole answer, with headers in ASGI's form but content-length and the request's id."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


AnswerOf = Callable[[ApiError], ErrorAnswer]


def answers_of(path: str, request_id: str) -> AnswerOf:
    """What every error is to the client of `path`."""
    is_anthropic = path == ANTHROPIC_PATHS or path.startswith(f"{ANTHROPIC_PATHS}/")

    def answer(error: ApiError) -> ErrorAnswer:
        if is_anthropic:
            return _answer(error, anthropic_status(error), anthropic_error(error, request_id))
        return _answer(error, error.status, openai_error(error))

    return answer


def openai_error(error: ApiError) -> dict[str, Any]:
    """Format: OpenAI error object. All four fields are always there."""
    return {
        "error": {
            "message": sentence_of(error),
            "type": _openai_type(error.status),
            "param": error.param,
            "code": error.code,
        }
    }


def anthropic_error(error: ApiError, request_id: str) -> dict[str, Any]:
    """Format: Anthropic error object; in a stream, the data of `event: error`.

    Claude Code compacts the conversation when it reads "prompt is too long"; it parses both numbers behind it.
    """
    message = sentence_of(error)
    if isinstance(error, ContextTooLong):
        message = f"prompt is too long: {error.prompt_tokens} tokens > {error.maximum_context_tokens - 1} maximum"
    return {
        "type": "error",
        "error": {"type": _anthropic_type(anthropic_status(error)), "message": message},
        "request_id": request_id,
    }


def sentence_of(error: ApiError) -> str:
    """With the field that is wrong: OpenAI's SDK shows nothing else of an error."""
    message, field = str(error), error.param
    if field is None or not isinstance(error, InvalidRequest) or _is_named(field, message):
        return message
    return f"{field}: {message}"


def _is_named(field: str, message: str) -> bool:
    """At the beginning; or anywhere, if it can be no word of the sentence."""
    return message.startswith(f"{field} ") or (not field.isalpha() and field in message)


def anthropic_status(error: ApiError) -> int:
    return OVERLOADED if error.status == 503 else error.status


def _answer(error: ApiError, status: int, content: dict[str, Any]) -> ErrorAnswer:
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
        if error.retry_after_s > PATIENCE_LIMIT_S:
            # Anthropic's SDK would sleep until then, however long that is.
            headers.append((b"x-should-retry", b"false"))
    return ErrorAnswer(status, tuple(headers), msgspec.json.encode(content))


def _openai_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def _anthropic_type(status: int) -> str:
    return ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
