"""The life of one request: counted, in line, in the engine, answered; or ended on the way. One row in any case.

It knows no dialect and no process: an exchange says what is asked and how answers look, an engine source who is there.

1. No model and none on the way: 503. No room in the line: 429. Else it has its place in the line.
2. It is counted, while others pass: a prompt that can't fit is a 400. Then it waits for a slot, up to 24 hours.
3. It runs. If the engine dies before anything but heartbeats was sent, it waits at its old place and runs once more.
4. A stream that was counted and has got nothing for a second gets headers and heartbeats; later errors are frames.
5. Client gone, in any of these: the task that serves is cancelled; the engine sees its connection close.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

import msgspec

from control.counting import CountingTurns
from control.delivery import Delivery
from control.dialects.error_answers import AnswerOf
from control.dialects.exchange import Encoder, Exchange, HeartbeatMode, default_heartbeat
from control.dialects.models import known_as
from control.engine_client import EngineClient, EngineSource
from control.errors import (
    ApiError,
    CancelledByOperator,
    ContextTooLong,
    EngineDied,
    EngineGone,
    EngineRefused,
    InternalError,
    KeyLimitReached,
    ModelChanged,
    NoModel,
    NoTokenizer,
    traced,
)
from control.fifo import MAXIMUM_CONCURRENCY, Line, Ticket
from control.keys import Key
from control.live import Life
from control.metrics.plausible import plausible
from control.quotas import Entry, Quotas
from control.refusals import failure, translated
from control.wire import RequestPhase, RequestRow, Slot, Waiting
from engine import wire

logger = logging.getLogger(__name__)

HEARTBEAT_S: Final = 15.0
# Early failures keep their status that long; no client that was measured gives up within it.
GRACE_S: Final = 1.0
# Counting 262k tokens takes seconds, behind others longer; so long an overflow can still be a 400.
COUNT_PATIENCE_S: Final = 20.0
# A request that killed two engines is the likely cause, and gets no third.
RUNS_LIMIT: Final = 2
# How long the supervisor may take to see that an engine is gone; later, only the connection is taken to have broken.
NOTICE_LIMIT_S: Final = 10.0
NOTICE_CHECK_S: Final = 0.05
# A client that leaves and asks again at once is here before its leaving was seen; its limit does not count it twice.
LEAVING_LIMIT_S: Final = 0.5
LEAVING_CHECK_S: Final = 0.02


class Relay:
    """`record` takes each row, once per request, and must not block. `first_number` is where numbering goes on.

    `heartbeat_of` says how a dialect's streams are kept alive now: it is a setting. `quotas` None: they begin at zero.
    """

    def __init__(
        self,
        *,
        line: Line,
        source: EngineSource,
        record: Callable[[RequestRow], None],
        first_number: int = 1,
        quotas: Quotas | None = None,
        heartbeat_of: Callable[[str], HeartbeatMode] = default_heartbeat,
        heartbeat_s: float = HEARTBEAT_S,
        grace_s: float = GRACE_S,
        count_patience_s: float = COUNT_PATIENCE_S,
        notice_limit_s: float = NOTICE_LIMIT_S,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._line = line
        self._source = source
        self._record = record
        self._numbers = count(first_number)
        self._quotas = quotas or Quotas()
        self._heartbeat_of = heartbeat_of
        self._heartbeat_s = heartbeat_s
        self._grace_s = grace_s
        self._count_patience_s = count_patience_s
        self._notice_limit_s = notice_limit_s
        self._monotonic = monotonic
        self._wall = wall
        self._lives: dict[str, Life] = {}
        self._counting = CountingTurns()

    async def serve(
        self,
        exchange: Exchange,
        key: Key,
        delivery: Delivery,
        *,
        answer_of: AnswerOf,
        request_class: wire.RequestClass | None = None,
    ) -> None:
        """From here to the last byte. Cancel it when the client is gone.

        `request_class` is that of the name that was asked for; it can make a request batch, and no key interactive.
        """
        entry: Entry | None = None
        life = Life(
            exchange,
            number=next(self._numbers),
            key=key.name,
            ticket=Ticket(exchange.generate.id, "batch" if request_class == "batch" else key.request_class),
            now=self._monotonic(),
            started_wall_s=self._wall(),
            heartbeat=self._heartbeat_of(exchange.dialect),
        )
        life.expect(self._model_that_comes(life))
        try:
            await self._until_others_left(key)
            entry = self._quotas.enter(key)
            await self._live(life, delivery)
        except KeyLimitReached as refusal:
            life.error = refusal
        except asyncio.CancelledError:
            life.is_client_gone = True
            raise
        finally:
            self._leave(life, entry)
        if life.error is not None:
            error = life.error
            await delivery.fail(answer=lambda: answer_of(error), frames=lambda: life.encoder.error(error))

    async def count(self, prompt: wire.Prompt, key: Key) -> int:
        """Tokens of a prompt that nobody wants an answer to, however long it is. Cancel it when the client is gone.

        Raises NoTokenizer, InvalidRequest and KeyLimitReached.
        """
        await self._until_others_left(key)
        self._quotas.begin_count(key)
        try:
            async with self._counting.turn(key.id):
                return await self._counted(prompt)
        finally:
            self._quotas.end_count(key)

    def cancel(self, request_id: str) -> bool:
        """By a person: the client gets a typed error. False when there is none, or it has its whole answer."""
        life = self._lives.get(request_id)
        if life is not None and life.finished is not None:
            return False
        return self._line.interrupt(request_id, CancelledByOperator())

    def sampled(self, status: wire.Status) -> None:
        """A new /status of the engine: its counts are better than those that the events give."""
        now = self._monotonic()
        for sample in status.requests:
            life = self._lives.get(sample.id.partition(".")[0])
            if life is not None:
                life.sampled(sample, now)

    def slots(self) -> tuple[Slot | None, ...]:
        """Always as many as slots can be; a request keeps its own from admission to the end."""
        now = self._monotonic()
        by_slot = {life.slot: life.as_slot(now) for life in self._lives.values() if life.slot is not None}
        return tuple(by_slot.get(slot) for slot in range(MAXIMUM_CONCURRENCY))

    def waiting(self) -> tuple[Waiting, ...]:
        """In the order in which they will go."""
        now = self._monotonic()
        phase: RequestPhase = "waiting" if self._line.is_open else "held"
        return tuple(
            self._lives[ticket.request_id].as_waiting(position=position, phase=phase, now=now)
            for position, ticket in enumerate(self._line.waiting, start=1)
        )

    def num_decoding(self) -> int:
        return sum(life.is_generating for life in self._lives.values())

    def decode_tokens_per_second(self) -> float | None:
        """Of all streams together, over the last few seconds. None when none decodes long enough to tell."""
        now = self._monotonic()
        speeds = [life.tokens_per_second(now) for life in self._lives.values() if life.is_generating]
        known = [speed for speed in speeds if speed is not None]
        return sum(known) if known else None

    # --- The steps of a life ---

    async def _live(self, life: Life, delivery: Delivery) -> None:
        """Every step, with heartbeats beside; until the end, an error or an interruption."""
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(self._beat(life, delivery))
            work = group.create_task(self._work(life, delivery))
            work.add_done_callback(lambda _: beat.cancel())
            # An answer that is complete is not taken from a client that is slow to read its end.
            life.ticket.on_interrupt = lambda: delivery.is_over or work.cancel()
        if life.ticket.interruption is not None and not delivery.is_over:
            life.error = life.ticket.interruption

    async def _counted(self, prompt: wire.Prompt) -> int:
        engine = self._source.engine
        if engine is None:
            raise NoTokenizer
        try:
            return (await engine.count(prompt)).prompt_tokens
        except EngineGone as error:
            raise NoTokenizer from error
        except EngineRefused as error:
            reason = translated(error.answer, lambda field: field.removeprefix("prompt."))
            if isinstance(reason, ContextTooLong):
                return reason.prompt_tokens
            raise NoTokenizer if isinstance(reason, EngineGone) else reason from error

    async def _until_others_left(self, key: Key) -> None:
        limit, deadline = key.limits.max_in_flight, self._monotonic() + LEAVING_LIMIT_S
        if limit is None:
            return
        while self._quotas.usage(key.id).in_flight >= limit and self._monotonic() < deadline:  # noqa: ASYNC110  # no event
            await asyncio.sleep(LEAVING_CHECK_S)

    async def _beat(self, life: Life, delivery: Delivery) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._count_patience_s):
                await life.has_entered.wait()
        await delivery.beat(
            lambda is_yielded: life.encoder.heartbeat(is_yielded=is_yielded),
            grace_s=self._grace_s,
            interval_s=self._heartbeat_s,
        )

    async def _work(self, life: Life, delivery: Delivery) -> None:
        try:
            await self._enter(life)
            await self._run(life, delivery)
        except ApiError as error:
            life.error = error
        except Exception as error:
            # Whatever our mistake was, the client gets an answer and the other requests go on.
            logger.error("request broke id=%s error=%s", life.id, traced(error))
            life.error = InternalError()

    async def _enter(self, life: Life) -> None:
        if self._source.availability == "none":
            # The same object for all of them: its trace would grow with each.
            raise (self._line.refusal or NoModel()).with_traceback(None)
        self._line.join(life.ticket, is_ready=False)
        self._lives[life.id] = life
        # It may be another than when it came: a full key waited for its place.
        life.expect(self._model_that_comes(life))
        life.written_for = life.model if self._source.model is None else self._source.model.id
        await self._count(life)
        self._line.ready(life.ticket)
        life.has_entered.set()

    async def _count(self, life: Life) -> None:
        """Refuse what cannot fit while it still can be a 400. Without an engine that answers, it is found out later."""
        engine = self._source.engine
        if engine is None:
            return
        try:
            answer = await engine.count(life.exchange.generate.prompt, life.id)
        except EngineGone as error:
            logger.info("prompt not counted id=%s reason=%s", life.id, error)
            return
        except EngineRefused as error:
            reason = translated(error.answer, life.exchange.field)
            if isinstance(reason, EngineGone):
                return
            raise reason from error
        if answer.prompt_tokens >= answer.maximum_context_tokens:
            raise ContextTooLong(
                prompt_tokens=answer.prompt_tokens,
                maximum_context_tokens=answer.maximum_context_tokens,
                param=life.exchange.field("prompt"),
            )
        life.counted(answer.prompt_tokens)

    def _model_that_comes(self, life: Life) -> str:
        """The id that will answer, as far as anybody knows now: the loaded one, the one on its way, the last one.

        The name asked for when there never was any.
        """
        model, wanted_model = self._source.model, self._source.wanted_model
        if model is not None and (self._source.engine is not None or wanted_model is None):
            return model.id
        return life.exchange.model if wanted_model is None else known_as(wanted_model)

    async def _run(self, life: Life, delivery: Delivery) -> None:
        while True:
            await self._line.wait(life.ticket)
            life.admitted(slot=self._free_slot(), now=self._monotonic())
            engine = self._source.engine
            try:
                await self._generate(life, engine, delivery)
                return
            except EngineGone as error:
                logger.warning("engine broke off id=%s reason=%s", life.id, error)
                life.broken_runs += error.was_reached
                if delivery.has_emitted or life.broken_runs == RUNS_LIMIT:
                    raise EngineDied from error
            await self._until_noticed(engine)
            if self._source.availability == "none":
                raise EngineDied
            life.put_back()
            self._line.put_back(life.ticket)

    async def _generate(self, life: Life, engine: EngineClient | None, delivery: Delivery) -> None:
        if engine is None:
            raise EngineGone("it is not ready", was_reached=False)
        model = self._model_that_comes(life)
        if life.exchange.generate.prompt.tokens is not None and model != life.written_for:
            raise ModelChanged(wanted=life.written_for, loaded=model)
        life.expect(model)
        try:
            async with engine.generate(_request(life)) as generation:
                async for events in generation:
                    life.happened(events, self._monotonic())
                    await _pass_on(events, life.encoder, delivery)
        except EngineRefused as error:
            raise translated(error.answer, life.exchange.field) from error

    async def _until_noticed(self, engine: EngineClient | None) -> None:
        """Until the supervisor sees that `engine` is gone. The slot is kept meanwhile: nobody shall run into it."""
        deadline = self._monotonic() + self._notice_limit_s
        self._source.look()
        while self._source.engine is engine and self._line.is_open and self._monotonic() < deadline:
            await asyncio.sleep(NOTICE_CHECK_S)
            self._source.look()

    def _free_slot(self) -> int:
        taken = {life.slot for life in self._lives.values()}
        return next(slot for slot in range(MAXIMUM_CONCURRENCY) if slot not in taken)

    def _leave(self, life: Life, entry: Entry | None) -> None:
        self._lives.pop(life.id, None)
        self._line.leave(life.ticket)
        row = plausible(life.as_row(self._monotonic()))
        if entry is not None:
            tokens = row.prompt_tokens + row.completion_tokens
            self._quotas.leave(entry, tokens=tokens, was_rejected=row.outcome == "rejected")
        self._record(row)
        logger.info(
            "request %s id=%s number=%d key=%r dialect=%s model=%r error=%s ttft_ms=%s total_ms=%.0f prompt=%d out=%d",
            row.outcome,
            row.id,
            row.number,
            row.key,
            row.dialect,
            row.model,
            row.error_code,
            "-" if row.ttft_ms is None else f"{row.ttft_ms:.0f}",
            row.total_ms,
            row.prompt_tokens,
            row.completion_tokens,
        )


async def _pass_on(events: Sequence[wire.AnyEvent], encoder: Encoder, delivery: Delivery) -> None:
    end = events[-1]
    if isinstance(end, wire.Finished) and end.reason != "cancelled":
        await delivery.end(encoder.encode(events))
        return
    frames = encoder.encode([event for event in events if not isinstance(event, wire.Finished | wire.Failed)])
    if frames:
        await delivery.write(frames)
    if isinstance(end, wire.Finished):
        # Not by us: then nobody would be here to read it.
        raise CancelledByOperator
    if isinstance(end, wire.Failed):
        if end.retryable and not delivery.has_emitted:
            raise EngineGone(end.message, was_reached=True)
        raise failure(end)


def _request(life: Life) -> wire.GenerateRequest:
    """The second run has its own id: the engine may still be ending the first."""
    generate = life.exchange.generate
    request_id = f"{generate.id}.{life.broken_runs}" if life.broken_runs else generate.id
    return msgspec.structs.replace(generate, id=request_id, request_class=life.ticket.request_class)
