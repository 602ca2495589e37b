"""Requests and stretches as hypothesis draws them: few ids, models and hours, so that they meet. Not a test."""

from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from control.metrics.stretch import Stretch
from control.wire import RequestRow
from tests.unit.control_gateway.test_metrics import row

# Clocks go back here on 1 November 2026, at two in the morning.
ZONE = ZoneInfo("America/New_York")
BEGINNING_S = 1793422800.0  # 2026-10-31 00:00 there
HOURS = 60

# Halves add up exactly in any order.
halves = st.integers(0, 40_000).map(lambda number: number / 2)
tokens = st.integers(0, 3000)
moments = st.integers(0, HOURS * 3600 - 1).map(lambda second: BEGINNING_S + second)
models = st.sampled_from(["small", "large"])


@st.composite
def requests(draw) -> RequestRow:
    number = draw(st.integers(0, 25))
    unknown_or = st.none() | halves
    return row(
        number,
        started_at_s=draw(moments),
        model=draw(models),
        key=draw(st.sampled_from(["laptop", "phone"])),
        outcome=draw(st.sampled_from(["completed", "cancelled", "failed", "rejected"])),
        **{name: draw(unknown_or) for name in ("queue_ms", "prefill_ms", "decode_ms", "ttft_ms", "largest_gap_ms")},
        **{name: draw(tokens) for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")},
        **{name: draw(st.integers(0, 4)) for name in ("first_emission_tokens", "drafted_tokens", "accepted_tokens")},
    )


@st.composite
def stretches(draw) -> Stretch:
    return Stretch(
        started_at_s=draw(moments),
        seconds=draw(halves),
        model=draw(models),
        width=draw(st.integers(1, 4)),
        tokens=draw(tokens),
        context_tokens=draw(st.sampled_from([0, 1, 4095, 4096, 4097, 8192, 100_000])),
        peak_tokens_per_second=draw(st.none() | halves),
        ceiling_tokens_per_second=draw(st.none() | halves),
    )


def stretch(**fields) -> Stretch:
    values = {"started_at_s": BEGINNING_S, "seconds": 10.0, "model": "small", "width": 1, "tokens": 700}
    return Stretch(**{**values, "context_tokens": 5000, **fields})
