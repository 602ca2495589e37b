"""The two things that the device does: one slice of a prompt, and one token for every decoding stream.

It decides nothing about order or sizes, and knows nothing about text.

The life of a prompt: all its tokens but the last are prefilled on the request's own caches; the last one is the first
input of the decoding batch, whose next step gives the first token. So joining costs no forward of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.errors import NonFiniteLogits
from engine.layout import Caches, Layout, arrays_of
from engine.request import Request, SampledToken
from engine.sampling import Choice, Sampler, choose_tokens


def prefill_slice(model: Any, caches: Caches, tokens: Sequence[int]) -> None:
    """Append `tokens` to one sequence's caches; returns when the device is done. Computes no logits."""
    model(mx.array(list(tokens), mx.uint32)[None], cache=caches)
    mx.eval(arrays_of([cache.state for cache in caches]))


@dataclass(slots=True, eq=False)
class Stream:
    """A decoding request on the device. `next_token` is what goes in next, once it is known to the host."""

    request: Request
    sampler: Sampler
    next_token: int
    num_launched: int = 0

    @property
    def is_all_launched(self) -> bool:
        return self.num_launched >= self.request.max_tokens


@dataclass(slots=True, eq=False)
class Launch:
    """A step that the device may still be computing. `rows[stream]` is the stream's row in the arrays of `choice`."""

    choice: Choice
    rows: dict[Stream, int]
    width: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step gave one request."""

    request: Request
    result: SampledToken | NonFiniteLogits


@dataclass(frozen=True, slots=True)
class DecodedStep:
    width: int
    outcomes: tuple[Outcome, ...]


class Decoder:
    """The decoding streams. A step is launched before the tokens of the one before are read, so the device never waits.

    Invariant: streams are in the order of the layout's rows. A stream that ends while a step is in flight simply
    loses its row in it: the token computed beyond its end is dropped.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._streams: list[Stream] = []
        self._in_flight: Launch | None = None

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def kv_bytes(self) -> int:
        return self._layout.kv_bytes

    def join(self, request: Request, caches: Caches, sampler: Sampler) -> None:
        """Add a request whose prompt is in `caches` but for the last token."""
        self._layout.join(caches)
        self._streams.append(Stream(request, sampler, next_token=request.prompt[-1]))

    def leave(self, request: Request) -> None:
        index = next(i for i, stream in enumerate(self._streams) if stream.request is request)
        stream = self._streams.pop(index)
        self._layout.leave(index)
        if self._in_flight is not None:
            self._in_flight.rows.pop(stream, None)
            if not self._in_flight.rows:
                self._in_flight = None

    def step(self) -> DecodedStep:
        """The oldest step that was not read yet; the next one is launched before it is waited for."""
        current = self._in_flight or self._launch()
        self._in_flight = current
        self._in_flight = None if all(stream.is_all_launched for stream in self._streams) else self._launch()
        return self._read(current)

    def drain(self) -> DecodedStep | None:
        """Read the step in flight without launching another, so that its tokens do not wait for what comes next."""
        current, self._in_flight = self._in_flight, None
        return None if current is None else self._read(current)

    def _launch(self) -> Launch:
        for row, stream in enumerate(self._streams):
            self._layout.make_room(row, stream.request.room_len)
        logits = self._layout.forward(self._inputs())
        choice = choose_tokens(logits, [stream.sampler for stream in self._streams])
        mx.async_eval(choice.arrays(), self._layout.pending())  # type: ignore[no-untyped-call]  # so in MLX's stubs
        for stream in self._streams:
            stream.num_launched += 1
        return Launch(choice, {stream: row for row, stream in enumerate(self._streams)}, len(self._streams))

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
            result: SampledToken | NonFiniteLogits
            if is_finite[row]:
                result = launch.choice.sampled(row, tokens[row])
            else:
                result = NonFiniteLogits(position=stream.request.prompt_len + len(stream.request.tokens))
            outcomes.append(Outcome(stream.request, result))
        return DecodedStep(launch.width, tuple(outcomes))
