"""What can go wrong in the console, with the HTTP status that each error becomes.

It formats nothing: the sentence for a person is chosen at the edge (`webui.pages.edge`), in the person's language.

    ConsoleError
    ├── ControlGone      502  control does not answer, or its admin secret does not exist yet; retryable
    │   └── OrderUnconfirmed  502  the order was sent, and no answer came in time: it may have been followed
    ├── ControlRefused   4xx  control answered with a typed error; its code and sentence are passed on
    ├── BadForm          400  a form field is missing or is not what it must be
    ├── NotAllowed       403  unknown Host, foreign Origin, or a form that is not from this session
    └── PortTaken        --   at start only: exit code 5
"""

from typing import ClassVar


class ConsoleError(Exception):
    """Base of all errors that the console raises itself."""

    code: str = "console_error"
    status: int = 500
    retryable: ClassVar[bool] = False


class ControlGone(ConsoleError):
    """Control did not answer within its time, refused the connection, or answered nonsense."""

    code = "control_gone"
    status = 502
    retryable: ClassVar[bool] = True


class OrderUnconfirmed(ControlGone):
    """The order went out and nothing came back: whether it was followed shows in the state, not here."""

    code = "order_unconfirmed"
    retryable: ClassVar[bool] = False


class ControlRefused(ConsoleError):
    """Control answered with an AdminError. `retry_after_s` as it says; None: it doesn't."""

    def __init__(self, *, code: str, message: str, status: int, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s


class BadForm(ConsoleError):
    """`field` names the input that cannot be used."""

    code = "bad_form"
    status = 400

    def __init__(self, field: str) -> None:
        super().__init__(f"the field {field!r} is missing or cannot be used")
        self.field = field


class NotAllowed(ConsoleError):
    code = "not_allowed"
    status = 403


class PortTaken(ConsoleError):
    """`holder` is pid and command of the process that listens there, None when the system does not tell."""

    code = "port_taken"

    def __init__(self, *, host: str, port: int, holder: str | None) -> None:
        super().__init__(f"port {port} on {host} is taken by {holder or 'another process'}")
        self.port = port
        self.holder = holder
