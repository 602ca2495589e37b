"""Makes HTTP answers of wire structs and of errors: the one place where an error becomes a status.

It decides nothing: which error it is was known where it was raised.
"""

import msgspec
from starlette.responses import Response

from engine.errors import ContextTooLong, EngineError, InvalidRequest
from engine.wire import ErrorAnswer

_JSON = "application/json"


def json_response(content: msgspec.Struct, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type=_JSON)


def encoded_response(content: bytes) -> Response:
    return Response(content, media_type=_JSON)


def error_response(error: EngineError) -> Response:
    too_long = error if isinstance(error, ContextTooLong) else None
    answer = ErrorAnswer(
        code=error.code,
        message=error.message,
        retryable=error.retryable,
        param=error.param if isinstance(error, InvalidRequest) else None,
        prompt_tokens=too_long.prompt_tokens if too_long else None,
        maximum_context_tokens=too_long.maximum_context_tokens if too_long else None,
    )
    response = json_response(answer, status=error.status)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
