"""GET /metrics: what the gateway did since its start, and how the line and the engine are now, for Prometheus.

It measures nothing itself: it counts the rows of finished requests, and asks the line and the supervisor when asked.
Counters begin at zero when control starts, those of the engine when the engine does. A label `key` is a key's name.

| metric | labels | what it is |
|---|---|---|
| `splash_requests_total` | dialect, key, outcome | ended requests; outcome: completed, cancelled, failed, rejected |
| `splash_prompt_tokens_total` | dialect, key | prompt tokens of all but rejected requests |
| `splash_cached_prompt_tokens_total` | dialect, key | those of them that the prefix cache had |
| `splash_completion_tokens_total` | dialect, key | generated tokens, thoughts too |
| `splash_time_to_first_token_seconds` | dialect | histogram, from arrival, waiting included |
| `splash_queue_time_seconds` | dialect | histogram, from arrival to the first step of the engine |
| `splash_requests_waiting` | request_class | in the line now |
| `splash_requests_running` | request_class | in the engine now |
| `splash_concurrency` | | how many may run at once |
| `splash_lost_rows_total` | | rows that could not be written to the database |
| `splash_machine_sleeps_total` | | how often the machine slept |
| `splash_machine_sleep_seconds_total` | | how long, together |
| `splash_engine_state` | state | 1 for the state that the engine is in, else 0 |
| `splash_engine_restarts_total` | | restarts after a crash |
| `splash_engine_status_age_seconds` | | age of the newest status, from which the rest below is; absent: none |
| `splash_engine_memory_active_bytes` | | memory in use by arrays |
| `splash_engine_memory_peak_bytes` | | the most that ever was |
| `splash_engine_memory_free_list_bytes` | | kept by the allocator for the next arrays |
| `splash_engine_memory_kv_bytes` | | contexts of running requests |
| `splash_engine_memory_process_bytes` | | resident memory of the process |
| `splash_engine_memory_pool_bytes` | | what contexts and prefix cache may have together now |
| `splash_engine_cache_budget_bytes` | | prefix cache: its limit |
| `splash_engine_cache_used_bytes` | | prefix cache: what it holds |
| `splash_engine_cache_lookups_total` | | requests that began to prefill |
| `splash_engine_cache_hits_total` | | those that found something |
| `splash_engine_cache_lookup_tokens_total` | | tokens of their prompts |
| `splash_engine_cache_reused_tokens_total` | | those of them that were not computed again |
| `splash_engine_cache_evicted_blocks_total` | | removed for lack of room |
| `splash_engine_cache_evicted_snapshots_total` | | the same |
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final, get_args

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from control.fifo import Line, Ticket
from control.wire import CacheStatus, EngineState, EngineView, GovernorStatus, MemoryActual, Power, RequestRow
from engine.wire import RequestClass

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

# A warm short prompt takes tens of milliseconds, a cold one of 262k tokens minutes, a held one up to a day.
TTFT_BOUNDS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
QUEUE_BOUNDS_S: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 6 * 3600.0, 24 * 3600.0)


class Histogram:
    """Counts by upper bound, in seconds."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self._sum_s += seconds

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        bounds = [*(str(bound) for bound in self._bounds_s), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=self._sum_s)


