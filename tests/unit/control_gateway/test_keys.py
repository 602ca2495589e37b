"""The key ring: shown once, stored as a hash, checked in memory, revoked for good."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.admin.errors import KeyNameInvalid, KeyNameTaken, UnknownKey
from control.keys import Key, load_keys
from control.metrics.database import open_database
from control.metrics.writer import Writer
from control.wire import KeyChange, KeyLimits


class Home:
    """A database that can be opened again, as a restart does."""

    def __init__(self, path) -> None:
        self.path = path
        self.open()

    def open(self) -> None:
        engine = open_database(self.path)
        self.writer = Writer(engine)
        self.keys = load_keys(engine, self.writer)

    def restart(self) -> None:
        self.writer.close()
        self.open()


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "splash.db")
    yield home
    home.writer.close()


async def test_a_new_key_is_random_recognised_and_has_its_class(home):
    created = await home.keys.create("laptop", "batch")

    assert created.key.startswith("sk-splash-")
    assert len(created.key) == len("sk-splash-") + 43
    assert home.keys.verify(created.key.encode()) == Key(id=1, name="laptop", request_class="batch")


async def test_a_key_works_after_a_restart_and_is_nowhere_on_disk(home):
    created = await home.keys.create("laptop")

    home.restart()

    assert home.keys.verify(created.key.encode()) == Key(id=1, name="laptop", request_class="interactive")
    assert home.keys.list() == (created.view,)
    secret = created.key.removeprefix("sk-splash-").encode()
    assert not any(secret in file.read_bytes() for file in home.path.parent.iterdir())


async def test_the_view_shows_the_beginning_and_the_last_four_only(home):
    created = await home.keys.create("laptop")

    assert created.view.hint == f"sk-splash-…{created.key[-4:]}"


@pytest.mark.parametrize("token", [b"", b"sk-splash-", b"sk-splash-x", "clé".encode(), b"\xff\x00", b"x" * 100_000])
async def test_anything_else_is_no_key(home, token):
    created = await home.keys.create("laptop")

    assert home.keys.verify(token) is None
    assert home.keys.verify(created.key.encode() + b" ") is None


@given(st.binary(max_size=80))
def test_no_bytes_open_an_empty_ring(token):
    from control.keys import KeyRing

    assert KeyRing([], writer=None).verify(token) is None


async def test_a_revoked_key_is_refused_at_once_and_after_a_restart(home):
    created = await home.keys.create("laptop")
    other = await home.keys.create("phone")

    revoked = await home.keys.revoke(created.view.id)
    at_once = home.keys.verify(created.key.encode())
    home.restart()

    assert at_once is None
    assert home.keys.verify(created.key.encode()) is None
    assert home.keys.verify(other.key.encode()).name == "phone"
    assert revoked.revoked_at_s is not None
    assert home.keys.list() == (revoked, other.view)


async def test_revoking_twice_changes_nothing(home):
    created = await home.keys.create("laptop")

    first = await home.keys.revoke(created.view.id)

    assert await home.keys.revoke(created.view.id) == first


async def test_a_key_that_is_not_there_cannot_be_revoked(home):
    with pytest.raises(UnknownKey, match="id 7"):
        await home.keys.revoke(7)


async def test_a_name_is_taken_until_its_key_is_revoked(home):
    created = await home.keys.create("laptop")

    with pytest.raises(KeyNameTaken, match="'laptop'"):
        await home.keys.create(" laptop ")
    await home.keys.revoke(created.view.id)
    again = await home.keys.create("laptop")

    assert again.view.id != created.view.id


async def test_two_at_once_cannot_both_have_a_name(home):
    results = await asyncio.gather(home.keys.create("laptop"), home.keys.create("laptop"), return_exceptions=True)

    assert sorted(type(result).__name__ for result in results) == ["CreatedKey", "KeyNameTaken"]
    assert len(home.keys.list()) == 1


@pytest.mark.parametrize("name", ["laptop", "笔记本", "Jörg's Mac", "x" * 64, "😀"])
async def test_a_name_may_be_in_any_script(home, name):
    created = await home.keys.create(f"  {name}\t")

    assert created.view.name == name


@pytest.mark.parametrize("name", ["", "   ", "x" * 65, "a\nb", "a\x00b", "\u202eevil"])
async def test_a_name_that_cannot_be_shown_is_refused(home, name):
    with pytest.raises(KeyNameInvalid):
        await home.keys.create(name)

    assert home.keys.list() == ()


async def test_a_key_has_no_limits_unless_it_is_given_some(home):
    free = await home.keys.create("free")
    limited = await home.keys.create("limited", limits=KeyLimits(max_in_flight=2, tokens_per_day=10**15))

    home.restart()

    assert home.keys.verify(free.key.encode()).limits == KeyLimits()
    assert home.keys.verify(limited.key.encode()).limits == KeyLimits(max_in_flight=2, tokens_per_day=10**15)
    assert home.keys.list() == (free.view, limited.view)


async def test_limits_change_one_by_one_at_once_and_for_the_next_start(home):
    created = await home.keys.create("laptop", limits=KeyLimits(max_in_flight=2, requests_per_day=100))

    changed = await home.keys.change(created.view.id, KeyChange(requests_per_day=None, tokens_per_day=5000))
    at_once = home.keys.verify(created.key.encode()).limits
    home.restart()

    assert changed.limits == at_once == KeyLimits(max_in_flight=2, tokens_per_day=5000)
    assert home.keys.list() == (changed,)


async def test_a_change_of_nothing_changes_nothing(home):
    created = await home.keys.create("laptop", limits=KeyLimits(max_in_flight=2))

    assert await home.keys.change(created.view.id, KeyChange()) == created.view


async def test_a_key_that_is_not_there_cannot_be_limited(home):
    with pytest.raises(UnknownKey, match="id 7"):
        await home.keys.change(7, KeyChange(max_in_flight=1))


async def test_two_changes_of_one_key_at_once_are_both_kept(home):
    created = await home.keys.create("laptop")

    await asyncio.gather(
        home.keys.change(created.view.id, KeyChange(max_in_flight=1)),
        home.keys.change(created.view.id, KeyChange(tokens_per_day=9)),
        home.keys.revoke(created.view.id),
    )
    (view,) = home.keys.list()
    home.restart()

    assert view.limits == KeyLimits(max_in_flight=1, tokens_per_day=9)
    assert view.revoked_at_s is not None
    assert home.keys.list() == (view,)
