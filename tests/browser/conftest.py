"""A real browser in front of a real console process. Every page is watched: no console error, no request to elsewhere.

Only plain functions here: Playwright's synchronous API keeps a loop in this thread for as long as the browser lives.
"""

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.console_process import ConsoleProcess
from tests.browser.watched_page import WatchedPages
from tests.fakes.control import FakeControl

CHROMIUM = "/usr/bin/chromium"


def pytest_collection_modifyitems(items):
    for item in items:
        if "/tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def pages(browser):
    """Opens pages; at the end none of them may have complained or asked another machine."""
    pages = WatchedPages(browser)
    yield pages
    pages.close()


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


@pytest.fixture(scope="module")
def running_console(tmp_path_factory, running_control):
    console = ConsoleProcess(tmp_path_factory.mktemp("console") / "home", running_control)
    console.start()
    yield console
    console.stop()


@pytest.fixture
def console(running_console, control):
    """`python -m webui` in front of the scripted control. Who logs in sees the present, whatever was before."""
    return running_console


@pytest.fixture
def own_console(tmp_path, control):
    """One that the test may stop."""
    console = ConsoleProcess(tmp_path / "home", control)
    console.start()
    yield console
    console.stop()
