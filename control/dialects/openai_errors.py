"""The shape of an error on the OpenAI routes, and on every path that belongs to no dialect.

It decides no status and no code: the error has both.
"""

import msgspec

from control.errors import ApiError


def error_body(error: ApiError) -> bytes:
    """Format: OpenAI error object. All four fields are always there."""
    return msgspec.json.encode(
        {"error": {"message": str(error), "type": _type(error.status), "param": error.param, "code": error.code}}
    )


def error_event(error: ApiError) -> bytes:
    """A frame of a stream; the SDKs raise APIError on any event whose `error` is truthy."""
    return b"data: " + error_body(error) + b"\n\n"


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
