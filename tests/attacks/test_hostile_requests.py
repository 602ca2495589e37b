"""Whoever holds a key, or has put a folder among the models, keeps the real engine busy: it goes on for the others."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.story.stack import Stack

QUESTION = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The demo model, loaded by the real engine."""
    stack = Stack(tmp_path_factory.mktemp("hostile") / "home")
    try:
        stack.up()
        yield stack
    finally:
        stack.clean_up()


def ask(api, **more):
    return api.post("/chat/completions", json={"model": "default", "messages": QUESTION, "max_tokens": 4} | more)


def schema(described):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": described}}


def chain(length):
    """References that lead to references, as the compiler follows them: by recursion."""
    links = {str(i): {"items": {"$ref": f"#/d/{i + 1}"}} for i in range(length)}
    return {"$ref": "#/d/0", "d": {**links, str(length): {"type": "null"}}}


BOMBS = {
    "four multiples": {"type": "integer", "allOf": [{"multipleOf": each} for each in (9973, 9967, 9949, 9941)]},
    "two multiples": {"type": "integer", "allOf": [{"multipleOf": 997}, {"multipleOf": 991}]},
    "choices of multiples": {"anyOf": [{"type": "integer", "multipleOf": 9973 - i} for i in range(5)]},
    "many multiples": {"properties": {f"p{i}": {"type": "integer", "multipleOf": 9973 - i} for i in range(200)}},
    "a round multiple": {"type": "integer", "multipleOf": 409_600_000},
    "a chain of references": chain(6_000),
}


@pytest.mark.timed
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_schema_that_takes_for_ever_to_compile_is_refused_at_once_and_the_engine_goes_on(real, bomb):
    engine = real.record("engine")
    with real.api() as api:
        begun_at = time.monotonic()
        refused = ask(api, response_format=schema(bomb))
        took_s = time.monotonic() - begun_at
        served = ask(api)

    assert refused.status_code in (200, 400), refused.text
    assert refused.status_code == 400 or "items" in str(bomb)
    assert took_s < 5
    assert served.status_code == 200
    assert real.record("engine") == engine


@pytest.mark.parametrize("path", ["/chat/completions", "/completions", "/messages"])
def test_a_megabyte_of_stop_strings_is_refused_by_name(real, path):
    name = "stop_sequences" if path == "/messages" else "stop"
    body = {"model": "default", "max_tokens": 4, name: ["x" * 1_000_000] * 16}

    with real.api() as api:
        refused = api.post(path, json=body | ({"prompt": "a"} if path == "/completions" else {"messages": QUESTION}))

    assert refused.status_code == 400
    assert f"{name}: A stop sequence has at most 1024 characters." in refused.text


@pytest.mark.timed
def test_a_flood_of_counts_is_bounded_by_the_keys_limit_and_holds_up_nobody_else(real):
    def flood(number):  # a text that was counted before would be remembered
        return {"model": "default", "messages": [{"role": "user", "content": f"word{number} " * 75_000}]}

    with real.api() as api, real.admin() as admin:
        made = admin.post("/keys", json={"name": "flood", "limits": {"max_in_flight": 5}})
        flooder = {"authorization": f"Bearer {made.json()['key']}"}
        has_begun = threading.Barrier(41)

        def count(number):
            has_begun.wait()
            return api.post("/messages/count_tokens", json=flood(number), headers=flooder).status_code

        with ThreadPoolExecutor(40) as threads:
            answers = threads.map(count, range(40))
            has_begun.wait()
            begun_at = time.monotonic()
            served = ask(api)
            took_s = time.monotonic() - begun_at
            found = list(answers)

    assert served.status_code == 200
    assert took_s < 8
    assert 429 in found and 200 in found


def test_folders_that_hang_or_break_whoever_reads_them_leave_the_list_of_models_whole(real):
    models = real.home.root / "models"
    deep, pipe = models / "deep", models / "pipe"
    for folder in (deep, pipe):
        folder.mkdir()
    (deep / "config.json").write_text('{"a":' * 200_000)
    (pipe / "config.json").write_text('{"model_type": "llama"}')
    os.mkfifo(pipe / "model.safetensors")

    said = real.splash("models", timeout_s=30)
    with real.admin() as admin:
        listed = admin.get("/models").json()

    assert said.returncode == 0
    assert "splash-demo" in said.stdout
    assert {each["path"] for each in listed["refused"]} == {str(deep), str(pipe)}
