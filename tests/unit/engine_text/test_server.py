"""The door without a worker behind it: states, the secret, the status that is encoded once, bodies without a length."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest

from engine.beginning import Beginning
from engine.door.doorkeeper import read_body
from engine.door.server import Door, make_app
from engine.errors import BodyTooLarge
from engine.wire import CacheCleared, CountAnswer

SECRET = "secret"
PORT = 18181


class Counting:
    """Stands where the intake stands, and counts to three."""

    given_up_s = 0.0

    def count(self, body):
        return CountAnswer(prompt_tokens=3, maximum_context_tokens=10)

    def admit(self, body):
        raise AssertionError("nothing may be admitted before the model is ready")


class Broken(Counting):
    def count(self, body):
        raise ZeroDivisionError


class Slow(Counting):
    """Counts when it is let go."""

    def __init__(self):
        self.bodies = []
        self.began = threading.Event()
        self.goes = threading.Event()

    def count(self, body):
        self.bodies.append(body)
        self.began.set()
        assert self.goes.wait(30)
        return super().count(body)


class Forgetting(Counting):
    """Says on which thread it was told to forget."""

    def __init__(self):
        self.told_on = []

    def forget(self):
        self.told_on.append(threading.current_thread().name)


class Ready:
    """A worker with an empty cache."""

    def __init__(self):
        self.snapshot = msgspec.structs.replace(Beginning(concurrency=4).snapshot, state="ready", ready=True)

    def order(self, do):
        do(self)

    def clear_cache(self):
        return CacheCleared(freed_bytes=0, blocks=0, snapshots=0)


class Shutdowns:
    def __init__(self):
        self.num = 0

    def __call__(self):
        self.num += 1


@pytest.fixture
def shutdowns():
    return Shutdowns()


@pytest.fixture
def door(shutdowns):
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="text") as text_thread:
        yield Door(worker=Beginning(concurrency=4), text_thread=text_thread, nonce="nonce", on_shutdown=shutdowns)


@pytest.fixture
async def http(door):
    transport = httpx.ASGITransport(app=make_app(door, secret=SECRET, port=PORT), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {SECRET}"}
    async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}", headers=headers) as client:
        yield client


async def test_before_the_model_is_known_the_door_says_that_it_is_loading(http):
    health = (await http.get("/healthz")).json()
    status = (await http.get("/status")).json()
    count = await http.post("/count", content=b"{}")
    generate = await http.post("/generate", content=b"{}")

    assert (health["state"], status["state"], status["ready"]) == ("loading", "loading", False)
    assert [answer.status_code for answer in (count, generate)] == [503, 503]
    assert generate.json() == {
        "code": "not_ready",
        "message": "The model is not ready: loading.",
        "retryable": True,
    }


async def test_a_prompt_is_counted_while_the_weights_load(http, door):
    door.open(Beginning(concurrency=4), Counting())

    count = await http.post("/count", content=b"{}")
    generate = await http.post("/generate", content=b"{}")

    assert count.json() == {"prompt_tokens": 3, "maximum_context_tokens": 10}
    assert generate.status_code == 503


async def test_a_download_shows_in_the_status(http, door):
    beginning = Beginning(concurrency=4)
    door.open(beginning, Counting())

    beginning.downloaded(10, 100)

    load = (await http.get("/status")).json()["load"]
    assert (load["bytes_read"], load["bytes_total"]) == (10, 100)


async def test_a_door_that_stops_takes_nothing_more_and_says_so(http, shutdowns):
    stopped = await http.post("/shutdown")
    generate = await http.post("/generate", content=b"{}")

    assert stopped.json()["state"] == "stopping"
    assert shutdowns.num == 1
    assert (generate.status_code, generate.json()["code"]) == (503, "stopping")


async def test_who_waits_for_the_text_thread_is_told_that_the_engine_stops(http, door):
    slow = Slow()
    door.open(Beginning(concurrency=4), slow)
    waiting = [asyncio.create_task(http.post("/count", content=content)) for content in (b"1", b"2")]
    await asyncio.to_thread(slow.began.wait)

    door.stop()
    answers = await asyncio.gather(*waiting)
    slow.goes.set()

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "stopping")] * 2
    assert len(slow.bodies) == 1


async def test_a_failure_of_ours_is_an_answer_without_its_details(http, door):
    door.open(Beginning(concurrency=4), Broken())

    answer = await http.post("/count", content=b"{}")

    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert "ZeroDivision" not in answer.text


async def test_the_status_says_how_long_the_text_thread_has_been_at_one_thing(shutdowns):
    now = [100.0]
    slow = Slow()
    with ThreadPoolExecutor(max_workers=1) as text_thread:
        door = Door(worker=Ready(), text_thread=text_thread, nonce="", on_shutdown=shutdowns, monotonic=lambda: now[0])
        door.open(Ready(), slow)
        before = await door.status(None)
        counting = asyncio.create_task(door._on_text_thread(lambda: slow.count(b"")))
        await asyncio.to_thread(slow.began.wait)
        now[0] = 107.0
        meanwhile = await door.status(None)
        slow.goes.set()
        await counting
        slow.given_up_s = 9.0
        given_up = await door.status(None)

    told = [msgspec.json.decode(answer.body).get("text_busy_s", 0.0) for answer in (before, meanwhile, given_up)]
    assert told == [0.0, 7.0, 9.0]


async def test_clearing_the_cache_makes_the_text_side_forget_earlier_prompts_on_its_own_thread(http, door):
    intake = Forgetting()
    door.open(Ready(), intake)

    answer = await http.post("/cache/clear")

    assert answer.json() == {"freed_bytes": 0, "blocks": 0, "snapshots": 0}
    assert intake.told_on == ["text_0"]


async def test_before_the_model_is_ready_there_is_nothing_to_clear(http, door):
    intake = Forgetting()
    door.open(Beginning(concurrency=4), intake)

    answer = await http.post("/cache/clear")

    assert (answer.status_code, intake.told_on) == (503, [])


async def test_a_status_is_encoded_once_per_snapshot(http, door, monkeypatch):
    from engine.door import server

    encoded = []
    encode = server.msgspec.json.encode
    monkeypatch.setattr(server.msgspec.json, "encode", lambda value: (encoded.append(value), encode(value))[1])

    first = await http.get("/status")
    second = await http.get("/status")

    assert first.content == second.content
    assert len(encoded) == 1


class Chunked:
    """A request whose body comes in chunks, with no length announced."""

    headers: dict = {}  # noqa: RUF012  # a stand-in that nothing changes

    def __init__(self, *chunks):
        self.chunks = chunks
        self.num_read = 0

    async def stream(self):
        for chunk in self.chunks:
            self.num_read += 1
            yield chunk


async def test_a_body_of_unknown_length_is_read_up_to_the_limit():
    request = Chunked(b"ab", b"cd")

    assert await read_body(request, limit_bytes=4) == b"abcd"


async def test_a_body_of_unknown_length_is_refused_at_the_limit():
    request = Chunked(b"ab", b"cd", b"ef", b"gh")

    with pytest.raises(BodyTooLarge):
        await read_body(request, limit_bytes=5)

    assert request.num_read == 3
