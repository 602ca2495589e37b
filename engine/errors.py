"""The errors of the engine process, each with the code and status that a client sees.

It translates nothing: `engine.door.server` makes answers of them, and the worker `Failed` events once a stream began.

    EngineError
    ├── InvalidRequest        400 invalid_request          a field of the request is wrong; `param` names it
    │   ├── BodyTooLarge      413 invalid_request          more bytes than the door takes
    │   └── ContextTooLong    400 context_length_exceeded  the prompt is longer than the context
    ├── Unauthorized          401 unauthorized             no secret, or a wrong one
    ├── NotFound              404 not_found                no such path, request or model
    ├── NotReady              503 not_ready                the model is still loading, or its loading failed
    ├── Stopping              503 stopping                 the process is on its way out
    ├── OutOfMemory           507 out_of_memory            the request, or the model, does not fit, with the numbers
    ├── NonFiniteLogits       500 internal                 the model computed NaN or infinity for this request
    ├── ConstraintFailed      500 internal                 the grammar of this request could not be followed further
    ├── TextFailed            500 internal                 tokens of this request could not be turned into text
    ├── ClientTooSlow         500 internal                 the client left too much of its answer unread
    ├── DeviceFailed          500 internal                 MLX raised: the process ends with exit code 70
    ├── PortTaken             (exit code 5)                another process listens where this one should
    └── Refused               (exit code 4)                the model can't be served; one sentence says why
        ├── ModelNotFound     (exit code 4)                no such model here, nor on the hub
        │   └── NotDownloaded (exit code 4)                a hub id that a load would download first
        ├── ModelRefused      (exit code 4)                its files are wrong, or it does not fit; `reason` says which
        └── ModelUnsound      (exit code 4)                the load-time self-test found logits that are not finite
"""

import traceback
from pathlib import Path
from typing import ClassVar, Literal

from engine.wire import ErrorCode

RefusalReason = Literal[
    "no_config",
    "damaged_config",
    "unsupported_architecture",
    "needs_code",
    "no_weights",
    "missing_weights",
    "damaged_weights",
    "wrong_type",
    "no_tokenizer",
    "damaged_tokenizer",
    "no_context_length",
    "context_above_native",
    "does_not_fit",
    "kv_not_quantisable",
    "load_failed",
]


class EngineError(Exception):
    """Base. `code` and `status` are of the class; `retryable` and the numbers may differ by instance.

    `message` is a whole sentence, for whoever reads it; `str(error)` is as it was raised, to be part of another one.
    """

    code: ClassVar[ErrorCode] = "internal"
    status: ClassVar[int] = 500
    retryable: bool = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = sentence(message)


class InvalidRequest(EngineError):
    code: ClassVar[ErrorCode] = "invalid_request"
    status = 400

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.message = sentence(message, name=(param or "").rpartition(".")[2])


class BodyTooLarge(InvalidRequest):
    status = 413

    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"the body is larger than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class ContextTooLong(InvalidRequest):
    """`prompt_tokens` is at least what the prompt takes: one that is hopelessly long is not tokenised to the end."""

    code = "context_length_exceeded"

    def __init__(self, *, prompt_tokens: int, maximum_context_tokens: int) -> None:
        super().__init__(
            f"prompt is too long: {prompt_tokens} tokens > {maximum_context_tokens} maximum", param="prompt"
        )
        self.prompt_tokens = prompt_tokens
        self.maximum_context_tokens = maximum_context_tokens


class Unauthorized(EngineError):
    code = "unauthorized"
    status = 401


class NotFound(EngineError):
    code = "not_found"
    status = 404


class NotReady(EngineError):
    code = "not_ready"
    status = 503
    retryable = True


class Stopping(EngineError):
    code = "stopping"
    status = 503
    retryable = True

    def __init__(self) -> None:
        super().__init__("the engine is stopping")


class OutOfMemory(EngineError):
    """`needed_bytes` against the `pool_bytes` that all running requests share."""

    code = "out_of_memory"
    status = 507

    def __init__(self, message: str, *, needed_bytes: int, pool_bytes: int, retryable: bool = False) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.pool_bytes = pool_bytes
        self.retryable = retryable


class NonFiniteLogits(EngineError):
    def __init__(self, *, position: int) -> None:
        super().__init__(f"the model computed logits that are not finite after {position} tokens")
        self.position = position


class ConstraintFailed(EngineError):
    """Too complex where the answer led, or a dead end: the grammar allows no token that the model has."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the grammar could not be followed: {reason}")
        self.reason = reason


class TextFailed(EngineError):
    def __init__(self) -> None:
        super().__init__("the sampled tokens could not be turned into text")


class ClientTooSlow(EngineError):
    def __init__(self, *, unread_bytes: int) -> None:
        super().__init__(f"the answer was cut: its reader left {unread_bytes} bytes unread")
        self.unread_bytes = unread_bytes


class DeviceFailed(EngineError):
    retryable = True

    def __init__(self, message: str) -> None:
        super().__init__(f"the device failed: {message}")


class PortTaken(EngineError):
    """`holder` is a pid and its command, None when the system does not tell."""

    def __init__(self, *, port: int, holder: str | None) -> None:
        super().__init__(f"port {port} is taken by {holder or 'another process'}")
        self.port = port
        self.holder = holder


class Refused(EngineError):
    """The model can't be served. The message is one sentence for the person at the terminal."""


class ModelNotFound(Refused):
    code = "not_found"
    status = 404


class NotDownloaded(ModelNotFound):
    """Nothing is wrong: the files are on the hub, or nowhere; only a load finds out."""


class ModelRefused(Refused):
    """`reason` is for programs; the numbers are in the sentence. `native_tokens`: of a context that is above it."""

    code = "invalid_request"
    status = 400

    def __init__(self, message: str, *, reason: RefusalReason, native_tokens: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.native_tokens = native_tokens


class ModelUnsound(Refused):
    def __init__(self) -> None:
        super().__init__(
            "the self-test found logits that are not finite: the weights are damaged or of an unsupported kind"
        )


def sentence(text: str, *, name: str = "") -> str:
    """`text` as a sentence: a capital where it begins with a word, and not with a path or with the field `name`.

    What UTF-8 can't write, of a file's name or content, is a question mark: it has to go through JSON.
    """
    text = text.encode("utf-8", "replace").decode()
    first = text.split(" ", 1)[0].rstrip(",:;")
    is_word = first.isalpha() and first.islower() and first != name
    whole = f"{text[:1].upper()}{text[1:]}" if is_word else text
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."


def traced(error: BaseException) -> str:
    """What an exception was and where it came from, innermost last, for the log.

    Its own text is left out: it may quote a prompt or an answer, which are never logged.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__} at {places}"
