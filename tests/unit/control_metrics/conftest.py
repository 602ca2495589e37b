"""Fixtures of the tests of figures: the machine's time zone, and a database that is asked for them."""

import time

import pytest

from tests.unit.control_metrics.measured import Measured


@pytest.fixture
def zone(monkeypatch):
    """Clocks went back here on 1 November 2026, the day of `measured.NOW_S`."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def measured(tmp_path, zone):
    measured = Measured(tmp_path / "splash.db")
    yield measured
    measured.close()
