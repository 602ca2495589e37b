"""Cuts the visible text at the first stop string, across tokens and across the events between two pieces of text.

It knows visible text only: thoughts and tool calls pass it untouched, and no stop string is looked for in them.
"""

from collections import deque
from collections.abc import Sequence

from engine.text.marked import MarkedText, num_withheld
from engine.wire import Event, TextDelta


class StopStrings:
    """Takes text and events in the order in which the model made them, and gives them back in that order.

    Text that may begin a stop string stays here until that is certain, and so does every event behind it: a client that
    joins the visible text never sees a stop string, nor a part of one that is completed later.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._waiting: deque[MarkedText | Event] = deque()
        self._text = ""  # the waiting text, joined
        self.found: str | None = None

    def text(self, piece: MarkedText) -> list[Event]:
        """Take a piece of visible text; return what is certain now. After a stop string everything is dropped."""
        if self.found is not None:
            return []
        self._waiting.append(piece)
        self._text += piece.text
        match = self._first_match()
        if match is not None:
            begin, self.found = match
            certain = self._release(begin)
            self._waiting.clear()
            self._text = ""
            return certain
        return self._release(len(self._text) - num_withheld(self._text, self._stops))

    def event(self, event: Event) -> list[Event]:
        """Take an event that is not visible text; return it, unless text before it is withheld."""
        if self.found is not None:
            return []
        if not self._text:
            return [event]
        self._waiting.append(event)
        return []

    def flush(self) -> list[Event]:
        """The end: no stop string can be completed any more; return all that waits."""
        return self._release(len(self._text))

    def _first_match(self) -> tuple[int, str] | None:
        """The stop string that is complete first, which is what a reader of single characters would stop at."""
        matches = [(at + len(stop), at, stop) for stop in self._stops if (at := self._text.find(stop)) >= 0]
        if not matches:
            return None
        _, begin, stop = min(matches)
        return begin, stop

    def _release(self, num_chars: int) -> list[Event]:
        """Emit `num_chars` of the waiting text, and the events that no longer have waiting text before them."""
        events: list[Event] = []
        self._text = self._text[num_chars:]
        while self._waiting:
            item = self._waiting[0]
            if isinstance(item, Event):
                events.append(item)
                self._waiting.popleft()
                continue
            part = item.take(min(num_chars, len(item.text)))
            num_chars -= len(part.text)
            if part.text:
                events.append(TextDelta(text=part.text, logprobs=part.logprobs))
            if item.text:
                break
            self._waiting.popleft()
        return events
