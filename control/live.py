"""One request while it lives: its phase, counts, speeds and times; told as a slot, a place in the line, or a row.

It moves nothing: the relay owns it, and reports what happened.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from control.dialects.exchange import Exchange, HeartbeatMode
from control.errors import ApiError
from control.fifo import Ticket
from control.wire import Outcome, RequestPhase, RequestRow, Slot, Waiting
from engine import wire

# Long enough to be calm on the page, short enough to show what happens now.
SPEED_WINDOW_S: Final = 3.0
# Before this much of a phase has passed, a speed would be noise.
SPEED_MINIMUM_S: Final = 0.2

CANCELLED_CODES: Final = ("client_gone", "request_cancelled")


class Speed:
    """Tokens per second over the last few seconds, from a total that grows. Counting starts at the first sample."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, total: int) -> None:
        self._samples.append((now, total))
        while len(self._samples) > 2 and self._samples[1][0] <= now - SPEED_WINDOW_S:
            self._samples.popleft()

    def per_second(self, now: float) -> float | None:
        """None until there is enough to tell. It falls while nothing comes, to 0 when the window saw nothing at all."""
        if len(self._samples) < 2:
            return None
        # Counted from the last sample before the window: an old burst must not be spread thinner and thinner.
        before = [sample for sample in self._samples if sample[0] <= now - SPEED_WINDOW_S]
        began_at, first_total = before[-1] if before else self._samples[0]
        # A stall before the window counts for as much as the window, not for all of its time.
        elapsed_s = min(now - began_at, 2 * SPEED_WINDOW_S)
        if elapsed_s < SPEED_MINIMUM_S:
            return None
        return (self._samples[-1][1] - first_total) / elapsed_s


