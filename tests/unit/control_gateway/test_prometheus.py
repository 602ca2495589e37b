"""GET /metrics, read as Prometheus reads it: what is counted, under which names and labels."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from control import prometheus as module
from control.fifo import Line, Ticket
from control.prometheus import Prometheus
from control.wire import CacheStatus, EngineView, GovernorStatus, MemoryActual
from tests.unit.control_gateway.test_metrics import row


class Scene:
    def __init__(self) -> None:
        self.line = Line(1)
        self.engine = EngineView(state="unloaded")
        self.prometheus = Prometheus(line=self.line, engine=lambda: self.engine, losses=lambda: 3)

    def families(self) -> dict:
        text = self.prometheus.exposition().decode()
        return {family.name: family for family in text_string_to_metric_families(text)}

    def values(self) -> dict:
        """By (name, *values of its labels)."""
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in self.families().values()
            for sample in family.samples
        }


@pytest.fixture
def scene():
    return Scene()


def test_before_the_first_request_there_is_the_line_and_the_engine(scene):
    values = scene.values()

    assert values["splash_concurrency",] == 1
    assert values["splash_requests_waiting", "batch"] == 0
    assert values["splash_lost_rows_total",] == 3
    assert values["splash_engine_state", "unloaded"] == 1
    assert sum(value for (name, *_), value in values.items() if name == "splash_engine_state") == 1
    assert not any(name.startswith(("splash_engine_memory", "splash_engine_cache")) for name, *_ in values)


def test_requests_are_counted_by_dialect_key_and_outcome(scene):
    scene.prometheus.observe(row(1))
    scene.prometheus.observe(row(2))
    scene.prometheus.observe(row(3, dialect="messages", key="phone", outcome="failed"))

    values = scene.values()

    assert values["splash_requests_total", "chat", "k", "completed"] == 2
    assert values["splash_requests_total", "messages", "phone", "failed"] == 1


def test_tokens_of_a_request_that_was_turned_away_do_not_count(scene):
    scene.prometheus.observe(row(1))
    scene.prometheus.observe(row(2, outcome="cancelled", completion_tokens=1))
    scene.prometheus.observe(row(3, outcome="rejected"))

    values = scene.values()

    assert values["splash_prompt_tokens_total", "chat", "k"] == 200
    assert values["splash_cached_prompt_tokens_total", "chat", "k"] == 180
    assert values["splash_completion_tokens_total", "chat", "k"] == 11


def test_times_are_in_seconds_and_buckets_add_up(scene):
    for number, (ttft_ms, queue_ms) in enumerate(((40.0, 1.0), (50.0, 20.0), (700.0, 90e6), (None, None))):
        scene.prometheus.observe(row(number, ttft_ms=ttft_ms, queue_ms=queue_ms))

    values = scene.values()

    ttft = "splash_time_to_first_token_seconds"
    assert values[f"{ttft}_bucket", "chat", "0.05"] == 2
    assert values[f"{ttft}_bucket", "chat", "0.5"] == 2
    assert values[f"{ttft}_bucket", "chat", "1.0"] == 3
    assert values[f"{ttft}_bucket", "chat", "+Inf"] == values[f"{ttft}_count", "chat"] == 3
    assert values[f"{ttft}_sum", "chat"] == pytest.approx(0.79)
    assert values["splash_queue_time_seconds_bucket", "chat", "86400.0"] == 2
    assert values["splash_queue_time_seconds_count", "chat"] == 3


def test_the_line_is_told_by_class(scene):
    scene.line.open()
    scene.line.join(Ticket("a"))
    scene.line.join(Ticket("b", "batch"))
    scene.line.join(Ticket("c", "batch"))

    values = scene.values()

    assert values["splash_requests_running", "interactive"] == 1
    assert values["splash_requests_waiting", "batch"] == 2


def test_the_engines_figures_are_those_of_its_newest_status(scene):
    scene.engine = EngineView(
        state="ready",
        restarts=2,
        status_age_s=0.5,
        memory_actual=MemoryActual(active_bytes=10, peak_bytes=20, cache_bytes=3, kv_bytes=4, process_bytes=30),
        governor=GovernorStatus(pool_bytes=9),
        cache=CacheStatus(
            is_on=True, budget_bytes=7, used_bytes=6, lookups=5, hits=4, lookup_tokens=90, reused_tokens=80
        ),
    )

    values = scene.values()

    assert values["splash_engine_state", "ready"] == 1
    assert values["splash_engine_restarts_total",] == 2
    assert values["splash_engine_status_age_seconds",] == 0.5
    assert values["splash_engine_memory_peak_bytes",] == 20
    assert values["splash_engine_memory_pool_bytes",] == 9
    assert values["splash_engine_cache_used_bytes",] == 6
    assert values["splash_engine_cache_reused_tokens_total",] == 80


def test_a_key_may_be_called_anything(scene):
    name = 'Jörg\'s "Mac" \\ 笔记本 {a="b"}'
    scene.prometheus.observe(row(1, key=name))

    assert scene.values()["splash_requests_total", "chat", name, "completed"] == 1


def test_every_metric_is_documented_and_every_documented_one_is_there(scene):
    scene.prometheus.observe(row())
    scene.engine = EngineView(
        state="ready",
        status_age_s=0.5,
        memory_actual=MemoryActual(),
        governor=GovernorStatus(),
        cache=CacheStatus(is_on=True),
    )

    told = {f"{family.name}_total" if family.type == "counter" else family.name for family in scene.families().values()}
    documented = {line.split("`")[1] for line in module.__doc__.splitlines() if line.startswith("| `")}

    assert told == documented
