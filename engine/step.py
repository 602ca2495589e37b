"""The two things that the device does: one slice of a prompt, and one token for every decoding stream.

It decides nothing about order or sizes, and knows nothing about text or grammars.

The life of a prompt: all its tokens but the last are prefilled on the request's own caches; the last one is the first
input of the decoding batch, whose next step gives the first token. So joining costs no forward of its own.
"""

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from engine.blocks import BLOCK_TOKENS
from engine.errors import ConstraintFailed, NonFiniteLogits, traced
from engine.layout import Caches, Layout, arrays_of
from engine.prefix.store import Snapshot
from engine.request import Request, SampledToken
from engine.sampling import Choice, Sampler, choose_tokens

logger = logging.getLogger(__name__)


def prefill_slice(model: Any, caches: Caches, tokens: Sequence[int]) -> None:
    """Append `tokens` to one sequence's caches; returns when the device is done. Computes no logits."""
    model(mx.array(list(tokens), mx.uint32)[None], cache=caches)
    mx.eval(arrays_of([cache.state for cache in caches]))


@dataclass(slots=True, eq=False)
class Stream:
    """A decoding request on the device. `next_token` is what goes in next, once it is known to the host.

    `length`: tokens in its caches once all launched steps are done. `num_launched`: tokens that it has by then, perhaps
    more than it may have. `checkpoint`: the newest copy of its fixed state.
    `failure`: its grammar has failed; what was sampled since is not valid, and the next outcome says so.
    """

    request: Request
    sampler: Sampler
    next_token: int = field(repr=False)
    length: int
    num_launched: int = 0
    checkpoint: Snapshot | None = None
    failure: ConstraintFailed | None = None

    @property
    def is_all_launched(self) -> bool:
        return self.num_launched >= self.request.max_tokens

    @property
    def is_beyond_end(self) -> bool:
        return self.num_launched > self.request.max_tokens


