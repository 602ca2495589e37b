"""A whole answer, as it is collected for a client that did not ask for a stream.

It writes no dialect: each gives `BodyEncoder` the function that turns what was collected into its body.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from control.errors import ApiError
from engine import wire

# Where a client has one field for all of them, and where they come back in one message.
BETWEEN_THOUGHTS: Final = "\n\n"


@dataclass(slots=True)
class Words:
    """A stretch of one kind, as it came between others."""

    kind: Literal["text", "reasoning"]
    pieces: list[str] = field(default_factory=list)
    logprobs: list[wire.TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True)
class Call:
    begin: wire.ToolCallBegin
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """JSON, if the call is complete."""
        return "".join(self.pieces)


@dataclass(slots=True)
class Collected:
    """`parts` are in the order in which the model wrote them. `model` is the id that answered."""

    model: str = ""
    parts: list[Words | Call] = field(default_factory=list)
    finished: wire.Finished = field(default_factory=lambda: wire.Finished(reason="stop"))

    def words(self, kind: Literal["text", "reasoning"]) -> list[Words]:
        return [part for part in self.parts if isinstance(part, Words) and part.kind == kind]

    @property
    def text(self) -> str:
        return "".join(words.text for words in self.words("text"))

    @property
    def reasoning(self) -> str:
        """Thoughts with something between them are several."""
        return BETWEEN_THOUGHTS.join(words.text for words in self.words("reasoning") if words.text)

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]

    def add(self, event: wire.AnyEvent) -> None:
        match event:
            case wire.Accepted():
                # A run begins; of one before it, which broke off, nothing was sent.
                self.parts.clear()
            case wire.TextDelta() if event.text or event.logprobs:
                self._add_words("text", event.text, event.logprobs)
            case wire.ReasoningDelta() if event.text or event.logprobs:
                self._add_words("reasoning", event.text, event.logprobs)
            case wire.ToolCallBegin():
                self.parts.append(Call(event))
            case wire.ToolCallDelta():
                next(call for call in self.calls if call.begin.index == event.index).pieces.append(event.arguments)
            case wire.Finished():
                self.finished = event

    def _add_words(self, kind: Literal["text", "reasoning"], text: str, logprobs: Sequence[wire.TokenLogprob]) -> None:
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, Words) or last.kind != kind:
            last = Words(kind)
            self.parts.append(last)
        last.pieces.append(text)
        last.logprobs.extend(logprobs)


class BodyEncoder:
    """An `Encoder`: it keeps everything until the end, and then comes out with the whole body, once."""

    def __init__(self, body_of: Callable[[Collected], bytes]) -> None:
        self._body_of = body_of
        self._collected = Collected()

    def expect(self, *, model: str, prompt_tokens: int | None) -> None:
        self._collected.model = model

    def encode(self, events: Sequence[wire.AnyEvent]) -> bytes:
        for event in events:
            self._collected.add(event)
        is_over = bool(events) and isinstance(events[-1], wire.Finished)
        return self._body_of(self._collected) if is_over else b""

    def heartbeat(self, *, is_yielded: bool) -> bytes:
        """An answer that is no stream has none."""
        return b""

    def error(self, error: ApiError) -> bytes:
        """An answer that is no stream has not begun."""
        return b""
