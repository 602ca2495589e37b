"""Requests as the HTTP side would make them, with a text side that shows every token as its number."""

import threading
from dataclasses import dataclass, field

from engine.blocks import TokenBlocks
from engine.request import NO_MARKS, Constraint, Finish, PromptMarks, Request, SampledToken, SamplingParameters
from engine.wire import Event, Failed, Finished, Prefill, TextDelta

GREEDY = SamplingParameters(temperature=0.0)
PATIENCE_S = 60.0


class NumberedOutput:
    """Says each token as text, two at a time when `holds_back`; ends at `end_token`, fails at `fault_token`."""

    def __init__(self, *, end_token: int | None = None, fault_token: int | None = None, holds_back: bool = False):
        self.finish: Finish | None = None
        self.reasoning_tokens = 0
        self._end_token = end_token
        self._fault_token = fault_token
        self._holds_back = holds_back
        self._held: list[str] = []

    def push(self, token: SampledToken) -> list[Event]:
        if token.token == self._fault_token:
            raise ValueError("no such character")
        if token.token == self._end_token:
            self.finish = Finish("stop")
            return []
        self._held.append(f"{token.token} ")
        return [] if self._holds_back and len(self._held) < 2 else self._say()

    def close(self, reason):
        return self._say(), Finish(reason)

    def _say(self) -> list[Event]:
        text, self._held = "".join(self._held), []
        return [TextDelta(text=text)] if text else []


@dataclass
class Client:
    """The other end of a request: keeps what it gets, and tells when it is over."""

    deliveries: list[list[Event]] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def deliver(self, events) -> None:
        self.deliveries.append(list(events))
        if any(isinstance(event, TextDelta) for event in events):
            self.started.set()
        if any(isinstance(event, (Finished, Failed)) for event in events):
            self.ended.set()

    @property
    def events(self) -> list[Event]:
        return [event for events in self.deliveries for event in events]

    @property
    def tokens(self) -> list[int]:
        return [int(number) for event in self.events if isinstance(event, TextDelta) for number in event.text.split()]

    @property
    def progress(self) -> list[Prefill]:
        return [event for event in self.events if isinstance(event, Prefill)]

    def ending(self) -> Finished | Failed:
        """Waits for the last event; there must be one only."""
        assert self.ended.wait(PATIENCE_S), "no ending"
        endings = [event for event in self.events if isinstance(event, (Finished, Failed))]
        assert len(endings) == 1 and self.events[-1] is endings[0]
        return endings[0]


def a_request(
    request_id: str = "r",
    *,
    prompt: tuple[int, ...] = (1, 2, 3),
    max_tokens: int = 8,
    sampling: SamplingParameters = GREEDY,
    request_class="interactive",
    output: NumberedOutput | None = None,
    client: Client | None = None,
    arrived_at: float = 0.0,
    marks: PromptMarks = NO_MARKS,
    constraint: Constraint | None = None,
) -> Request:
    return Request(
        id=request_id,
        prompt=prompt,
        sampling=sampling,
        max_tokens=max_tokens,
        request_class=request_class,
        output=output or NumberedOutput(),
        deliver=(client or Client()).deliver,
        arrived_at=arrived_at,
        blocks=TokenBlocks(prompt),
        marks=marks,
        constraint=constraint,
    )