@dataclass(slots=True, eq=False)
class Launch:
    """A step that the device may still be computing. `rows[stream]` is the stream's row in the arrays of `choice`."""

    choice: Choice = field(repr=False)
    rows: dict[Stream, int]
    width: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step gave one request."""

    request: Request
    result: SampledToken | NonFiniteLogits | ConstraintFailed


@dataclass(frozen=True, slots=True)
class DecodedStep:
    width: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """What a stream leaves behind: caches that hold `length` tokens, all of them known to the host by now."""

    caches: Caches
    length: int
    checkpoint: Snapshot | None


Capture = Callable[[Caches, int], Snapshot]
"""Takes fixed state and the number of tokens that it covers; the copy is evaluated with the step."""


class Decoder:
    """The decoding streams. A step is launched before the tokens of the one before are read, so the device never waits.

    A grammar must know a token before the next is sampled. So while one binds, the next forward is launched, the tokens
    before it are read and the masks made while the device computes, and the sampling is launched behind it.

    Most of an answer is free: a thought, or text before a call. Which token ends that shows only when it is read. So
    while no grammar binds, the sampling is launched too; where one turns out to bind behind the token that was read,
    all rows are sampled again from the same logits, before anything has seen what they were sampled as.

    Invariant: streams are in the order of the layout's rows. A stream that ends while a step is in flight simply
    loses its row in it: the token computed beyond its end is dropped.
    """

    def __init__(self, layout: Layout, *, capture: Capture | None = None) -> None:
        """With `capture`, a stream's fixed state is copied at each multiple of a block: that is where it can resume."""
        self._layout = layout
        self._capture = capture
        self._streams: list[Stream] = []
        self._in_flight: Launch | None = None
        self._is_bound = False  # did a grammar bind a row when masks were last made?

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, request: Request) -> bool:
        return any(stream.request is request for stream in self._streams)

    @property
    def kv_bytes(self) -> int:
        return self._layout.kv_bytes

    def join(self, request: Request, caches: Caches, sampler: Sampler) -> None:
        """Add a request whose input is in `caches` but for the last token."""
        self._layout.join(caches)
        length = request.input_len - 1
        (next_token,) = request.inputs(length, length + 1)
        self._streams.append(
            Stream(request, sampler, next_token=next_token, length=length, num_launched=len(request.tokens))
        )

    def leave(self, request: Request) -> Left:
        index = next(i for i, stream in enumerate(self._streams) if stream.request is request)
        stream = self._streams.pop(index)
        left = Left(self._layout.sequence(index), stream.length, stream.checkpoint)
        self._layout.leave(index)
        if self._in_flight is not None:
            self._in_flight.rows.pop(stream, None)
            if not self._in_flight.rows:
                self._in_flight = None
        return left

    def step(self) -> DecodedStep:
        """The oldest step that was not read yet; the next one is launched before it is waited for."""
        current = self._in_flight or self._launch()
        self._in_flight = current
        if all(stream.is_all_launched for stream in self._streams):
            self._in_flight = None
            return self._read(current)
        logits = self._forward()
        if not self._is_constrained:
            self._in_flight = self._sample(logits)
            return self._read(current)
        if self._is_bound:
            mx.async_eval(logits, self._layout.pending())  # type: ignore[no-untyped-call]  # so in MLX's stubs
            decoded = self._read(current)
            self._in_flight = self._sample(logits, self._masks())
            return decoded
        samplers = [copy.copy(stream.sampler) for stream in self._streams]
        self._in_flight = self._sample(logits)
        decoded = self._read(current)
        masks = self._masks()
        if masks is not None:
            for stream, sampler in zip(self._streams, samplers, strict=True):
                stream.sampler = sampler
            self._in_flight = self._sample(logits, masks)
        return decoded

    def drain(self) -> DecodedStep | None:
        """Read the step in flight without launching another, so that its tokens do not wait for what comes next."""
        current, self._in_flight = self._in_flight, None
        return None if current is None else self._read(current)

    def _launch(self) -> Launch:
        logits = self._forward()
        return self._sample(logits, self._masks())

    def _forward(self) -> mx.array:
        for row, stream in enumerate(self._streams):
            self._layout.make_room(row, stream.request.room_len)
        logits = self._layout.forward(self._inputs())
        for stream in self._streams:
            stream.num_launched += 1
            stream.length += 1
        return logits

    def _sample(self, logits: mx.array, masks: list[bytes | None] | None = None) -> Launch:
        choice = choose_tokens(logits, [stream.sampler for stream in self._streams], masks)
        mx.async_eval(  # type: ignore[no-untyped-call]  # so in MLX's stubs
            choice.arrays(), self._layout.pending(), self._checkpoint()
        )
        return Launch(choice, {stream: row for row, stream in enumerate(self._streams)}, len(self._streams))

    @property
    def _is_constrained(self) -> bool:
        return any(stream.request.constraint is not None for stream in self._streams)

    def _masks(self) -> list[bytes | None] | None:
        """What each row may say next; None when every row may say anything. Once for each token of a stream."""
        masks = [self._mask(stream) for stream in self._streams]
        self._is_bound = any(mask is not None for mask in masks)
        return masks if self._is_bound else None

    def _mask(self, stream: Stream) -> bytes | None:
        constraint = stream.request.constraint
        if constraint is None or stream.failure is not None or stream.is_beyond_end:
            return None
        try:
            return constraint.allowed()
        except Exception as error:  # as below
            stream.failure = _constraint_failed(stream.request, error)
            return None

    def _checkpoint(self) -> list[mx.array]:
        """Copies of the fixed state of every stream that stands at a multiple of a block now."""
        copies: list[mx.array] = []
        if self._capture is None:
            return copies
        for row, stream in enumerate(self._streams):
            if stream.length % BLOCK_TOKENS == 0:
                stream.checkpoint = self._capture(self._layout.sequence(row), stream.length)
                copies += stream.checkpoint.arrays()
        return copies

    def _inputs(self) -> mx.array:
        """Tokens (B,) to append: from the device where they are still there, from the host for who joined since."""
        launch = self._in_flight
        if launch is None:
            return mx.array([stream.next_token for stream in self._streams], mx.uint32)
        carried = [launch.rows[stream] for stream in self._streams if stream in launch.rows]
        joined = [stream.next_token for stream in self._streams if stream not in launch.rows]
        tokens = launch.choice.tokens
        if len(carried) < launch.width:
            tokens = tokens[mx.array(carried, mx.uint32)]
        return mx.concatenate([tokens, mx.array(joined, mx.uint32)]) if joined else tokens

    def _read(self, launch: Launch) -> DecodedStep:
        mx.eval(launch.choice.arrays())
        tokens: Any = launch.choice.tokens.tolist()
        is_finite = launch.choice.finite_rows()
        outcomes = []
        for stream, row in launch.rows.items():
            stream.next_token = tokens[row]
            result: SampledToken | NonFiniteLogits | ConstraintFailed
            if not is_finite[row]:
                result = NonFiniteLogits(position=stream.request.prompt_len + len(stream.request.tokens))
            else:
                result = _accepted(stream, tokens[row]) or launch.choice.sampled(row, tokens[row])
            outcomes.append(Outcome(stream.request, result))
        return DecodedStep(launch.width, tuple(outcomes))


def _accepted(stream: Stream, token: int) -> ConstraintFailed | None:
    """Tell the stream's grammar; return why the token does not count."""
    if stream.request.constraint is not None and stream.failure is None:
        try:
            stream.request.constraint.accept(token)
        except Exception as error:  # a fault in the grammar of one request must not take the weights down
            stream.failure = _constraint_failed(stream.request, error)
    return stream.failure


def _constraint_failed(request: Request, error: Exception) -> ConstraintFailed:
    if isinstance(error, ConstraintFailed):
        return error
    logger.error("grammar failed id=%s error=%s", request.id, traced(error))
    return ConstraintFailed("it raised an error")
