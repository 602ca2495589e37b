import asyncio
import stat

import pytest

from control import wire
from control.wire import ProcessRecord
from tests.fakes import control as fake
from webui.control_client import ControlClient
from webui.errors import ControlGone, ControlRefused
from webui.home import SESSION_KEY_BYTES, Home
from webui.watch import Watch


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def client(control, home):
    client = ControlClient(home, admin_port=control.port)
    yield client
    await client.close()


async def test_many_pages_are_one_question(client, control):
    clock = Clock()
    watch = Watch(client, fate=lambda: "lives", now_s=clock)

    first = await asyncio.gather(*(watch.look() for _ in range(20)))
    control.overview = fake.overview(concurrency=1)
    soon = await watch.look()
    clock.now_s += 1
    later = await watch.look()

    assert len({id(seen.overview) for seen in first}) == 1
    assert soon.overview is first[0].overview
    assert later.overview.concurrency == 1


async def test_while_control_is_silent_the_last_answer_grows_old(client, control):
    clock = Clock()
    watch = Watch(client, fate=lambda: "lives", now_s=clock)
    await watch.look()
    control.is_silent = True
    clock.now_s += 12

    silent = await watch.look()
    control.is_silent = False
    clock.now_s += 1
    back = await watch.look()

    assert (silent.is_current, silent.age_s) == (False, 12.0)
    assert silent.overview is not None
    assert (back.is_current, back.age_s) == (True, 0.0)


async def test_a_page_that_goes_away_does_not_take_the_answer_from_the_others(client):
    watch = Watch(client, fate=lambda: "lives")
    leaver, stayer = asyncio.create_task(watch.look()), asyncio.create_task(watch.look())
    await asyncio.sleep(0)

    leaver.cancel()
    seen = await stayer

    assert seen.is_current


async def test_the_list_of_models_is_not_waited_for_longer_than_allowed(client, control):
    watch = Watch(client, fate=lambda: "lives")

    at_once = await watch.models(wait_s=0)
    control.models = ()
    in_the_end = await watch.models(wait_s=5)
    await watch.close()

    assert (at_once, in_the_end) == ((), ())


async def test_the_models_are_listed_anew_when_what_is_loaded_changed(client, control):
    """What is loaded takes the memory that the others lack."""
    clock = Clock()
    watch = Watch(client, fate=lambda: "lives", now_s=clock)
    await watch.look()
    before = await watch.models(wait_s=5)
    control.models = (wire.ModelOnDisk("m", "/models/m", "dense", None, 1, 1, fits=True, is_demo=False),)
    unchanged = await watch.models(wait_s=5)

    control.overview = fake.overview(view=fake.engine("unloaded"))
    clock.now_s += 1
    await watch.look()
    after = await watch.models(wait_s=5)
    await watch.close()

    assert (before, unchanged) == ((), ())
    assert [model.name for model in after] == ["m"]


async def test_nobody_at_the_port_is_control_gone(home):
    client = ControlClient(home, admin_port=1)

    with pytest.raises(ControlGone):
        await client.overview()
    await client.close()


async def test_without_an_admin_secret_control_is_gone(tmp_path, control):
    client = ControlClient(Home(tmp_path), admin_port=control.port)

    with pytest.raises(ControlGone):
        await client.overview()
    await client.close()


async def test_a_wrong_secret_is_a_refusal_with_controls_reason(client, home):
    (home.root / "secrets" / "admin").write_text("another")

    with pytest.raises(ControlRefused) as refused:
        await client.overview()

    assert (refused.value.code, refused.value.status) == ("unauthorized", 401)


def test_the_session_key_is_made_once_and_is_private(tmp_path):
    home = Home(tmp_path / "home")

    first, again = home.session_key(), Home(tmp_path / "home").session_key()

    path = tmp_path / "home" / "secrets" / "console"
    assert first == again
    assert len(first) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["console"]


def test_a_successors_record_is_left_alone(home):
    mine = ProcessRecord(
        name="webui", pid=1, created_at_s=0, nonce="a", port=1, manager="detached", started_at_s=0, version="0"
    )
    successor = ProcessRecord(
        name="webui", pid=2, created_at_s=0, nonce="b", port=1, manager="detached", started_at_s=0, version="0"
    )
    home.write_record(mine)
    home.write_record(successor)

    home.remove_record(mine)

    assert (home.root / "run" / "webui.json").exists()
    home.remove_record(successor)
    assert not (home.root / "run" / "webui.json").exists()


@pytest.mark.parametrize("content", [b"", b"short", b"\n"])
def test_a_session_key_that_was_cut_short_is_replaced(tmp_path, content):
    home = Home(tmp_path / "home")
    home.session_key()
    (tmp_path / "home" / "secrets" / "console").write_bytes(content)

    key = home.session_key()

    assert len(key) == 2 * SESSION_KEY_BYTES
    assert home.session_key() == key


def test_an_admin_secret_that_is_not_text_is_no_secret(tmp_path):
    home = Home(tmp_path)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "admin").write_bytes(b"\xff\xfe")

    with pytest.raises(ControlGone):
        home.admin_secret()
