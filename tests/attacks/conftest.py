"""One running Splash, with the scripted engine, for all attacks that leave it as it was; and its four doors."""

import pytest

from tests.attacks.doors import NAMES, doors_of
from tests.story.stack import Stack, fake_engine


@pytest.fixture(scope="session")
def splash(tmp_path_factory):
    stack = Stack(tmp_path_factory.mktemp("attacked") / "home", engine_command=fake_engine())
    try:
        stack.up()
        yield stack
    finally:
        stack.clean_up()


@pytest.fixture(scope="session")
def doors(splash):
    return doors_of(splash)


@pytest.fixture(params=NAMES)
def door(request, doors):
    """Each of the four, one after the other."""
    return doors[request.param]
