"""From sampled tokens to the events that a client gets, up to the one that ends its request.

It touches no device and decides no order; what a request holds is released by whoever made this (`engine.worker`).
"""

import logging
from collections.abc import Callable, Sequence

from engine.endings import failed, finished
from engine.errors import EngineError, TextFailed, traced
from engine.mailbox import Mailbox
from engine.request import Request, SampledToken
from engine.status import Counters
from engine.wire import Event, FinishReason, Prefill

logger = logging.getLogger(__name__)

PROGRESS_S = 0.25


class Answering:
    """Every request ends through `finish` or `fail`, once. `release` frees what it holds, before its last event."""

    def __init__(
        self,
        *,
        counters: Counters,
        mailbox: Mailbox,
        release: Callable[[Request], None],
        clock: Callable[[], float],
    ) -> None:
        self._counters = counters
        self._mailbox = mailbox
        self._release = release
        self._clock = clock

    def tell_progress(self, request: Request) -> None:
        """Four times a second at most, never behind the first token, and never less than before: a resumed request
        catches up unseen.
        """
        now = self._clock()
        if request.tokens or now - request.last_progress_at < PROGRESS_S:
            return
        request.last_progress_at = now
        request.told_len = processed = max(request.told_len, min(request.prefilled_len, request.prompt_len))
        self._deliver(request, [Prefill(processed=processed, cached=request.cached_len, total=request.prompt_len)])

    def take_token(self, request: Request, token: SampledToken) -> None:
        request.tokens.append(token.token)
        try:
            events = list(request.output.push(token))
        except Exception as error:  # a fault in the text side of one request must not take the weights down
            logger.error("text failed id=%s error=%s", request.id, traced(error))
            self.fail(request, TextFailed())
            return
        finish = request.output.finish
        is_last = finish is not None or len(request.tokens) >= request.max_tokens
        if request.first_token_at is None and (events or is_last):
            request.first_token_at = self._clock()
            request.first_emission_tokens = len(request.tokens)
        if is_last:
            self.finish(request, "length" if finish is None else finish.reason, events)
        elif events:
            self._deliver(request, events)

    def finish(self, request: Request, reason: FinishReason, events: Sequence[Event] = ()) -> None:
        """End a request well: `events`, what the text side held back, then Finished."""
        try:
            held_back, finish = request.output.close(reason)
        except Exception as error:  # as above
            logger.error("text failed id=%s error=%s", request.id, traced(error))
            self.fail(request, TextFailed())
            return
        ending = finished(request, finish, now=self._clock())
        if ending.reason == "cancelled":
            self._counters.cancelled += 1
        else:
            self._counters.completed += 1
        self._release(request)
        self._deliver(request, [*events, *held_back, ending])
        logger.info(
            "request finished id=%s reason=%s prompt_tokens=%d cached=%d tokens=%d wait_ms=%d prefill_ms=%d "
            "decode_ms=%d",
            *(request.id, ending.reason, ending.usage.prompt, ending.usage.cached, ending.usage.completion),
            *(ending.timings.wait_ms, ending.timings.prefill_ms, ending.timings.decode_ms),
        )

    def fail(self, request: Request, error: EngineError) -> None:
        ending = failed(request, error, now=self._clock())
        self._counters.failed += 1
        self._release(request)
        self._deliver(request, [ending])
        logger.warning("request failed id=%s code=%s reason=%s", request.id, error.code, error.message)

    def _deliver(self, request: Request, events: Sequence[Event]) -> None:
        try:
            request.deliver(events)
        except Exception:  # the other end is gone: the request ends at the next look at the mailbox
            logger.warning("events could not be delivered id=%s", request.id)
            self._mailbox.cancel(request.id)
