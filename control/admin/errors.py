"""What the admin API answers when it does not do what it was asked: a branch of the tree in `control.errors`.

It knows no path and no shape: `edge` translates, once.

ControlError
├── KeyNameInvalid              400
├── KeyNameTaken                409
├── UnknownKey                  404
└── AdminRefusal                the admin API does not do what it was asked
    ├── OrderInvalid            400
    ├── AdminSecretWrong        401
    ├── WrongPassword           403
    ├── UnknownRequest          404
    ├── UnknownModel            404  no such model here, and no name that one could be downloaded by
    ├── LoginLinkInvalid        404
    ├── NoPassword              404
    ├── EngineNotReady          409
    ├── Quitting                409
    ├── OrderNotJson            415  a browser sends no JSON to another site without asking first
    ├── ModelRefused            422  the engine says why; what runs goes on
    ├── BackupNameTaken         409
    ├── TooManyAttempts         429  wrong passwords; says when to come again
    ├── BackupRefused           503  the disk or the database does not let it be made
    ├── LogUnreadable           503  a log's file can't be read now
    ├── QuestionTooLong         503  the database has too much to look through
    └── HomeFull                503  what an engine is started with can't be written; what runs goes on
"""

from control.errors import ControlError


class KeyNameInvalid(ControlError):
    code = "key_name_invalid"
    status = 400


class KeyNameTaken(ControlError):
    code = "key_name_taken"
    status = 409

    def __init__(self, name: str) -> None:
        super().__init__(f"There is already a key named {name!r}.")


class UnknownKey(ControlError):
    code = "key_not_found"
    status = 404

    def __init__(self, key_id: int) -> None:
        super().__init__(f"There is no key with id {key_id}.")


class AdminRefusal(ControlError):
    """An answer of the admin API. `retry_after_s` is the Retry-After header."""

    retry_after_s: int | None = None


class OrderInvalid(AdminRefusal):
    code = "invalid_request"
    status = 400


class OrderNotJson(AdminRefusal):
    code = "media_type_not_supported"
    status = 415

    def __init__(self) -> None:
        super().__init__("An order is JSON, and its Content-Type says so: application/json.")


class AdminSecretWrong(AdminRefusal):
    code = "unauthorized"
    status = 401

    def __init__(self) -> None:
        super().__init__("The admin API needs the secret of this home: `Authorization: Bearer SECRET`.")


class UnknownRequest(AdminRefusal):
    code = "request_not_found"
    status = 404

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The request {request_id!r} is not here; it may just have ended.")


class UnknownModel(AdminRefusal):
    """The engine says it, in one sentence that names the model."""

    code = "model_not_found"
    status = 404


class LoginLinkInvalid(AdminRefusal):
    code = "login_link_invalid"
    status = 404

    def __init__(self) -> None:
        super().__init__("This login link was used already, or its time is over. `splash open` makes a new one.")


class WrongPassword(AdminRefusal):
    code = "wrong_password"
    status = 403

    def __init__(self) -> None:
        super().__init__("This is not the console's password.")


class NoPassword(AdminRefusal):
    code = "no_password"
    status = 404

    def __init__(self) -> None:
        super().__init__("The console has no password; `splash password` sets one, `splash open` gives a login link.")


class TooManyAttempts(AdminRefusal):
    code = "too_many_attempts"
    status = 429
    retryable = True

    def __init__(self, *, retry_after_s: int) -> None:
        super().__init__(f"Too many wrong passwords; try again in {retry_after_s} s, or use a link of `splash open`.")
        self.retry_after_s = retry_after_s


class EngineNotReady(AdminRefusal):
    """`state` is control.wire.EngineState."""

    code = "engine_not_ready"
    status = 409

    def __init__(self, state: str) -> None:
        super().__init__(f"No model is ready (the engine is {state}), so there is no prefix cache to clear.")
        self.state = state


class Quitting(AdminRefusal):
    code = "quitting"
    status = 409

    def __init__(self) -> None:
        super().__init__("Splash is quitting.")


class ModelRefused(AdminRefusal):
    code = "model_refused"
    status = 422


class QuestionTooLong(AdminRefusal):
    code = "question_too_long"
    status = 503

    def __init__(self) -> None:
        super().__init__("There is too much to look through for that; narrow the range.")


class HomeFull(AdminRefusal):
    """Or read-only, or gone. The sentence names the file and the reason."""

    code = "home_unusable"
    status = 503
    retryable = True


class LogUnreadable(AdminRefusal):
    code = "log_unreadable"
    status = 503
    retryable = True

    def __init__(self, name: str, reason: OSError) -> None:
        super().__init__(f"The log of {name} can't be read: {reason.strerror}.")


class BackupNameTaken(AdminRefusal):
    code = "backup_name_taken"
    status = 409


class BackupRefused(AdminRefusal):
    """The sentence says why."""

    code = "backup_failed"
    status = 503
    retryable = True
