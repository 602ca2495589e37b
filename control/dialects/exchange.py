"""What the relay needs of any dialect: one parsed request, and how its answer is written.

It holds no dialect; `chat`, `completions`, `responses` and `messages` are some.
"""

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from control.errors import ApiError
from engine.wire import AnyEvent, GenerateRequest

HeartbeatMode = Literal["comment", "ping", "in_progress", "typed"]
"""How a dialect keeps a stream alive; each knows which of them it has. `typed`: by the protocol's own no-op."""

HEARTBEAT_MODES: Final[dict[str, tuple[HeartbeatMode, ...]]] = {
    "chat": ("comment",),
    "completions": ("comment",),
    "responses": ("typed", "in_progress", "comment"),
    "messages": ("typed", "ping", "comment"),
}
"""Of each dialect, the default first: the one that keeps every client alive that was measured."""


def default_heartbeat(dialect: str) -> HeartbeatMode:
    return HEARTBEAT_MODES[dialect][0]


class Encoder(Protocol):
    """Writes one answer, whatever the runs: a second run follows only when no more than heartbeats went out.

    A stream may have to begin before a model is there. What a dialect begins with (`response.created`,
    `message_start`) is written by the first `heartbeat` or `encode` that needs it, and once.
    """

    def expect(self, *, model: str, prompt_tokens: int | None) -> None:
        """What is known by now of who will answer, and of the prompt's length (None: nobody could count it yet).

        Called before anything else, and again whenever it changes.
        """

    def encode(self, events: Sequence[AnyEvent]) -> bytes:
        """What can be sent now. Empty: nothing yet. An answer that is not a stream comes whole, with Finished.

        Never called with Failed; Finished is the last event of the last call.
        """

    def heartbeat(self, *, is_yielded: bool) -> bytes:
        """Whole frames for a stream that is silent. `is_yielded`: it is time for one that counts as an event.

        Some clients ignore comments and pings, and give up a stream that yielded nothing for five minutes.
        """

    def error(self, error: ApiError) -> bytes:
        """The last frames of a stream that had begun."""


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

    def encoder(self, *, heartbeat: HeartbeatMode) -> Encoder:
        """`heartbeat` is the mode of this dialect's setting: one of those that the dialect has."""

    def field(self, engine_field: str) -> str | None:
        """What the client calls a field of the engine's door; None for one that it did not send."""
