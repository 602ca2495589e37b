"""Fixtures of the stories: a whole Splash per test, and its end."""

import pytest

from tests.story.stack import Stack, fake_engine


@pytest.fixture
def stack(tmp_path):
    """With the scripted engine: quick to start, and it says what a script tells it to."""
    stack = Stack(tmp_path / "home", engine_command=fake_engine())
    yield stack
    stack.clean_up()


@pytest.fixture
def real_stack(tmp_path):
    """With the real engine."""
    stack = Stack(tmp_path / "home")
    yield stack
    stack.clean_up()
