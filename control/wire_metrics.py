"""Numbers in the answers of the admin API: a part of the door that `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only. Clients import `control.wire`.
What each number means, its formula and its traps: docs/metrics.md.
"""

from typing import Annotated, Literal

from msgspec import Meta

from engine.wire import Frozen, MissExplanation

# The last hour, the last 24 hours, 7 days, 30 days, and everything since Splash was installed.
Range = Literal["hour", "day", "week", "month", "all"]

Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
PerMillion = Annotated[float, Meta(ge=0, le=1_000_000)]


class Price(Frozen, frozen=True, omit_defaults=False, forbid_unknown_fields=True):
    """Per million tokens, in one currency (ISO 4217): prompt tokens computed and from cache, and generated ones."""

    currency: Currency = "CNY"
    miss: PerMillion = 1.0
    hit: PerMillion = 0.1
    output: PerMillion = 3.0


class PriceList(Frozen, frozen=True, omit_defaults=False):
    """GET and PUT /settings/prices: `models` by the model's id; `default` for all others."""

    default: Price = Price()
    models: dict[str, Price] = {}


class Money(Frozen, frozen=True, omit_defaults=False):
    """What an API with the prices in force would have charged: so much was saved by running here.

    `total` = miss + hit + output. `cache_saving`: how much more it would be without the cache's lower price.
    Amounts of two currencies are never added.
    """

    currency: str
    miss: float
    hit: float
    output: float
    total: float
    cache_saving: float


class Today(Frozen, frozen=True, omit_defaults=False):
    """Since local midnight. `hit_rate` = cached / prompt tokens, None before the first request."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    hit_rate: float | None = None
    saved: tuple[Money, ...] = ()


class DatabaseHealth(Frozen, frozen=True, omit_defaults=False):
    """How splash.db takes what is measured. `waiting_rows` are tried again; `lost_rows` never will be written.

    `problem`: why rows wait now, one clause. `set_aside`: name of the damaged file that a new one took the place of,
    since control's start. `from_copy`: there was no database at that start, and keys and settings are from their copy.
    """

    waiting_rows: int = 0
    lost_rows: int = 0
    problem: str | None = None
    set_aside: str | None = None
    from_copy: bool = False


class CostLine(Frozen, frozen=True, omit_defaults=False):
    """Tokens of a day (YYYY-MM-DD), a month (YYYY-MM), a key or a model, and what they would have cost."""

    label: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    money: tuple[Money, ...]


class CostReport(Frozen, frozen=True, omit_defaults=False):
    """GET /cost?range=R: what the tokens would have cost at `prices`, those in force now, whenever they were used.

    `total`, `keys` and `models` (the dearest first) are of the range, to the second. `days` (oldest first) are whole
    local days with requests, from `first_day` to `last_day` (today): those that the range touches, of 30 days at least
    and 400 at most; all time begins with the first request. `months`: all that there are.
    """

    range: Range
    prices: PriceList
    total: tuple[Money, ...]
    first_day: str
    last_day: str
    days: tuple[CostLine, ...]
    months: tuple[CostLine, ...]
    keys: tuple[CostLine, ...]
    models: tuple[CostLine, ...]


class WidthThroughput(Frozen, frozen=True, omit_defaults=False):
    """Pure decode with `width` streams: tokens of all of them / wall clock, over all windows of the range.

    `peak_tokens_per_second`: the fastest five seconds in a row; None: no window was so long.
    `ceiling_tokens_per_second`: what the memory's bandwidth allows at the mean context (roofline); None: not known.
    """

    width: int
    tokens: int
    seconds: float
    tokens_per_second: float
    peak_tokens_per_second: float | None
    ceiling_tokens_per_second: float | None


class ContextThroughput(Frozen, frozen=True, omit_defaults=False):
    """The same with `width` streams whose mean context is at most `context_tokens`, and above the next smaller one."""

    width: int
    context_tokens: int
    tokens: int
    seconds: float
    tokens_per_second: float


class ContextPoint(Frozen, frozen=True, omit_defaults=False):
    """One stretch of decoding with a single stream, of the last 30 days at most."""

    context_tokens: int
    tokens_per_second: float
    seconds: float


class Regression(Frozen, frozen=True, omit_defaults=False):
    """Least squares, weighted by seconds. `correlation` near 0: speed doesn't depend on context.

    Over all stretches of the range that are such points: `points` of them, of which the answer has the newest only.
    tokens_per_second = intercept + slope_per_1k * context_tokens / 1000
    """

    slope_per_1k: float
    intercept: float
    correlation: float
    points: int


class Percentiles(Frozen, frozen=True, omit_defaults=False):
    """Over requests. Exact for an hour and a day; within 5% for longer ranges, which are counted in buckets."""

    p50_ms: float
    p95_ms: float
    count: int


class SpeedPoint(Frozen, frozen=True, omit_defaults=False):
    """Throughput of one step of time, which begins at `at_s` (Unix time), at one width."""

    at_s: float
    width: int
    tokens_per_second: float


class TtftPoint(Frozen, frozen=True, omit_defaults=False):
    """Time to first token of the requests that began in one step of time, without their time in the queue."""

    at_s: float
    p50_ms: float
    p95_ms: float


class Performance(Frozen, frozen=True, omit_defaults=False):
    """GET /performance?range=R[&model=M]: None and empty where nothing was measured, never 0.

    `models`: those that have numbers in the range. `step_s`: the step of time of `speeds` and `ttfts`.
    `hit_rate`, `acceptance` and `input_output_ratio` are sums over sums. `discarded`: windows that did not count since
    control's start, by reason: prefill, membership, idle, gap, restart.
    """

    range: Range
    since_s: float
    model: str | None
    models: tuple[str, ...]
    widths: tuple[WidthThroughput, ...]
    contexts: tuple[ContextThroughput, ...]
    points: tuple[ContextPoint, ...]
    regression: Regression | None
    step_s: float
    speeds: tuple[SpeedPoint, ...]
    ttfts: tuple[TtftPoint, ...]
    ttft: Percentiles | None
    ttft_without_queue: Percentiles | None
    queue: Percentiles | None
    inter_token: Percentiles | None
    largest_gap: Percentiles | None
    requests: int
    hit_rate: float | None
    acceptance: float | None
    tokens_per_draft: float | None
    input_output_ratio: float | None
    discarded: dict[str, int]


class MissList(Frozen, frozen=True, omit_defaults=False):
    """GET /engine/misses: the last prompts that the cache served less far than it could, oldest first.

    `is_on`: whether the engine has a prefix cache; `reason` says why not. `lookups`: prompts that were looked up in it
    since it was loaded, without which no list says anything; None: no model is loaded.
    """

    misses: tuple[MissExplanation, ...] = ()
    is_on: bool = False
    reason: str = ""
    lookups: int | None = None
