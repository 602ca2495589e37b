"""The setting `keep_awake`: on the admin API and in the command line, in force at once and for later starts."""

import logging

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from control import wire
from control.assembly import assemble
from control.cli.settings import check_of, keep_awake_row
from control.command_errors import UsageWrong
from control.config import Settings
from control.fifo import Line, Ticket
from control.home import Home
from control.power.awake import AwakePolicy
from control.power.keeper import AwakeKeeper, stored_keep_awake
from control.power.sleep_watch import SleepWatch
from control.prometheus import Prometheus
from tests.unit.control_lifecycle.scene import Memory
from tests.unit.control_lifecycle.test_assembly import RECORD, started
from tests.unit.control_power.test_caffeinate import Scene, children


@pytest.fixture
def root(tmp_path):
    return tmp_path.resolve() / "home"


async def power(admin) -> wire.Power:
    return msgspec.json.decode((await admin.get(wire.OVERVIEW)).content, type=wire.Overview).power


async def test_it_is_busy_until_another_is_chosen_which_the_next_start_finds(root):
    async with started(root) as (_, admin, _):
        first = await power(admin)
        answer = await admin.post(wire.KEEP_AWAKE, json={"keep_awake": "loaded"})
        at_once = await power(admin)

    async with started(root) as (_, admin, _):
        later = await power(admin)

    assert (first.keep_awake, at_once.keep_awake, later.keep_awake) == ("busy", "loaded", "loaded")
    assert (answer.status_code, answer.json()) == (200, {"keep_awake": "loaded"})
    assert (first.sleeps, first.awake_reason, first.is_kept_awake) == (0, None, False)


@pytest.mark.parametrize("body", [{"keep_awake": "sometimes"}, {}, {"keep_awake": "busy", "display": True}])
async def test_what_can_not_be_is_refused_and_changes_nothing(root, body):
    async with started(root) as (_, admin, _):
        answer = await admin.post(wire.KEEP_AWAKE, json=body)

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert (await power(admin)).keep_awake == "busy"


def test_a_stored_setting_that_is_none_is_the_default_and_said(caplog):
    memory = Memory()
    memory.values["keep_awake"] = "forever"

    with caplog.at_level(logging.WARNING):
        assert stored_keep_awake(memory) == "busy"
    assert "keep_awake" in caplog.text


class Ignored:
    """Settings that take everything at once."""

    def get(self, name, kind):
        return None

    async def change(self, name, newest, *, in_force):
        in_force(newest())


async def nobody() -> None:
    """Rechecks nothing."""


@pytest.fixture
async def keeper(tmp_path):
    scene = Scene(tmp_path)
    keeper = AwakeKeeper(
        settings=Ignored(),
        command=scene.command,
        line=Line(),
        has_engine=lambda: False,
        sleep_watch=SleepWatch(woke=lambda: None, recheck=nobody),
        policy=AwakePolicy(),
    )
    yield keeper
    await keeper.close()


async def test_a_request_that_is_held_keeps_it_awake_and_never_ends_that_at_once(keeper):
    keeper._line.join(Ticket("a"))
    keeper.look()
    held = keeper.view()

    await keeper.change("never")

    assert (held.awake_reason, held.is_kept_awake, held.can_keep_awake) == ("requests", True, True)
    assert (keeper.view().awake_reason, keeper.view().is_kept_awake) == (None, False)
    assert len(children()) <= 1


async def test_when_control_closes_the_child_is_gone(keeper):
    keeper._line.join(Ticket("a"))
    keeper.look()

    await keeper.close()

    assert children() == []


async def test_when_control_ends_and_leaves_its_engine_nothing_keeps_the_machine_awake(root, tmp_path):
    scene = Scene(tmp_path)
    home = Home(root)
    home.create()
    control = await assemble(
        Settings(home=root), home, RECORD, engine_command=("false",), caffeinate_command=scene.command
    )
    control.awake._line.join(Ticket("held"))
    control.awake.look()
    before = len(children())

    await control.close()

    assert (before, children()) == (1, [])


def test_prometheus_counts_sleeps_and_their_seconds():
    slept = wire.Power(sleeps=3, slept_s=7250.5)
    prometheus = Prometheus(
        line=Line(), engine=lambda: wire.EngineView(state="unloaded"), losses=lambda: 0, power=lambda: slept
    )

    families = text_string_to_metric_families(prometheus.exposition().decode())
    values = {sample.name: sample.value for family in families for sample in family.samples}

    assert values["splash_machine_sleeps_total"] == 3
    assert values["splash_machine_sleep_seconds_total"] == 7250.5


class Client:
    def __init__(self) -> None:
        self.orders: list[str] = []

    def set_keep_awake(self, keep_awake: str) -> None:
        self.orders.append(keep_awake)


def test_the_command_line_sets_it_and_says_where_it_has_no_effect():
    client = Client()

    check_of("keep_awake=never")(client)()

    assert client.orders == ["never"]
    assert keep_awake_row(wire.Power(can_keep_awake=True)) == ("keep_awake", "busy", "busy, loaded, never")
    assert keep_awake_row(wire.Power())[2].endswith("no effect on this machine")
    with pytest.raises(UsageWrong, match="busy, loaded, never"):
        check_of("keep_awake=yes")
