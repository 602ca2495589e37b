"""The facts of the model's card: how it was loaded, how it runs, what it keeps and what it promises.

It warns of nothing: that is `webui.views.problems`.
"""

from dataclasses import dataclass
from typing import Final

from control.wire import CacheStatus, EngineView, MemoryPlan, Overview, PromiseStatus, SelfTest
from webui import numbers
from webui.text import Text
from webui.views.self_tests import Together, applied_tests, failed_tests, together, unsupported_tests
from webui.views.shell import STATE_TEXT

# How the detail of the self-test `late_system` begins. Source: engine.text.canary.
_LATE_SYSTEM_TEXT: Final[dict[str, str]] = {
    "native": "late_system.native",
    "patched": "late_system.patched",
    "unsupported": "late_system.unsupported",
}


_LAYOUT_TEXT: Final[dict[Together, str]] = {
    "rows": "layout.rows",
    "padded": "layout.padded",
    "turns": "layout.turns",
}
# What a layout costs that is not the best one.
_LAYOUT_COST: Final[dict[Together, str]] = {"padded": "layout.padded_cost", "turns": "layout.turns_cost"}


@dataclass(frozen=True, slots=True)
class Fact:
    label: str
    value: str
    hint: str
    is_wide: bool = False
    is_broken: bool = False


def facts(overview: Overview, text: Text) -> tuple[Fact, ...]:
    engine = overview.engine
    # Both are the clock of control: the console's own may differ by a question's time.
    state_age_s = overview.sampled_at_s - engine.since_s
    return (
        Fact(text("fact.state"), text(STATE_TEXT[engine.state]), text("fact.state_hint")),
        Fact(text("fact.since"), numbers.span(text, state_age_s), text("fact.since_hint")),
        *_of_the_model(engine, text),
        *_of_the_cache(engine, text),
        *_of_the_promises(engine.promises if engine.state == "ready" else None, text),
        *_of_the_start(engine, text),
        *_of_the_process(engine, text),
        *_wide(engine, text),
    )


def disk_speed(engine: EngineView) -> float | None:
    """Bytes a second at which weights were read; None before any were."""
    load = engine.load
    return None if load is None or not load.bytes_read or not load.read_seconds else load.bytes_read / load.read_seconds


def _of_the_model(engine: EngineView, text: Text) -> list[Fact]:
    found = []
    model, layout = engine.model, engine.layout
    if model is not None:
        context, native = model.maximum_context_tokens, model.native_context_tokens
        value = text("fact.context_of", context=numbers.tokens(context), native=numbers.tokens(native))
        found.append(Fact(text("fact.context"), value, text("fact.context_hint")))
    way = together(engine)
    if layout is not None and way is not None:
        cost = text(_LAYOUT_COST[way]) if way in _LAYOUT_COST else ""
        hint = text.join(cost, text("fact.layout_hint"), layout.reason)
        found.append(Fact(text("fact.layout"), text(_LAYOUT_TEXT[way]), hint))
    if layout is not None and layout.kv_bits is not None:
        value = text("fact.kv_bits_of", bits=layout.kv_bits)
        found.append(Fact(text("fact.kv_bits"), value, text("fact.kv_bits_hint")))
    return found


def _of_the_cache(engine: EngineView, text: Text) -> list[Fact]:
    cache, plan = engine.cache, engine.memory_plan
    found = []
    if cache is not None:
        found.append(Fact(text("fact.cache"), _cache_value(cache, text), text("fact.cache_hint")))
    if cache is not None and cache.is_on:
        value = numbers.share(cache.hit_rate if cache.lookup_tokens else None)
        hint = text(
            "fact.hit_rate_hint",
            cached=numbers.tokens(cache.reused_tokens),
            prompt=numbers.tokens(cache.lookup_tokens),
        )
        found.append(Fact(text("fact.hit_rate"), value, hint))
        found += _warm_sessions(plan, text)
    return found


