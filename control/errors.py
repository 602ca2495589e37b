"""Every error that control answers or handles, as one tree: each carries a code, an HTTP status and `retryable`.

It does not know an API's error shape: the dialects translate, once, at the edge.

ControlError
├── ApiError                    a caller did something that gets an answer
│   ├── InvalidRequest          400  names the field
│   ├── NotHttp                 400
│   ├── ContextTooLong          400  the prompt's tokens and the model's limit
│   ├── NotAuthenticated        401
│   ├── HostNotAllowed          403
│   ├── UnknownModel            404
│   ├── UnknownResponse         404  a previous_response_id that is not here, or no longer
│   ├── UnknownRoute            404
│   ├── MethodNotAllowed        405
│   ├── BodyTooSlow             408
│   ├── ModelChanged            409  token ids of a model that is not loaded any more
│   ├── BodyTooLarge            413
│   ├── EncodingNotSupported    415
│   ├── LineFull                429
│   ├── TooManyConnections      429  more would leave no file descriptor for the admin API and the engine
│   ├── KeyLimitReached         429  the key's own limit
│   ├── HeadTooLarge            431
│   ├── CancelledByOperator     499
│   ├── RequestFailed           500  the engine gave up on this request
│   ├── InternalError           500
│   ├── EngineDied              503  it had already emitted, or died twice
│   ├── NoModel                 503
│   ├── NoTokenizer             503  tokens can't be counted while no engine answers
│   ├── EngineStopped           503  cut by a force stop of the model alone
│   ├── SplashQuits             503  turned away by a quit, or cut by one with force
│   ├── GatewayRestarts         503  control itself ends; the model stays loaded
│   └── WaitedTooLong           504
├── EngineGone                  the engine's connection ended before the end event
├── EngineRefused               the engine answered with an error, before any event
├── DatabaseUnusable            control cannot start with it
└── EngineLingers               an engine of this home that is not ours to adopt, nor to end

What the admin API refuses is in `control.admin.errors`, how a command or a process ends in `control.command_errors`.
"""

import traceback
from pathlib import Path
from typing import ClassVar

from engine.wire import ErrorAnswer

LINE_FULL_RETRY_S = 10
NO_MODEL_RETRY_S = 10
GATEWAY_RETRY_S = 2


def traced(error: BaseException) -> str:
    """What an exception was and where it came from, innermost last, for the log.

    Its own text is left out where it may quote a prompt or an answer, which are never logged.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__} at {places}"


class ControlError(Exception):
    """Base. `str(error)` is one sentence for a person."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False


class ApiError(ControlError):
    """An answer of the public API. `param` names the field; `retry_after_s` is the Retry-After header."""

    param: str | None = None
    retry_after_s: int | None = None


class InvalidRequest(ApiError):
    code = "invalid_request"
    status = 400

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class NotHttp(ApiError):
    code = "invalid_request"
    status = 400

    def __init__(self) -> None:
        super().__init__("What was sent is not an HTTP request.")


class ContextTooLong(ApiError):
    """No room is left for a token of the answer, so the longest prompt has one less than the context.

    The sentence is the one that Claude Code, Codex and opencode recognise, all three.
    """

    code = "context_length_exceeded"
    status = 400

    def __init__(self, *, prompt_tokens: int, maximum_context_tokens: int, param: str | None = None) -> None:
        super().__init__(
            f"This model's maximum context length is {maximum_context_tokens} tokens. "
            f"However, your prompt is too long: {prompt_tokens} tokens > {maximum_context_tokens - 1} maximum."
        )
        self.param = param
        self.prompt_tokens = prompt_tokens
        self.maximum_context_tokens = maximum_context_tokens


class NotAuthenticated(ApiError):
    code = "invalid_api_key"
    status = 401

    def __init__(self) -> None:
        super().__init__("Missing or unknown API key. Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.")


class HostNotAllowed(ApiError):
    code = "host_not_allowed"
    status = 403

    def __init__(self) -> None:
        super().__init__("This server does not answer under that host name.")


class UnknownModel(ApiError):
    code = "model_not_found"
    status = 404
    param = "model"

    def __init__(self, name: str) -> None:
        super().__init__(f"The model {name!r} does not exist here. GET /v1/models lists what does.")
        self.name = name


class UnknownResponse(ApiError):
    code = "previous_response_not_found"
    status = 404
    param = "previous_response_id"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"The response {response_id!r} is not here: it was not stored, or it is too old.")


class ModelChanged(ApiError):
    code = "model_changed"
    status = 409

    def __init__(self, *, wanted: str, loaded: str) -> None:
        super().__init__(f"The prompt is token ids of {wanted!r}; {loaded!r} is loaded now.")


class UnknownRoute(ApiError):
    code = "not_found"
    status = 404

    def __init__(self, path: str) -> None:
        super().__init__(f"There is nothing at {path}.")


