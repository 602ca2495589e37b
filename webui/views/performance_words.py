"""What the figures of *Performance* mean, in sentences: the correlation, promises, what did not count, cache misses.

It draws nothing, and judges by the thresholds named here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from control.wire import MissExplanation, MissList, PromiseStatus, Regression
from webui import numbers
from webui.text import Text

# With fewer stretches a correlation says nothing: chance alone makes it large.
FEWEST_POINTS: Final = 10
# By size: below 0.1 the context explains less than 1% of the differences in speed, at 0.3 a tenth, at 0.6 a third.
NONE_BELOW: Final = 0.1
SLIGHT_BELOW: Final = 0.3
CLEAR_BELOW: Final = 0.6
_SLOPE_TOKENS: Final = 10_000
NUM_MISSES: Final = 20
_MILLISECONDS_BELOW_MS: Final = 1000
_TENTHS_BELOW_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Promise:
    """`is_kept` None: nothing has happened yet that could break it."""

    sentence: str
    is_kept: bool | None


@dataclass(frozen=True, slots=True)
class Miss:
    """`at`: time of day; `at_full` with the date."""

    at: str
    at_full: str
    sentence: str


def says_something(line: Regression) -> bool:
    """Two stretches always lie on a line, with a correlation of 1: neither is to be shown."""
    return line.points >= FEWEST_POINTS


def correlation_sentence(line: Regression | None, text: Text) -> str:
    if line is None:
        return text("performance.context.no_line")
    if not says_something(line):
        return text("performance.context.too_few", n=numbers.tokens(line.points))
    values = {"correlation": f"{line.correlation:.2f}", "n": numbers.tokens(line.points)}
    size = abs(line.correlation)
    if size < NONE_BELOW:
        return text("performance.context.none", **values)
    if line.correlation > 0:
        return text("performance.context.faster", **values)
    cost = text(
        "performance.context.cost",
        n=numbers.tokens(_SLOPE_TOKENS),
        speed=f"{-line.slope_per_1k * _SLOPE_TOKENS / 1000:.1f}",
    )
    if size < SLIGHT_BELOW:
        return text.join(text("performance.context.slight", **values), cost)
    if size < CLEAR_BELOW:
        return text.join(text("performance.context.clear", **values), cost)
    return text.join(text("performance.context.strong", **values), cost)


def times_of_a_row(times_ms: Sequence[float], text: Text) -> tuple[str, ...]:
    """All in one unit, so that they can be compared: milliseconds when the largest is below a second."""
    largest_ms = max(times_ms, default=0.0)
    if largest_ms >= _MILLISECONDS_BELOW_MS:
        return tuple(numbers.seconds(text, each) for each in times_ms)
    digits = 1 if largest_ms < _TENTHS_BELOW_MS else 0
    return tuple(numbers.short_milliseconds(each, digits) for each in times_ms)


def promise_sentences(status: PromiseStatus | None, text: Text) -> tuple[Promise, ...]:
    """The longest gap, and the share of the time; empty when no model is loaded."""
    if status is None:
        return ()
    return (_gap_promise(status, text), _share_promise(status, text))


def _gap_promise(status: PromiseStatus, text: Text) -> Promise:
    limit = numbers.short_milliseconds(status.max_gap_ms)
    if not status.gaps:
        return Promise(text("performance.promise.gap_untried", limit=limit), None)
    largest, gaps = numbers.short_milliseconds(status.largest_gap_ms), numbers.tokens(status.gaps)
    if not status.gap_violations:
        return Promise(text("performance.promise.gap_kept", limit=limit, largest=largest, gaps=gaps), True)
    broken = numbers.tokens(status.gap_violations)
    return Promise(
        text("performance.promise.gap_broken", limit=limit, largest=largest, gaps=gaps, broken=broken), False
    )


def _share_promise(status: PromiseStatus, text: Text) -> Promise:
    share = numbers.share(status.decode_share, 0)
    if not status.windows:
        return Promise(text("performance.promise.share_untried", share=share), None)
    windows = numbers.tokens(status.windows)
    if not status.share_violations:
        return Promise(text("performance.promise.share_kept", share=share, windows=windows), True)
    broken = numbers.tokens(status.share_violations)
    return Promise(text("performance.promise.share_broken", share=share, windows=windows, broken=broken), False)


# Why a window did not count. Source: Performance.discarded in control.wire_metrics.
_DISCARD_TEXT: Final[dict[str, str]] = {
    "prefill": "performance.discarded.prefill",
    "membership": "performance.discarded.membership",
    "idle": "performance.discarded.idle",
    "gap": "performance.discarded.gap",
    "restart": "performance.discarded.restart",
}


def discarded_sentences(discarded: Mapping[str, int], text: Text) -> tuple[str, ...]:
    """The most frequent reason first; a reason that this console does not know is named as control names it."""
    ordered = sorted((item for item in discarded.items() if item[1]), key=lambda item: -item[1])
    return tuple(
        text.count(_DISCARD_TEXT[reason], count)
        if reason in _DISCARD_TEXT
        else text.count("performance.discarded.other", count, reason=reason)
        for reason, count in ordered
    )


def misses_explained(misses: Sequence[MissExplanation], text: Text) -> tuple[Miss, ...]:
    """The newest first."""
    newest = sorted(misses, key=lambda miss: miss.sampled_at_s, reverse=True)[:NUM_MISSES]
    return tuple(
        Miss(
            at=numbers.time_of_day(text, miss.sampled_at_s),
            at_full=numbers.date_and_time(text, miss.sampled_at_s),
            sentence=_miss_sentence(miss, text),
        )
        for miss in newest
    )


def no_misses(told: MissList | None, text: Text) -> str:
    """Why the list is empty: that all went well is only said of prompts that there were. None: not known now."""
    if told is None:
        return text("performance.miss.unknown")
    if told.lookups is None:
        return text("performance.miss.no_model")
    if not told.is_on:
        return text("warning.cache_off")
    return text("performance.miss.none" if told.lookups else "performance.miss.no_prompt")


def _miss_sentence(miss: MissExplanation, text: Text) -> str:
    prompt = numbers.tokens(miss.prompt_tokens)
    if miss.cause == "cold":
        if miss.first_difference is None:
            return text("performance.miss.cold", prompt=prompt)
        return text("performance.miss.cold_soon", prompt=prompt, n=numbers.tokens(miss.first_difference))
    shared = text("performance.miss.shared", n=numbers.tokens(_shared_tokens(miss)))
    if miss.cause == "differs":
        return text.join(shared, text("performance.miss.whole_blocks", restored=numbers.tokens(miss.restored_tokens)))
    distance = numbers.tokens(miss.distance_tokens)
    if miss.cause == "evicted":
        if not miss.restored_tokens:
            return text.join(shared, text("performance.miss.evicted_all", distance=distance))
        restored = numbers.tokens(miss.restored_tokens)
        return text.join(shared, text("performance.miss.evicted", distance=distance, restored=restored))
    if not miss.restored_tokens:
        return text.join(shared, text("performance.miss.never_taken_all", distance=distance))
    return text.join(shared, text("performance.miss.never_taken", distance=distance))


def _shared_tokens(miss: MissExplanation) -> int:
    return miss.matched_tokens if miss.first_difference is None else miss.first_difference
