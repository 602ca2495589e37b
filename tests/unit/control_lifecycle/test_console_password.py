"""The console's password: its hash, how often it may be tried, and what the admin API answers."""

import asyncio
import json
import logging
import random
import stat

import pytest

from control import wire
from control.admin.password import PasswordApi
from control.console_password import ConsolePassword, fault_of, hashed
from control.home import Home
from control.password_attempts import MOST_OF_ALL, MOST_OF_ONE_ADDRESS, MOST_WAITING, WINDOW_S, PasswordAttempts
from tests.unit.control_lifecycle.rooms import served

PASSWORD = "correct horse battery"


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def kept(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return ConsolePassword(home)


# --- The hash ---


def test_a_password_fits_its_hash_and_no_other_does():
    made = hashed("fünfzehn Zeichen")

    # One é of one character, one of two.
    assert made.fits("fu\u0308nfzehn Zeichen")
    assert not any(made.fits(other) for other in ("funfzehn Zeichen", "fünfzehn Zeichen ", "", "fünfzehn\ud800"))


def test_the_same_password_has_another_hash_each_time():
    first, second = hashed(PASSWORD), hashed(PASSWORD)

    assert first.salt != second.salt and first.hash != second.hash


def test_the_file_is_private_says_how_it_was_made_and_does_not_hold_the_password(kept):
    kept.keep(PASSWORD)

    written = kept.file.read_text()
    fields = json.loads(written)
    assert stat.S_IMODE(kept.file.stat().st_mode) == 0o600
    assert {name: fields[name] for name in ("kind", "n", "r", "p")} == {"kind": "scrypt", "n": 2**15, "r": 8, "p": 1}
    assert PASSWORD not in written
    assert kept.read().fits(PASSWORD)


@pytest.mark.parametrize(
    "content",
    [b"", b"{not json", b"[]", b'{"salt":"AA==","hash":"AA==","n":3,"r":8,"p":1}', b"[" * 100_000]
    + [json.dumps({"salt": "AA==", "hash": "AA==", "n": n, "r": 8, "p": 1}).encode() for n in (1, 2**40)],
)
def test_a_damaged_file_is_no_password(kept, content):
    kept.file.write_bytes(content)

    assert not kept.is_set


@pytest.mark.parametrize(
    ("text", "said"),
    [("nine char", "at least 10"), ("", "at least 10"), ("é" * 513, "at most 1024 bytes"), ("é" * 512, None)],
)
def test_what_is_too_short_or_too_long_is_said(text, said):
    fault = fault_of(text)

    assert fault is None if said is None else said in fault


# --- How often ---


def test_five_wrong_tries_of_one_address_and_it_waits_for_the_oldest_to_be_a_minute_old(clock):
    attempts = PasswordAttempts(monotonic=clock)
    for _ in range(MOST_OF_ONE_ADDRESS):
        assert attempts.wait_s("a") == 0
        attempts.failed("a")
        clock.now_s += 1

    assert attempts.wait_s("a") == WINDOW_S - MOST_OF_ONE_ADDRESS
    assert attempts.wait_s("b") == 0

    clock.now_s += WINDOW_S - MOST_OF_ONE_ADDRESS
    assert attempts.wait_s("a") == 0
    attempts.failed("a")
    assert attempts.wait_s("a") == 1


def test_thirty_wrong_tries_of_many_addresses_and_everybody_waits(clock):
    attempts = PasswordAttempts(monotonic=clock)
    for number in range(MOST_OF_ALL):
        assert attempts.wait_s(f"address {number}") == 0
        attempts.failed(f"address {number}")

    assert attempts.wait_s("somebody new") == WINDOW_S


def test_whoever_tries_at_random_gets_no_more_than_is_allowed_in_any_minute(clock):
    dice, attempts = random.Random(6), PasswordAttempts(monotonic=clock)
    tried: list[tuple[float, str]] = []

    for _ in range(3_000):
        clock.now_s += dice.expovariate(2)
        address = f"10.0.0.{dice.randrange(12)}"
        if attempts.wait_s(address) > 0:
            continue
        attempts.failed(address)
        tried.append((clock.now_s, address))
        recent = [who for at_s, who in tried if at_s > clock.now_s - WINDOW_S]
        assert len(recent) <= MOST_OF_ALL
        assert recent.count(address) <= MOST_OF_ONE_ADDRESS

    assert len(tried) > 100


def test_a_million_addresses_take_no_more_memory_than_thirty(clock):
    attempts = PasswordAttempts(monotonic=clock)

    for number in range(1_000):
        attempts.failed(str(number))

    assert len(attempts._failures) == MOST_OF_ALL


# --- What the admin API answers ---


async def tried(client, password=PASSWORD, address="192.168.1.9"):
    return await client.post(wire.PASSWORD_LOGIN, json={"password": password, "address": address})


async def test_right_wrong_and_none_are_three_answers(kept, clock):
    async with served(PasswordApi(kept, PasswordAttempts(monotonic=clock))) as client:
        none = await tried(client)
        kept.keep(PASSWORD)
        right, wrong = await tried(client), await tried(client, "something else")
        kept.remove()
        removed = await tried(client)

    assert (right.status_code, right.content) == (204, b"")
    assert (wrong.status_code, wrong.json()["code"]) == (403, "wrong_password")
    assert [(each.status_code, each.json()["code"]) for each in (none, removed)] == [(404, "no_password")] * 2


async def test_too_many_wrong_ones_are_told_when_to_come_again_and_right_ones_count_for_nothing(kept, clock, caplog):
    caplog.set_level(logging.INFO)
    kept.keep(PASSWORD)
    async with served(PasswordApi(kept, PasswordAttempts(monotonic=clock))) as client:
        for _ in range(MOST_OF_ONE_ADDRESS):
            await tried(client)
        for _ in range(MOST_OF_ONE_ADDRESS):
            await tried(client, "a wrong password")
        refused = await tried(client)
        clock.now_s += WINDOW_S
        later = await tried(client)

    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
        429,
        "too_many_attempts",
        "60",
    )
    assert later.status_code == 204
    assert PASSWORD not in caplog.text and "a wrong password" not in caplog.text


async def test_many_at_once_get_no_more_tries_than_one_after_the_other(kept, clock):
    kept.keep(PASSWORD)
    async with served(PasswordApi(kept, PasswordAttempts(monotonic=clock))) as client:
        answers = await asyncio.gather(*(tried(client, f"wrong {number}") for number in range(20)))

    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(403), statuses.count(429)) == (MOST_OF_ONE_ADDRESS, 15)


async def test_of_a_flood_from_many_addresses_a_few_wait_and_the_others_are_told_at_once(kept, clock):
    kept.keep(PASSWORD)
    async with served(PasswordApi(kept, PasswordAttempts(monotonic=clock))) as client:
        answers = await asyncio.gather(*(tried(client, "wrong", f"192.168.1.{number}") for number in range(20)))
        afterwards = await tried(client, address="127.0.0.1")

    told = [answer for answer in answers if answer.status_code == 429]
    assert len(answers) - len(told) == MOST_WAITING + 1
    assert {answer.headers["retry-after"] for answer in told} == {"1"}
    assert afterwards.status_code == 204


@pytest.mark.parametrize("address", ["", "somebody", "192.168.1.9\n", "1" * 5_000])
async def test_an_address_that_is_none_is_refused_and_nothing_is_tried(kept, clock, address):
    kept.keep(PASSWORD)
    async with served(PasswordApi(kept, PasswordAttempts(monotonic=clock))) as client:
        answer = await tried(client, address=address)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