def _cache_value(cache: CacheStatus, text: Text) -> str:
    if not cache.is_on:
        return text("fact.cache_off")
    return text("memory.of", part=numbers.size(cache.used_bytes), whole=numbers.size(cache.budget_bytes))


def _warm_sessions(plan: MemoryPlan | None, text: Text) -> list[Fact]:
    if plan is None or not plan.warm_session_tokens:
        return []
    tokens = numbers.tokens(plan.warm_session_tokens)
    value = text.count("fact.warm_of", plan.warm_sessions, tokens=numbers.tokens_short(plan.warm_session_tokens))
    return [Fact(text("fact.warm"), value, text("fact.warm_hint", tokens=tokens))]


def _of_the_promises(promises: PromiseStatus | None, text: Text) -> list[Fact]:
    if promises is None:
        return []
    num_broken = promises.gap_violations + promises.share_violations
    largest = numbers.short_milliseconds(promises.largest_gap_ms)
    if not promises.gaps:
        value = numbers.UNKNOWN
    elif num_broken:
        value = text.count("fact.promises_broken", num_broken, gap=largest)
    else:
        value = text("fact.promises_kept", gap=largest)
    hint = text(
        "fact.promises_hint",
        gap=numbers.short_milliseconds(promises.max_gap_ms),
        share=numbers.share(promises.decode_share, digits=0),
        late=numbers.tokens(promises.gap_violations),
        gaps=numbers.tokens(promises.gaps),
        short=numbers.tokens(promises.share_violations),
        windows=numbers.tokens(promises.windows),
        longest=largest,
    )
    return [Fact(text("fact.promises"), value, hint, is_broken=num_broken > 0)]


def _of_the_start(engine: EngineView, text: Text) -> list[Fact]:
    found = []
    num_tests = len(applied_tests(engine))
    if num_tests:
        failed, unsupported = failed_tests(engine), unsupported_tests(engine)
        value = text("fact.tests_of", passed=num_tests - len(failed), all=num_tests)
        hint = text.join(
            text("fact.tests_failed", names=", ".join(failed)) if failed else "",
            text("fact.tests_unsupported", names=", ".join(unsupported)) if unsupported else "",
            text("fact.tests_hint"),
        )
        found.append(Fact(text("fact.tests"), value, hint))
    if engine.load is not None and engine.model is not None and not engine.is_downloading:
        speed = disk_speed(engine)
        took = numbers.span(text, engine.load.seconds)
        value = took if speed is None else f"{took} · {numbers.byte_speed(speed)}"
        found.append(Fact(text("fact.load"), value, text("fact.load_hint")))
    return found


def _of_the_process(engine: EngineView, text: Text) -> list[Fact]:
    parts = [text("fact.pid", pid=engine.pid)] if engine.pid is not None else []
    if engine.memory_actual is not None and engine.memory_actual.process_bytes:
        parts.append(numbers.size(engine.memory_actual.process_bytes))
    process = " · ".join(parts) or numbers.UNKNOWN
    return [
        Fact(text("fact.process"), process, text("fact.process_hint")),
        Fact(text("fact.restarts"), f"{engine.restarts:,}", text("fact.restarts_hint")),
    ]


def _wide(engine: EngineView, text: Text) -> list[Fact]:
    found = []
    late_system = next((test for test in engine.self_tests if test.name == "late_system"), None)
    if late_system is not None:
        hint = text.join(text("fact.late_system_hint"), late_system.detail)
        found.append(Fact(text("fact.late_system"), _late_system_value(late_system, text), hint, is_wide=True))
    if engine.model is not None:
        kind = " · ".join(part for part in (engine.model.architecture, engine.model.quantization) if part)
        found.append(Fact(text("fact.architecture"), kind, text("fact.architecture_hint"), is_wide=True))
    return found


def _late_system_value(test: SelfTest, text: Text) -> str:
    way = test.detail.partition(":")[0]
    return text(_LATE_SYSTEM_TEXT[way]) if way in _LATE_SYSTEM_TEXT else test.detail
