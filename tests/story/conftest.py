"""Fixtures of the stories: a whole Splash per test, and its end."""

import json

import pytest

from tests.story.stack import Stack, fake_engine

SLOWLY = {
    "match": "slowly",
    "steps": [{"prefill": {"total": 40}}, {"tokens": {"text": "drip " * 20_000, "per_second": 50}}],
}


@pytest.fixture
def slow_script(tmp_path):
    """Of the scripted engine: it echoes, and answers "slowly" with 50 words a second, for minutes."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([SLOWLY]))
    return script


@pytest.fixture
def stack(tmp_path, slow_script):
    """With the scripted engine, which is quick to start."""
    stack = Stack(tmp_path / "home", engine_command=fake_engine(slow_script))
    yield stack
    stack.clean_up()


@pytest.fixture
def real_stack(tmp_path):
    """With the real engine."""
    stack = Stack(tmp_path / "home")
    yield stack
    stack.clean_up()
