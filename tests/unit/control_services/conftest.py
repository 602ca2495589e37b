"""A home whose launchd is the fake program, and a clock that costs no time."""

import pytest

from control.home import Home
from control.services.launchctl import Launchctl
from tests.unit.control_services.scripted import Clock


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path.resolve() / "home")
    home.create()
    return home


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def nowhere():
    """For what must not ask launchd anything."""
    return Launchctl("/nonexistent/launchctl", "gui/501")
