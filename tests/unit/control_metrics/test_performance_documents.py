"""docs/metrics.md defines every number that the console and /metrics show."""

import re
from pathlib import Path

import pytest

import control.prometheus
from control import wire
from control.metrics.windows import Reason

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
SHOWN = (
    wire.Today,
    wire.DatabaseHealth,
    wire.Money,
    wire.WidthThroughput,
    wire.ContextThroughput,
    wire.ContextPoint,
    wire.Regression,
    wire.Percentiles,
    wire.SpeedPoint,
    wire.TtftPoint,
    wire.Performance,
    wire.RequestRow,
    wire.ListedRequest,
    wire.PromiseStatus,
)
# The same as another that is defined, or no number.
PASSED_OVER = {"row", "currency", "range", "model"}


@pytest.fixture(scope="module")
def text():
    return DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", SHOWN)
def test_each_field_is_defined(text, kind):
    missing = [
        name for name in kind.__struct_fields__ if name not in PASSED_OVER and not re.search(rf"\b{name}\b", text)
    ]

    assert missing == []


def test_each_metric_of_prometheus_is_defined(text):
    metrics = set(re.findall(r"`(splash_\w+)`", control.prometheus.__doc__))

    assert len(metrics) > 20
    assert {name for name in metrics if f"`{name}`" not in text} == set()


def test_each_reason_to_discard_a_window_is_explained(text):
    assert {reason for reason in Reason.__args__ if f"| `{reason}` |" not in text} == set()
