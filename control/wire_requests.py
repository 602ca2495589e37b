"""Requests in the answers of the admin API, live and ended: a part of the door that `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only. Clients import `control.wire`.
"""

from typing import Literal

from engine.wire import Frozen, RequestClass

# Where a request is: in control's line (waiting: others run; held: no engine is ready), or in the engine.
RequestPhase = Literal["waiting", "held", "prefill", "decode"]
Outcome = Literal["completed", "cancelled", "failed", "rejected"]


class Slot(Frozen, frozen=True, omit_defaults=False):
    """A request that holds one of the slots.

    `phase` prefill: the bar is `cached_tokens` then `prefilled_tokens` of `prompt_tokens`.

    `prefilled_tokens` includes the cached ones. `tokens_per_second` is of the phase it is in; None: not known yet.
    `stream`: its client has every token that is generated already; False: it gets the whole answer at the end.
    `is_suspended`: it gave its memory to others, and goes on when there is room.
    """

    slot: int
    id: str
    number: int
    key: str
    dialect: str
    phase: RequestPhase
    prompt_tokens: int | None
    cached_tokens: int
    prefilled_tokens: int
    output_tokens: int
    tokens_per_second: float | None
    eta_s: float | None
    elapsed_s: float
    stream: bool = True
    is_suspended: bool = False


class Waiting(Frozen, frozen=True, omit_defaults=False):
    """A request in the line, `position` from 1."""

    id: str
    number: int
    position: int
    key: str
    dialect: str
    phase: RequestPhase
    request_class: RequestClass
    prompt_tokens: int | None
    waited_s: float


class RequestRow(Frozen, frozen=True, omit_defaults=False):
    """One request in SQLite. Times in ms, None where the request never got that far; `started_at_s` is Unix time.

    `cached_tokens` is part of `prompt_tokens`, `reasoning_tokens` of `completion_tokens`. `first_emission_tokens` came
    together as the first and belong to the TTFT. `largest_gap_ms`: the longest wait between two emissions.

    Of one that ended before its first token, `prompt_tokens` is what was read of the prompt until then, 0 before the
    engine's first step; `queue_ms` is all of its wait when there was no such step. `model`: the one that answered or
    was to answer; the name asked for when nobody knows of any.
    """

    id: str
    number: int
    started_at_s: float
    key: str
    dialect: str
    model: str
    stream: bool
    outcome: Outcome
    error_code: str | None
    finish_reason: str | None
    queue_ms: float | None
    prefill_ms: float | None
    decode_ms: float | None
    ttft_ms: float | None
    total_ms: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    request_class: RequestClass = "interactive"
    first_emission_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    largest_gap_ms: float | None = None


class ListedRequest(Frozen, frozen=True, omit_defaults=False):
    """A row with what is computed from it; `cost` at the prices in force now, 0 when it was rejected.

    tokens_per_second = (completion_tokens - max(first_emission_tokens, 1)) / decode time; None: nothing came after the
    first emission.
    """

    row: RequestRow
    tokens_per_second: float | None
    cost: float
    currency: str


RequestSort = Literal[
    "started", "queue", "prefill", "decode", "ttft", "total", "prompt", "cached", "output", "speed", "cost"
]


SortDirection = Literal["asc", "desc"]


class RequestPage(Frozen, frozen=True, omit_defaults=False):
    """GET /requests: one page of those that match.

    `next` is the `after` of the next page, `previous` of the one before; None: there is none. `sorted_since_s`: by
    anything but time only those are sorted that began then or later, because there are too many; None: all that match.
    """

    requests: tuple[ListedRequest, ...]
    next: str | None = None
    previous: str | None = None
    sorted_since_s: float | None = None


class RequestChoices(Frozen, frozen=True, omit_defaults=False):
    """GET /requests/choices: what there are requests of, to filter by."""

    keys: tuple[str, ...]
    models: tuple[str, ...]
    dialects: tuple[str, ...]
