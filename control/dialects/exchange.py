"""What the relay needs of any dialect: one parsed request, and how its answer is written.

It holds no dialect; `chat` is one.
"""

from collections.abc import Sequence
from typing import Protocol

from control.errors import ApiError
from engine.wire import AnyEvent, GenerateRequest


class Encoder(Protocol):
    """Turns the events of one run into the bytes of one answer."""

    def encode(self, events: Sequence[AnyEvent]) -> bytes:
        """What can be sent now. Empty: nothing yet. An answer that is not a stream comes whole, with Finished.

        Never called with Failed; Finished is the last event of the last call.
        """


class Exchange(Protocol):
    """One request as its dialect understood it. `generate.id` is the id of the request everywhere."""

    @property
    def dialect(self) -> str: ...

    @property
    def model(self) -> str:
        """The name that the client asked for."""

    @property
    def is_stream(self) -> bool: ...

    @property
    def generate(self) -> GenerateRequest: ...

    @property
    def heartbeat(self) -> bytes:
        """A whole frame that every client of a stream ignores."""

    def encoder(self, model: str) -> Encoder:
        """A fresh one for each run. `model` is the id of the model that answers."""

    def field(self, engine_field: str) -> str | None:
        """What the client calls a field of the engine's door; None for one that it did not send."""

    def error_body(self, error: ApiError) -> bytes:
        """The whole answer, when nothing was sent yet."""

    def error_event(self, error: ApiError) -> bytes:
        """The last frame of a stream that had begun."""
