"""Who goes before whom, in the line and among those that are being prefilled.

It starts nobody and keeps no list: `scheduler.py` asks, and says who got ahead of whom.

1. Urgent is who is interactive, overdue, or computes a prefix that one of these waits for. Urgent goes before batch,
   also before batch that has begun: that keeps its memory, and goes on afterwards.
2. A document has more than 4,096 tokens to compute. One is prefilled at a time, and a second one is not started.
3. A shorter request may go before a document that came earlier, 3 times in all; among shorter ones the first to come
   is the first. An overdue batch request is not overtaken.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from engine.line import Line, is_overdue
from engine.request import Request
from engine.siblings import Siblings

DOCUMENT_TOKENS: Final = 4096
DOCUMENT_OVERTAKEN_LIMIT: Final = 3


def num_left(request: Request) -> int:
    """Tokens to prefill. The last token known is the first input of decoding, so it is not among them."""
    return request.input_len - 1 - request.prefilled_len


class Precedence:
    """Reads the line and the siblings of the scheduler; of a request it changes `num_overtaken`."""

    def __init__(self, line: Line, siblings: Siblings) -> None:
        self._line = line
        self._siblings = siblings
        self.overtakes = 0

    def is_urgent(self, request: Request, now: float) -> bool:
        if request.request_class == "interactive" or is_overdue(request, now):
            return True
        return any(self.is_urgent(waiting, now) for waiting in self._siblings.waiting_for(request))

    def is_document(self, request: Request) -> bool:
        left = num_left(request)
        if request.phase == "queued" and left > DOCUMENT_TOKENS:
            left -= self._siblings.restorable_len(request)
        return left > DOCUMENT_TOKENS

    def next_slice(self, prefilling: Sequence[Request], now: float) -> Request:
        """Of those that have started, in that order."""
        return min(prefilling, key=lambda each: (not self.is_urgent(each, now), self.is_document(each)))

    def first(self, line: Iterable[Request], prefilling: Sequence[Request], now: float) -> list[Request]:
        """The first of `line` that would go before all who are prefilled, behind the documents that it overtakes.

        Empty when nobody would.
        """
        looked_at = []
        for request in line:
            looked_at.append(request)
            if all(self._goes_before(request, started, now) for started in prefilling):
                return looked_at
            if not self._may_be_overtaken(request, now):
                break
        return []

    def youngest(self, requests: Sequence[Request], now: float) -> Request:
        """The last to come, batch before urgent: so the oldest always gets on."""
        return max(requests, key=lambda each: (not self.is_urgent(each, now), self._line.arrival(each)))

    def count_overtaking(self, request: Request, passed: Sequence[Request], prefilling: Sequence[Request]) -> None:
        """`request` starts before the documents `passed` in line and before all who are prefilled.

        Who waits for a prefix is not held up by who passes it, so nothing is counted there.
        """
        arrival = self._line.arrival(request)
        overtaken = [*passed, *(each for each in prefilling if self._line.arrival(each) < arrival)]
        if request.request_class == "interactive":
            earlier = (each for each in self._line.batch if self._line.arrival(each) < arrival)
            overtaken += (each for each in earlier if not self._siblings.is_waiting(each))
        for each in overtaken:
            each.num_overtaken += 1
        self.overtakes += len(overtaken)

    def _goes_before(self, request: Request, started: Request, now: float) -> bool:
        """Whether `request`, from the line, may start and be prefilled before `started` goes on."""
        are_documents = self.is_document(request) and self.is_document(started)
        if are_documents and request.request_class == started.request_class:
            return False
        is_urgent = self.is_urgent(request, now)
        if is_urgent != self.is_urgent(started, now):
            return is_urgent
        if self.is_document(request) or not self.is_document(started):
            return False
        return self._line.arrival(request) < self._line.arrival(started) or self._may_be_overtaken(started, now)

    def _may_be_overtaken(self, request: Request, now: float) -> bool:
        """By a shorter one that came later."""
        if is_overdue(request, now) or request.num_overtaken >= DOCUMENT_OVERTAKEN_LIMIT:
            return False
        return self.is_document(request)
