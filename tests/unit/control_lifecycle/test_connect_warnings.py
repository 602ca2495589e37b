"""`splash connect` sets a client up for whatever is loaded, and says when that will not do."""

import pytest

from control.cli.connect import Connected, remarks, report, warnings
from control.connections.clients import CLIENTS
from control.connections.connection import Connection

SMALL = (
    "Claude Code's first prompt alone is about 21,000 tokens, and the loaded model takes 16,384, prompt and answer "
    "together: load it with a larger --context, or another model."
)


def done(name, *, context_tokens, is_demo=False) -> Connected:
    connection = Connection(api_base="http://127.0.0.1:8888/v1", key="sk-splash-1", context_tokens=context_tokens)
    return Connected(CLIENTS[name], connection, None, is_demo, name)


def test_a_context_that_does_not_take_the_first_prompt_is_told_with_both_numbers():
    too_small = done("claude", context_tokens=16_384)

    assert warnings(too_small) == [SMALL]
    assert SMALL in remarks(too_small)
    assert report(too_small)["warnings"] == [SMALL]


@pytest.mark.parametrize(("context_tokens", "is_told"), [(26_000, True), (28_000, False), (None, False)])
def test_room_for_an_answer_counts_and_without_a_model_nothing_is_known(context_tokens, is_told):
    assert bool(warnings(done("claude", context_tokens=context_tokens))) is is_told


def test_of_a_client_whose_first_prompt_nobody_measured_nothing_is_said():
    assert warnings(done("codex", context_tokens=4_096)) == []


@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "openai"])
def test_that_the_demo_is_loaded_is_told_for_every_client(name):
    [said] = warnings(done(name, context_tokens=262_144, is_demo=True))

    assert said.startswith(f"The demo is loaded: it shows that {CLIENTS[name].title} connects")
