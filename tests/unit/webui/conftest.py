"""Fixtures of the console: a scripted control, a home, a visitor, and one who is logged in."""

import pytest

from tests.fakes.control import SECRET, FakeControl
from tests.fakes.control_record import write_record
from tests.unit.webui.console_stage import serve
from webui.home import Home


@pytest.fixture(scope="module")
def running_control():
    control = FakeControl()
    control.start()
    yield control
    control.stop()


@pytest.fixture
def control(running_control):
    running_control.reset()
    return running_control


@pytest.fixture
def home(tmp_path, running_control):
    """In which that control is recorded."""
    write_record(tmp_path, running_control.port)
    (tmp_path / "secrets").mkdir(mode=0o700)
    (tmp_path / "secrets" / "admin").write_text(SECRET)
    return Home(tmp_path)


@pytest.fixture
async def visitor(control, home):
    """A console, and a browser without a session."""
    async with serve(control, home) as console:
        yield console


@pytest.fixture
async def console(visitor):
    """A console, and a browser that is logged in."""
    await visitor.log_in()
    return visitor