class Life:
    """Times are monotonic seconds, but `started_wall_s`. Counts are of the present run; a second one starts anew."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        number: int,
        key: str,
        ticket: Ticket,
        now: float,
        started_wall_s: float,
        heartbeat: HeartbeatMode = "comment",
    ) -> None:
        self.exchange = exchange
        self.number = number
        self.key = key
        self.ticket = ticket
        self.written_for = exchange.model
        """The model that was to answer when it came: token ids mean something to that one only."""
        self.broken_runs = 0
        """Runs that the engine began and did not end."""
        self.slot: int | None = None
        self.prompt_tokens: int | None = None
        self.finished: wire.Finished | None = None
        self.error: ApiError | None = None
        self.is_client_gone = False
        self._started_at = now
        self._started_wall_s = started_wall_s
        self._admitted_at: float | None = None
        self.model = exchange.model
        """The one that answers; before, the one that was to answer as far as is known, else the name asked for."""
        self.encoder = exchange.encoder(heartbeat=heartbeat)
        """Of all runs: it remembers what went out."""
        self.has_entered = asyncio.Event()
        """It was counted, and may be admitted."""
        self._start_counting()

    @property
    def id(self) -> str:
        return self.exchange.generate.id

    def _start_counting(self) -> None:
        self._cached_tokens = 0
        self._prefilled_tokens = 0
        self._output_tokens = 0
        self._reasoning_tokens = 0
        self._step_at: float | None = None
        self._first_token_at: float | None = None
        self._first_emission_tokens = 0
        self._newest_token_at: float | None = None
        self._largest_gap_s: float | None = None
        self._is_suspended = False
        self._usage: wire.Usage | None = None
        self._timings: wire.Timings | None = None
        self._prefill_speed = Speed()
        self._decode_speed = Speed()

    # --- What the relay reports ---

    def expect(self, model: str) -> None:
        """Who will answer, as far as anybody knows now."""
        self.model = model
        self.encoder.expect(model=model, prompt_tokens=self.prompt_tokens)

    def counted(self, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.expect(self.model)

    def admitted(self, *, slot: int, now: float) -> None:
        self.slot = slot
        self._admitted_at = now

    def put_back(self) -> None:
        self.slot = self._admitted_at = None
        self._start_counting()

    def happened(self, events: Sequence[wire.AnyEvent], now: float) -> None:
        """Events that came together."""
        num_tokens = 0
        for event in events:
            match event:
                case wire.Accepted():
                    self.prompt_tokens = event.prompt_tokens
                case wire.Prefill():
                    self._prefill(event, now)
                case wire.TextDelta():
                    num_tokens += max(1, len(event.logprobs))
                case wire.ReasoningDelta():
                    num_tokens += max(1, len(event.logprobs))
                    self._reasoning_tokens += max(1, len(event.logprobs))
                case wire.ToolCallBegin() | wire.ToolCallDelta():
                    num_tokens += 1
                case wire.Finished():
                    self.finished = event
                    self._usage, self._timings = event.usage, event.timings
                case wire.Failed():
                    self._usage, self._timings = event.usage, event.timings
        if num_tokens:
            self._emitted(num_tokens, now)

    def sampled(self, status: wire.RequestStatus, now: float) -> None:
        """The engine's own count, from /status: events may each hold more than one token; and whether it is paused."""
        self._is_suspended = status.is_suspended
        if status.output_tokens > self._output_tokens and self._first_token_at is not None:
            self._output_tokens = status.output_tokens
            self._decode_speed.add(now, self._output_tokens)

    def _prefill(self, event: wire.Prefill, now: float) -> None:
        self._is_suspended = False
        if self._step_at is None:
            self._step_at = now
        # A bar that goes back, or past its end, is a lie: the engine promises neither, and the page shows neither.
        self.prompt_tokens = event.total
        self._cached_tokens = min(max(self._cached_tokens, event.cached), event.total)
        self._prefilled_tokens = min(max(self._prefilled_tokens, event.processed), event.total)
        self._prefill_speed.add(now, self._prefilled_tokens)

    def _emitted(self, num_tokens: int, now: float) -> None:
        if self._first_token_at is None:
            self._first_token_at = now
            self._first_emission_tokens = num_tokens
            self._prefilled_tokens = self.prompt_tokens or self._prefilled_tokens
        if self._newest_token_at is not None:
            # A pause to give memory to others is in it, too: for the client it is a wait like any other.
            self._largest_gap_s = max(self._largest_gap_s or 0.0, now - self._newest_token_at)
        self._newest_token_at = now
        self._is_suspended = False
        # The first sample holds the first emission: those tokens belong to the prefill, not to the decode speed.
        self._output_tokens += num_tokens
        self._decode_speed.add(now, self._output_tokens)

    # --- What others ask ---

    @property
    def is_decoding(self) -> bool:
        return self.slot is not None and self._first_token_at is not None

    @property
    def is_generating(self) -> bool:
        """It decodes, and has the memory to go on."""
        return self.is_decoding and not self._is_suspended

    def tokens_per_second(self, now: float) -> float | None:
        """Of the phase that it is in."""
        speed = self._decode_speed if self.is_decoding else self._prefill_speed
        return speed.per_second(now)

    def as_slot(self, now: float) -> Slot:
        assert self.slot is not None
        return Slot(
            slot=self.slot,
            id=self.id,
            number=self.number,
            key=self.key,
            dialect=self.exchange.dialect,
            phase="decode" if self.is_decoding else "prefill",
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self._cached_tokens,
            prefilled_tokens=self._prefilled_tokens,
            output_tokens=self._output_tokens,
            tokens_per_second=self.tokens_per_second(now),
            eta_s=self._eta_s(now),
            elapsed_s=now - self._started_at,
            stream=self.exchange.is_stream,
            is_suspended=self._is_suspended,
        )

    def as_waiting(self, *, position: int, phase: RequestPhase, now: float) -> Waiting:
        return Waiting(
            id=self.id,
            number=self.number,
            position=position,
            key=self.key,
            dialect=self.exchange.dialect,
            phase=phase,
            request_class=self.ticket.request_class,
            prompt_tokens=self.prompt_tokens,
            waited_s=now - self._started_at,
        )

    def as_row(self, now: float) -> RequestRow:
        usage = self._row_usage()
        return RequestRow(
            id=self.id,
            number=self.number,
            started_at_s=self._started_wall_s,
            key=self.key,
            dialect=self.exchange.dialect,
            model=self.model,
            stream=self.exchange.is_stream,
            outcome=self.outcome,
            error_code=self.error_code,
            finish_reason=self.finished.reason if self.finished else None,
            queue_ms=self._queue_ms(now),
            prefill_ms=self._prefill_ms(now),
            decode_ms=self._decode_ms(now),
            ttft_ms=_ms(self._started_at, self._first_token_at),
            total_ms=(now - self._started_at) * 1000,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            completion_tokens=usage.completion,
            reasoning_tokens=usage.reasoning,
            request_class=self.ticket.request_class,
            first_emission_tokens=self._first_emission(),
            drafted_tokens=usage.drafted,
            accepted_tokens=usage.accepted,
            largest_gap_ms=None if self._largest_gap_s is None else self._largest_gap_s * 1000,
        )

    @property
    def outcome(self) -> Outcome:
        """Rejected: it was refused before it could run. An answer that was complete stays so, whoever left then."""
        if self.finished is not None and self.error is None:
            return "completed"
        if self.error_code in CANCELLED_CODES:
            return "cancelled"
        was_in_line = self.ticket.arrival and (self.ticket.is_ready or self.ticket.interruption is not None)
        return "failed" if was_in_line else "rejected"

    @property
    def error_code(self) -> str | None:
        if self.error is not None:
            return self.error.code
        return "client_gone" if self.is_client_gone and self.finished is None else None

    def _eta_s(self, now: float) -> float | None:
        """Until the first token; a decode ends when it ends."""
        speed = self._prefill_speed.per_second(now)
        if self.is_decoding or self._is_suspended or not speed or self.prompt_tokens is None:
            return None
        return (self.prompt_tokens - self._prefilled_tokens) / speed

    def _row_usage(self) -> wire.Usage:
        """The engine counts the whole prompt however little of it was read: nothing else was used, or has a price."""
        usage = self._usage or wire.Usage(
            prompt=self.prompt_tokens or 0,
            cached=self._cached_tokens,
            completion=self._output_tokens,
            reasoning=self._reasoning_tokens,
        )
        if self._is_read:
            return usage
        return msgspec.structs.replace(usage, prompt=self._prefilled_tokens, cached=self._cached_tokens)

    @property
    def _is_read(self) -> bool:
        """The prompt, to its end: a token came, though it may be one that is not shown."""
        is_answered = self.finished is not None and self.finished.reason != "cancelled"
        return is_answered or self._first_token_at is not None or (self._usage or wire.Usage()).completion > 0

    @property
    def _has_begun(self) -> bool:
        return self._is_read or self._step_at is not None

    def _queue_ms(self, now: float) -> float | None:
        """Of one that never got a step, all of its wait."""
        if not self._has_begun:
            return None if self.outcome == "rejected" else _ms(self._started_at, now)
        if self._admitted_at is None or self._timings is None:
            return _ms(self._started_at, self._began_at)
        return (self._admitted_at - self._started_at) * 1000 + self._timings.wait_ms

    def _prefill_ms(self, now: float) -> float | None:
        if not self._has_begun:
            return None
        if self._timings is not None:
            return self._timings.prefill_ms
        return _ms(self._began_at, now if self._first_token_at is None else self._first_token_at)

    @property
    def _began_at(self) -> float | None:
        """The first step, which the engine tells of; its admission when it did not."""
        return self._admitted_at if self._step_at is None else self._step_at

    def _first_emission(self) -> int:
        """By the engine's count: one event can hold several tokens. Without it, as far as the events tell."""
        return self._first_emission_tokens if self._timings is None else self._timings.first_emission_tokens

    def _decode_ms(self, now: float) -> float | None:
        if not self._is_read:
            return None
        if self._timings is not None:
            return self._timings.decode_ms
        return _ms(self._first_token_at, now)


def _ms(since: float | None, until: float | None) -> float | None:
    if since is None or until is None:
        return None
    return (until - since) * 1000
