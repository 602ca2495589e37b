"""The main job, end to end: the official SDK, three real processes, the demo model, a row in SQLite.

`docs/one-request.md` is this in prose.
"""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import openai
import pytest

from control.wire import NUM_SLOTS
from tests.story.stack import Stack, wait_until

pytestmark = pytest.mark.story

QUESTION = [{"role": "user", "content": "Which of us waits for tokens?"}]


@pytest.fixture(scope="module")
def splash(tmp_path_factory):
    """One stack with the demo model for all tests of this file."""
    stack = Stack(tmp_path_factory.mktemp("one request") / "home")
    stack.answer = stack.up()
    yield stack
    stack.clean_up()


@pytest.fixture
def client(splash):
    with openai.OpenAI(base_url=splash.api_base, api_key=splash.key, max_retries=0) as client:
        yield client


def rows(splash: Stack) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(f"file:{splash.home.root / 'splash.db'}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        return database.execute("select * from requests order by number").fetchall()


def test_up_answers_with_everything_that_a_person_needs(splash):
    answer = splash.answer

    assert answer["api"] == splash.api_base
    assert answer["console"].startswith(f"http://127.0.0.1:{splash.ports['console']}")
    assert "token=" in answer["login"]
    assert answer["key"].startswith("sk-splash-")
    assert "demo" in answer["model"]


def test_the_model_list_says_that_the_demo_has_random_weights(client):
    models = client.models.list().data

    assert any("random weights" in str(model.model_dump()).lower() for model in models)


def test_a_whole_answer_has_text_and_usage_and_leaves_one_row(splash, client):
    before = len(rows(splash))

    answer = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=24, temperature=0)

    choice = answer.choices[0]
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24
    wait_until(lambda: len(rows(splash)) == before + 1, "the row")
    row = rows(splash)[-1]
    assert row["outcome"] == "completed"
    assert (row["prompt_tokens"], row["completion_tokens"]) == (answer.usage.prompt_tokens, 24)
    assert row["queue_ms"] >= 0
    assert row["prefill_ms"] > 0
    assert row["decode_ms"] > 0
    assert row["ttft_ms"] <= row["total_ms"]


def test_a_streamed_answer_says_the_same_as_a_whole_one(client):
    asked = {"model": "default", "messages": QUESTION, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**asked)

    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))

    deltas = [chunk.choices[0].delta.model_dump() for chunk in chunks if chunk.choices]
    message = whole.choices[0].message.model_dump()
    for part in ("content", "reasoning_content"):
        assert "".join(delta.get(part) or "" for delta in deltas) == (message.get(part) or "")
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_an_effort_makes_the_model_think_and_the_thought_is_not_part_of_the_content(client):
    answer = client.chat.completions.create(
        model="default", messages=QUESTION, max_tokens=24, temperature=0, reasoning_effort="high"
    )

    message = answer.choices[0].message.model_dump()
    assert message["reasoning_content"]
    assert not message["content"]
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0


def test_four_streams_run_at_once_and_more_wait_their_turn(splash, client):
    def ask(number: int) -> str:
        stream = client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": f"Story {number}"}],
            max_tokens=200,
            temperature=0,
            stream=True,
        )
        return "".join(
            (delta.get("content") or "") + (delta.get("reasoning_content") or "")
            for chunk in stream
            if chunk.choices
            for delta in [chunk.choices[0].delta.model_dump()]
        )

    with ThreadPoolExecutor(7) as pool:
        asked = [pool.submit(ask, number) for number in range(7)]
        seen = wait_until(
            lambda: (v := splash.overview()).waiting and all(slot is not None for slot in v.slots) and v,
            "four running and some waiting",
        )
        together = [answer.result() for answer in asked]

    assert len(seen.slots) == NUM_SLOTS
    assert [waiting.position for waiting in seen.waiting] == list(range(1, len(seen.waiting) + 1))
    assert together == [ask(number) for number in range(7)]


def test_the_same_seed_gives_the_same_words_and_another_seed_others(client):
    def ask(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model="default", messages=QUESTION, max_tokens=32, temperature=1, seed=seed
        )
        message = answer.choices[0].message.model_dump()
        return (message.get("reasoning_content") or "") + (message.get("content") or "")

    assert ask(7) == ask(7)
    assert ask(7) != ask(8)


def test_the_same_long_prompt_comes_from_the_cache_until_the_cache_is_cleared(splash, client):
    question = [{"role": "user", "content": "The longer the question, the more of it is kept. " * 40}]

    def cached() -> int:
        answer = client.chat.completions.create(model="default", messages=question, max_tokens=4, temperature=0)
        return answer.usage.prompt_tokens_details.cached_tokens

    first, second = cached(), cached()
    cleared = splash.splash("cache", "clear")
    third = cached()

    assert (first, third) == (0, 0)
    assert second > 0
    assert cleared.returncode == 0, cleared.stderr
    assert "gave back" in cleared.stdout
    wait_until(lambda: [row["cached_tokens"] for row in rows(splash)][-3:] == [0, second, 0], "the rows")


def test_a_client_that_leaves_frees_its_slot_and_is_written_down_as_cancelled(splash, client):
    before = len(rows(splash))

    stream = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=20_000, stream=True)
    next(iter(stream))
    stream.close()

    wait_until(lambda: all(slot is None for slot in splash.overview().slots), "the slot to be free", timeout_s=3)
    wait_until(lambda: len(rows(splash)) == before + 1, "the row")
    assert rows(splash)[-1]["outcome"] == "cancelled"


@pytest.mark.parametrize(
    ("key", "body", "status", "code"),
    [
        ("wrong", {"model": "default", "messages": QUESTION}, 401, "invalid_api_key"),
        (None, {"model": "no-such-model", "messages": QUESTION}, 404, "model_not_found"),
        (None, {"model": "default", "messages": []}, 400, None),
        (None, {"model": "default", "messages": QUESTION, "temperature": "hot"}, 400, None),
        (
            None,
            {"model": "default", "messages": [{"role": "user", "content": "word " * 300_000}]},
            400,
            "context_length_exceeded",
        ),
    ],
    ids=["wrong key", "unknown model", "no messages", "bad temperature", "too long"],
)
def test_bad_input_gets_a_status_and_a_sentence_in_the_apis_own_shape(splash, key, body, status, code):
    headers = {"Authorization": f"Bearer {key or splash.key}"}

    answer = httpx.post(f"{splash.api_base}/chat/completions", json=body, headers=headers, timeout=60, trust_env=False)

    error = answer.json()["error"]
    assert answer.status_code == status
    assert error["message"]
    assert error["type"]
    if code is not None:
        assert error["code"] == code
