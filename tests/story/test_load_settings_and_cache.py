"""How a model is loaded, from the command line to the engine; and its prefix cache, seen and emptied from there.

With the scripted engine: it says what it was started with, and counts what its script takes from the cache.
"""

import json

import pytest

from tests.story.stack import Stack, fake_engine, wait_until

pytestmark = pytest.mark.story

ASK = {"model": "default", "messages": [{"role": "user", "content": "from the cache"}]}
CACHED = {"match": "from the cache", "steps": [{"prefill": {"total": 1000, "cached": 960}}, {"tokens": {"text": "ok"}}]}


def scripted(folder, script: list) -> Stack:
    file = folder / "script.json"
    file.write_text(json.dumps(script))
    return Stack(folder / "home", engine_command=fake_engine(file))


@pytest.fixture
def stack(tmp_path):
    stack = scripted(tmp_path, [CACHED])
    yield stack
    stack.clean_up()


@pytest.fixture
def limited(tmp_path):
    """Its engine has no prefix cache, and another self-test did not pass either."""
    why = {"cache_off": "logits differ", "failed_tests": {"restore": "logits differ", "late_system": "no place for it"}}
    stack = scripted(tmp_path, [why, CACHED])
    yield stack
    stack.clean_up()


def runs_with(stack: Stack) -> tuple[int | None, float, float]:
    """What the engine itself says of how it was started."""
    engine = stack.overview().engine
    return engine.layout.kv_bits, engine.promises.max_gap_ms, engine.promises.decode_share


def test_settings_reach_the_engine_and_stay_with_the_model_until_they_are_undone(stack):
    stack.up("--kv-bits", "8", "--max-gap-ms", "250", "--decode-share", "0.25")
    first = runs_with(stack)
    stack.quit()
    stack.up()
    after_a_restart = runs_with(stack)
    undone = stack.splash("load", "demo", "--kv-bits", "none", "--max-gap-ms", "default")

    assert first == after_a_restart == (8, 250.0, 0.25)
    assert undone.returncode == 0, undone.stderr
    assert runs_with(stack) == (None, 500.0, 0.25)


def test_a_control_that_adopts_an_engine_knows_its_settings_and_starts_no_other(stack):
    stack.up("--budget", "1.5GiB", "--kv-bits", "4")
    engine = stack.record("engine")
    stack.kill("control")
    wait_until(lambda: not stack.is_alive("control"), "control to be gone")

    stack.up("demo", "--budget", "1536MiB", "--kv-bits", "4")

    assert stack.record("engine") == engine


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--kv-bits", "3", "--kv-bits must be 8 or 4"),
        ("--max-gap-ms", "1", "--max-gap-ms must be from 50 to 10000"),
        ("--budget", "much", "--budget much is not a size"),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence_and_the_model_runs_on(stack, option, value, sentence):
    stack.up()
    engine = stack.record("engine")

    done = stack.splash("load", "demo", option, value)

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert sentence in done.stderr
    assert stack.record("engine") == engine


def test_the_cache_is_seen_in_the_status_and_gives_back_what_it_says(stack):
    stack.up()
    with stack.api() as api:
        answer = api.post("/chat/completions", json=ASK).json()
    wait_until(lambda: stack.overview().engine.cache.lookup_tokens, "the lookup to be counted")
    status = stack.status()["engine"]["cache"]

    cleared = stack.splash("cache", "clear", "--json")
    again = stack.splash("cache", "clear")

    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 960
    assert (status["is_on"], status["hit_rate"]) == (True, 0.96)
    assert "hit rate 96.0%" in status["text"]
    assert json.loads(cleared.stdout) == {"freed_bytes": status["used_bytes"], "blocks": 1, "snapshots": 1}
    assert again.stdout.strip() == "The prefix cache held nothing that could be freed."


def test_without_a_model_there_is_no_cache_to_clear_and_that_is_said(stack):
    stack.up()
    stack.splash("unload")

    done = stack.splash("cache", "clear")

    assert done.returncode == 1
    assert done.stderr.strip() == "No model is ready (the engine is unloaded), so there is no prefix cache to clear."


def test_what_a_self_test_switched_off_is_in_the_status(limited):
    limited.up()

    engine = limited.status()["engine"]
    shown = " ".join(limited.splash("status", COLUMNS="400").stdout.split())

    assert engine["cache"]["off_reason"] == "logits differ"
    assert engine["failed_tests"] == ["restore", "late_system"]
    assert "cache off: logits differ" in shown
    assert "self-tests not passed: restore, late_system" in shown