class MethodNotAllowed(ApiError):
    code = "method_not_allowed"
    status = 405

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} is not a method of this path.")


class BodyTooSlow(ApiError):
    code = "request_timeout"
    status = 408
    retryable = True

    def __init__(self, *, limit_s: float) -> None:
        super().__init__(f"The body did not arrive within {limit_s:.0f} s.")


class BodyTooLarge(ApiError):
    code = "request_too_large"
    status = 413

    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"The body is larger than {limit_bytes} bytes.")
        self.limit_bytes = limit_bytes


class EncodingNotSupported(ApiError):
    code = "unsupported_encoding"
    status = 415

    def __init__(self, encoding: str) -> None:
        super().__init__(f"Content-Encoding {encoding!r} is not supported; gzip, deflate, zstd and plain JSON are.")


class LineFull(ApiError):
    code = "rate_limit_exceeded"
    status = 429
    retryable = True
    retry_after_s = LINE_FULL_RETRY_S

    def __init__(self, *, limit: int) -> None:
        super().__init__(f"The line is full: {limit} requests are waiting.")
        self.limit = limit


class TooManyConnections(ApiError):
    code = "rate_limit_exceeded"
    status = 429
    retryable = True
    retry_after_s = LINE_FULL_RETRY_S

    def __init__(self) -> None:
        super().__init__("Too many connections are open.")


class HeadTooLarge(ApiError):
    code = "headers_too_large"
    status = 431

    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"The request line and the headers are larger than {limit_bytes} bytes.")
        self.limit_bytes = limit_bytes


class KeyLimitReached(ApiError):
    """`retry_after_s`: to the end of the day, or soon when it is about requests in flight."""

    code = "key_limit_reached"
    status = 429
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class CancelledByOperator(ApiError):
    code = "request_cancelled"
    status = 499

    def __init__(self) -> None:
        super().__init__("The request was cancelled from the console.")


class RequestFailed(ApiError):
    """The engine ended this request with a failure. `engine_code` is `engine.wire.ErrorCode`."""

    code = "engine_error"
    status = 500

    def __init__(self, message: str, *, engine_code: str) -> None:
        super().__init__(message)
        self.engine_code = engine_code


class InternalError(ApiError):
    def __init__(self) -> None:
        super().__init__("Splash made a mistake; its log says more.")


class EngineDied(ApiError):
    code = "engine_died"
    status = 503
    retryable = True
    retry_after_s = NO_MODEL_RETRY_S

    def __init__(self) -> None:
        super().__init__("The engine died while it worked on this request.")


class NoModel(ApiError):
    code = "no_model"
    status = 503
    retryable = True
    retry_after_s = NO_MODEL_RETRY_S

    def __init__(self) -> None:
        super().__init__("No model is loaded and none is on the way.")


class NoTokenizer(ApiError):
    code = "model_not_ready"
    status = 503
    retryable = True
    retry_after_s = GATEWAY_RETRY_S

    def __init__(self) -> None:
        super().__init__("Tokens can't be counted now: no model is ready.")


class EngineStopped(ApiError):
    code = "engine_stopped"
    status = 503
    retryable = True
    retry_after_s = NO_MODEL_RETRY_S

    def __init__(self) -> None:
        super().__init__("The model was stopped by a person; the request may be sent again when a model is loaded.")


class SplashQuits(ApiError):
    code = "quitting"
    status = 503
    retryable = True
    retry_after_s = NO_MODEL_RETRY_S

    def __init__(self) -> None:
        super().__init__("Splash is quitting; the request may be sent again when it runs again.")


class GatewayRestarts(ApiError):
    code = "gateway_restarts"
    status = 503
    retryable = True
    retry_after_s = GATEWAY_RETRY_S

    def __init__(self) -> None:
        super().__init__("The gateway is being restarted; send the request again.")


class WaitedTooLong(ApiError):
    code = "waited_too_long"
    status = 504

    def __init__(self, *, limit_s: float) -> None:
        super().__init__(f"The request stood in line for {limit_s / 3600:.0f} hours.")
        self.limit_s = limit_s


class EngineGone(ControlError):
    """`was_reached`: the request may have begun there; False when the connection was refused."""

    code = "engine_gone"
    status = 503
    retryable = True

    def __init__(self, reason: str, *, was_reached: bool) -> None:
        super().__init__(f"The engine is gone: {reason}.")
        self.was_reached = was_reached


class EngineRefused(ControlError):
    """`answer` is what the engine said, with its numbers; `engine_status` its HTTP status."""

    code = "engine_refused"

    def __init__(self, answer: ErrorAnswer, *, engine_status: int) -> None:
        super().__init__(answer.message)
        self.answer = answer
        self.engine_status = engine_status


class DatabaseUnusable(ControlError):
    code = "database_unusable"


class EngineLingers(ControlError):
    """An engine that was started by this home lives, and can't be adopted; it is shown, and not signalled."""

    code = "engine_lingers"
