"""Request rows for tests of the list: made at random, and sorted in the plain way that the list must agree with."""

import random

import msgspec

from control.metrics.request_questions import tokens_per_second
from control.metrics.request_search import Search
from control.wire import RequestRow, RequestSort

NOON_S = 1_795_000_000.0
KEYS = ("claude", "codex", "night")
MODELS = ("big", "small")
DIALECTS = ("chat", "messages")
OUTCOMES = ("completed", "completed", "completed", "cancelled", "failed", "rejected")


def row(number: int, **changes: object) -> RequestRow:
    plain = RequestRow(
        id=f"{number:08x}",
        number=number,
        started_at_s=NOON_S + number,
        key="claude",
        dialect="chat",
        model="big",
        stream=True,
        outcome="completed",
        error_code=None,
        finish_reason="stop",
        queue_ms=10.0,
        prefill_ms=200.0,
        decode_ms=1000.0,
        ttft_ms=210.0,
        total_ms=1215.0,
        prompt_tokens=1000,
        cached_tokens=900,
        completion_tokens=101,
        reasoning_tokens=0,
        first_emission_tokens=1,
    )
    return msgspec.structs.replace(plain, **changes)


def random_rows(chance: random.Random, count: int) -> list[RequestRow]:
    """With ties in everything that can be sorted by, and with nothing where a request never got that far."""
    rows = []
    for number in range(1, count + 1):
        outcome = chance.choice(OUTCOMES)
        ran = outcome != "rejected"
        prompt = chance.randrange(1, 5) * 1000 if ran else 0
        rows.append(
            row(
                number,
                started_at_s=NOON_S + chance.choice((number, number // 3 * 3)),
                key=chance.choice(KEYS),
                model=chance.choice(MODELS),
                dialect=chance.choice(DIALECTS),
                outcome=outcome,
                request_class=chance.choice(("interactive", "batch")),
                queue_ms=chance.choice((1.5, 2.5, 80.0)) if ran else None,
                prefill_ms=chance.choice((100.0, 0.1 + 0.2)) if ran else None,
                decode_ms=chance.choice((0.0, 333.3, 1000.0)) if outcome == "completed" else None,
                ttft_ms=chance.choice((100.0, 200.0)) if ran else None,
                total_ms=chance.choice((1.0, 2.0, 3.0)),
                prompt_tokens=prompt,
                cached_tokens=prompt // chance.randrange(1, 4) if ran else 0,
                completion_tokens=chance.randrange(0, 4) * 50 if ran else 0,
                first_emission_tokens=chance.randrange(0, 5),
            )
        )
    return rows


def expected(rows: list[RequestRow], search: Search) -> list[int]:
    """Numbers of all rows that match, in the order that was asked for: what has no value is last."""
    kinds = search.kinds
    wanted = {"key": kinds.key, "model": kinds.model, "dialect": kinds.dialect, "outcome": kinds.outcome}
    wanted["request_class"] = kinds.request_class
    matching = [
        each
        for each in rows
        if all(value is None or getattr(each, name) == value for name, value in wanted.items())
        and (search.since_s is None or each.started_at_s >= search.since_s)
        and (search.until_s is None or each.started_at_s < search.until_s)
    ]
    with_value = [each for each in matching if value_of(each, search.sort) is not None]
    without = [each for each in matching if value_of(each, search.sort) is None]
    is_descending = search.direction == "desc"
    with_value.sort(key=lambda each: (value_of(each, search.sort), each.number), reverse=is_descending)
    without.sort(key=lambda each: each.number, reverse=is_descending)
    return [each.number for each in with_value + without]


def value_of(each: RequestRow, sort: RequestSort) -> float | None:
    is_counted = each.prompt_tokens > 0
    match sort:
        case "started":
            return each.started_at_s
        case "queue" | "prefill" | "decode" | "ttft" | "total":
            return getattr(each, f"{sort}_ms")
        case "prompt":
            return each.prompt_tokens if is_counted else None
        case "cached":
            return each.cached_tokens if is_counted else None
        case "output":
            return each.completion_tokens if is_counted else None
        case "speed":
            return tokens_per_second(each)
        case "cost":
            computed = each.prompt_tokens - each.cached_tokens
            cost = computed * 1.0 + each.cached_tokens * 0.1 + each.completion_tokens * 3.0
            return cost if each.outcome != "rejected" else None
