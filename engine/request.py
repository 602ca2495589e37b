"""One request inside the engine: all of its state, and the contracts where its text side and its device side meet.

It does no work: the worker thread moves a request along, `engine.text` turns its tokens into events. What a prompt or
an answer says is in no `repr`: that of a request gets into error messages, `/status` and the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.blocks import TokenBlocks
from engine.wire import Event, FinishReason, Phase, RequestClass, SnapshotKind


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Resolved sampling: every default is filled in. temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off.

    `num_logprobs` None: no log-probabilities; else how many alternatives beside the sampled token.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = field(default=(), repr=False)
    seed: int = 0
    num_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class SampledToken:
    """What the device side hands to the text side. `top` is (token id, natural-log probability), most likely first."""

    token: int = field(repr=False)
    logprob: float | None = field(default=None, repr=False)
    top: tuple[tuple[int, float], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the text side says that a request is complete."""

    reason: FinishReason
    stop_sequence: str | None = field(default=None, repr=False)


class Output(Protocol):
    """Turns tokens into text, reasoning and tool-call events. One per request, on the worker thread only; no MLX."""

    finish: Finish | None
    """Set by `push` at an end-of-text token or a stop string; the worker then ends the request."""

    reasoning_tokens: int

    def push(self, token: SampledToken) -> Sequence[Event]:
        """Take one sampled token (the end-of-text token too); return the events that are certain now."""

    def close(self, reason: FinishReason) -> tuple[Sequence[Event], Finish]:
        """The request ends for `reason`: what was held back, and the reason to report ("tool_calls" after calls)."""


class Constraint(Protocol):
    """A grammar that the answer of one request must follow. Worker thread only; no MLX.

    It watches the tokens itself: thinking, if the prompt ends in it, is free, and the grammar begins behind it.
    """

    def allowed(self) -> bytes | None:
        """What the next token may be: bit i of the mask (little-endian 32-bit words) is token i; None: any token."""

    def accept(self, token: int) -> None:
        """The token was sampled. It is one that `allowed` allowed."""


@dataclass(frozen=True, slots=True)
class PromptMarks:
    """Where the parts of a rendered prompt are, in tokens: what the next requests are likely to share of it.

    `shared_len`: system messages and tools, which other conversations begin with too; 0 when unknown.
    `message_starts`: of the newest few messages, oldest first. `generation_len`: the generation prompt at the end,
    which the next turn may render differently.
    """

    shared_len: int = 0
    message_starts: tuple[int, ...] = ()
    generation_len: int = 0


NO_MARKS = PromptMarks()


@dataclass(frozen=True, slots=True)
class Stage:
    """A request's being prefilled or decoding, since it last started or joined: from there its speed is measured.

    `began_len`: tokens prefilled, or sampled, by then. `began_at`: monotonic seconds.
    """

    began_len: int
    began_at: float


Deliver = Callable[[Sequence[Event]], None]
"""Takes events to the client's connection. Called on the worker thread; must not block."""


@dataclass(slots=True, eq=False)
class Request:
    """State of one request. Made by the HTTP side, then owned by the worker thread alone.

    Tokens:  [0, cached_len) restored   [cached_len, prefilled_len) computed   [prefilled_len, input_len - 1) to do
    The input is the prompt and, after a suspension, what had been generated: it is prefilled again, and not sent again.
    """

    id: str
    prompt: tuple[int, ...] = field(repr=False)
    sampling: SamplingParameters
    max_tokens: int
    request_class: RequestClass
    output: Output = field(repr=False)
    deliver: Deliver = field(repr=False)
    arrived_at: float  # monotonic seconds
    # Of the prompt, then of what was generated.
    blocks: TokenBlocks = field(default_factory=TokenBlocks, repr=False)
    marks: PromptMarks = NO_MARKS
    constraint: Constraint | None = field(default=None, repr=False)

    phase: Phase = "queued"
    cached_len: int = 0
    prefilled_len: int = 0
    room_len: int = 0  # tokens that its row may take memory for
    boundaries: dict[int, SnapshotKind] = field(default_factory=dict)  # lengths at which a prefill slice must end
    is_suspended: bool = False  # it gave its memory back, and goes on when there is room again
    was_suspended: bool = False  # it has begun before: what is restored now is its own work
    num_overtaken: int = 0  # how often a shorter or more urgent request went before it
    tokens: list[int] = field(default_factory=list, repr=False)  # sampled so far
    prefill_began_at: float | None = None  # the first time
    stage: Stage | None = None  # None while it holds nothing on the device
    first_token_at: float | None = None
    first_emission_tokens: int = 0
    last_progress_at: float = float("-inf")
    told_len: int = 0  # the largest progress that the client was told

    def __post_init__(self) -> None:
        if not self.blocks.length:
            self.blocks.extend(self.prompt)

    @property
    def prompt_len(self) -> int:
        return len(self.prompt)

    @property
    def input_len(self) -> int:
        """Tokens known so far. All but the last are prefilled; the last is the first input of decoding."""
        return len(self.prompt) + len(self.tokens)

    @property
    def num_generated(self) -> int:
        return len(self.tokens)

    def inputs(self, start: int, end: int) -> list[int]:
        """Tokens [start, end) of the input."""
        if end <= self.prompt_len:
            return list(self.prompt[start:end])
        return [*self.prompt[start:], *self.tokens[max(0, start - self.prompt_len) : end - self.prompt_len]]