class Prometheus(Collector):
    """Fed and asked on the event loop only."""

    def __init__(
        self,
        *,
        line: Line,
        engine: Callable[[], EngineView],
        losses: Callable[[], int],
        power: Callable[[], Power] = Power,
    ) -> None:
        self._line = line
        self._engine = engine
        self._losses = losses
        self._power = power
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._prompt_tokens: Counter[tuple[str, str]] = Counter()
        self._cached_tokens: Counter[tuple[str, str]] = Counter()
        self._completion_tokens: Counter[tuple[str, str]] = Counter()
        self._ttft: dict[str, Histogram] = {}
        self._queue_time: dict[str, Histogram] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def observe(self, row: RequestRow) -> None:
        """A request ended."""
        self._requests[row.dialect, row.key, row.outcome] += 1
        if row.outcome != "rejected":
            whose = row.dialect, row.key
            self._prompt_tokens[whose] += row.prompt_tokens
            self._cached_tokens[whose] += row.cached_tokens
            self._completion_tokens[whose] += row.completion_tokens
        if row.ttft_ms is not None:
            self._ttft.setdefault(row.dialect, Histogram(TTFT_BOUNDS_S)).observe(row.ttft_ms / 1000)
        if row.queue_ms is not None:
            self._queue_time.setdefault(row.dialect, Histogram(QUEUE_BOUNDS_S)).observe(row.queue_ms / 1000)

    def exposition(self) -> bytes:
        """Format: Prometheus text, 0.0.4."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        # Registering must not ask an engine for its metrics' names.
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._of_requests()
        yield from self._of_the_line()
        yield from _of_sleep(self._power())
        engine = self._engine()
        yield from _of_the_engine(engine)
        if engine.memory_actual is not None:
            yield from _of_memory(engine.memory_actual, engine.governor)
        if engine.cache is not None:
            yield from _of_the_cache(engine.cache)

    def _of_requests(self) -> Iterator[Metric]:
        ended = CounterMetricFamily("splash_requests", "Ended requests.", labels=["dialect", "key", "outcome"])
        for labels, number in self._requests.items():
            ended.add_metric(labels, number)
        yield ended
        for name, text, counts in (
            ("prompt", "Prompt tokens of all but rejected requests.", self._prompt_tokens),
            ("cached_prompt", "Prompt tokens that the prefix cache had.", self._cached_tokens),
            ("completion", "Generated tokens.", self._completion_tokens),
        ):
            tokens = CounterMetricFamily(f"splash_{name}_tokens", text, labels=["dialect", "key"])
            for whose, number in counts.items():
                tokens.add_metric(whose, number)
            yield tokens
        for name, text, histograms in (
            ("splash_time_to_first_token_seconds", "From arrival to the first token.", self._ttft),
            ("splash_queue_time_seconds", "From arrival to the first step of the engine.", self._queue_time),
        ):
            family = HistogramMetricFamily(name, text, labels=["dialect"])
            for dialect, histogram in histograms.items():
                histogram.add_to(family, [dialect])
            yield family

    def _of_the_line(self) -> Iterator[Metric]:
        yield _by_class("splash_requests_waiting", "Requests in the line.", self._line.waiting)
        yield _by_class("splash_requests_running", "Requests in the engine.", self._line.running)
        yield _gauge("splash_concurrency", "How many requests may run at once.", self._line.concurrency)
        yield _counter("splash_lost_rows", "Rows that could not be written.", self._losses())


def _of_sleep(power: Power) -> Iterator[Metric]:
    yield _counter("splash_machine_sleeps", "How often the machine slept.", power.sleeps)
    yield _counter("splash_machine_sleep_seconds", "How long the machine slept, together.", power.slept_s)


def _of_the_engine(engine: EngineView) -> Iterator[Metric]:
    states = GaugeMetricFamily("splash_engine_state", "1 for the state that the engine is in.", labels=["state"])
    for state in get_args(EngineState):
        states.add_metric([state], engine.state == state)
    yield states
    yield _counter("splash_engine_restarts", "Restarts after a crash.", engine.restarts)
    if engine.status_age_s is not None:
        yield _gauge("splash_engine_status_age_seconds", "Age of the newest status.", engine.status_age_s)


def _of_memory(memory: MemoryActual, governor: GovernorStatus | None) -> Iterator[Metric]:
    prefix = "splash_engine_memory"
    yield _gauge(f"{prefix}_active_bytes", "Memory in use by arrays.", memory.active_bytes)
    yield _gauge(f"{prefix}_peak_bytes", "The most memory that arrays ever used.", memory.peak_bytes)
    yield _gauge(f"{prefix}_free_list_bytes", "Kept by the allocator for the next arrays.", memory.cache_bytes)
    yield _gauge(f"{prefix}_kv_bytes", "Contexts of running requests.", memory.kv_bytes)
    yield _gauge(f"{prefix}_process_bytes", "Resident memory of the process.", memory.process_bytes)
    if governor is not None:
        yield _gauge(f"{prefix}_pool_bytes", "What contexts and prefix cache may have.", governor.pool_bytes)


def _of_the_cache(cache: CacheStatus) -> Iterator[Metric]:
    prefix = "splash_engine_cache"
    yield _gauge(f"{prefix}_budget_bytes", "Limit of the prefix cache.", cache.budget_bytes)
    yield _gauge(f"{prefix}_used_bytes", "What the prefix cache holds.", cache.used_bytes)
    yield _counter(f"{prefix}_lookups", "Requests that began to prefill.", cache.lookups)
    yield _counter(f"{prefix}_hits", "Lookups that found something.", cache.hits)
    yield _counter(f"{prefix}_lookup_tokens", "Prompt tokens of all lookups.", cache.lookup_tokens)
    yield _counter(f"{prefix}_reused_tokens", "Prompt tokens not computed again.", cache.reused_tokens)
    yield _counter(f"{prefix}_evicted_blocks", "Blocks removed for lack of room.", cache.blocks_evicted)
    yield _counter(f"{prefix}_evicted_snapshots", "Snapshots removed for lack of room.", cache.snapshots_evicted)


def _by_class(name: str, text: str, tickets: tuple[Ticket, ...]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["request_class"])
    for request_class in get_args(RequestClass):
        family.add_metric([request_class], sum(ticket.request_class == request_class for ticket in tickets))
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    """`name` without its `_total`."""
    return CounterMetricFamily(name, text, value=value)
