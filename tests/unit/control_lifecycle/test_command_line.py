"""The command line's own pieces: tables, arguments, and which sentence a control that cannot be asked gets."""

import os
import signal
from types import SimpleNamespace

import pytest

from control.cli.admin_client import AdminClient
from control.cli.cache import sentence
from control.cli.load_options import Given, load_request
from control.cli.places import Place, running_control
from control.cli.status import _at_work, _cache, is_running, status
from control.cli.tables import print_table
from control.command_errors import CommandFailed, NotAnswering, NotRunning, UsageWrong
from control.config import Settings
from control.home import Home
from control.wire import CacheCleared, CacheStatus, EngineView, LoadRequest


@pytest.fixture
def place(tmp_path):
    home = Home(tmp_path.resolve() / "home")
    home.create()
    home.made_admin_secret()
    return Place(Settings(home=home.root), home)


@pytest.mark.parametrize("cell", ["[/x]", "[bold]x", "[link=file:///x]y[/link]", "a\\[b"])
def test_a_cell_is_shown_as_it_is(cell, capsys):
    print_table(("name",), [(cell,)])

    assert cell in capsys.readouterr().out


def test_a_cell_cannot_give_orders_to_the_terminal(capsys):
    print_table(("name",), [("a\x1b[31mb\nc",)])

    assert "a�[31mb�c" in capsys.readouterr().out


def test_a_model_that_can_be_no_folder_is_wrong_usage():
    with pytest.raises(UsageWrong, match="can't be a folder") as caught:
        load_request("~no-such-user/x", Given())

    assert caught.value.exit_code == 2


def test_the_options_of_a_load_are_read_as_people_write_them():
    given = Given(context="65536", budget="1.5GiB", kv_bits="4", max_gap_ms="250", decode_share="0.25")

    assert load_request("demo", given) == LoadRequest(
        model="demo", context=65_536, budget_bytes=3 * 2**29, kv_bits=4, max_gap_ms=250.0, decode_share=0.25
    )
    assert load_request("demo", Given()) == LoadRequest(model="demo")


@pytest.mark.parametrize(
    ("text", "num_bytes"), [("12GiB", 12 * 2**30), ("800 mb", 800 * 2**20), ("1k", 1024), ("77", 77), ("2t", 2**41)]
)
def test_a_budget_is_a_size(text, num_bytes):
    assert load_request("demo", Given(budget=text)).budget_bytes == num_bytes


def test_every_setting_can_go_back_to_its_default():
    given = Given(context="default", budget="default", kv_bits="none", max_gap_ms="DEFAULT", decode_share="default")

    request = load_request("demo", given)

    assert {getattr(request, name) for name in request.__struct_fields__ if name != "model"} == {"default"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Given(budget="12XB"), "--budget 12XB is not a size"),
        (Given(budget="-1"), "--budget -1 is not a size"),
        (Given(context="1.5"), "--context 1.5 is not a number of tokens"),
        (Given(context="9" * 5000), "is not a number of tokens"),
        (Given(context="0"), "context must be a number of tokens, 1 or more"),
        (Given(budget="9999999999999999t"), "budget_bytes must be a number of bytes"),
        (Given(kv_bits="7"), "kv_bits must be 8 or 4"),
        (Given(max_gap_ms="49"), "max_gap_ms must be from 50 to 10000"),
        (Given(max_gap_ms="10001"), "max_gap_ms must be from 50 to 10000"),
        (Given(decode_share="0.91"), "decode_share must be from 0 to 0.9"),
        (Given(decode_share="nan"), "--decode-share nan is not a number"),
        (Given(kv_bits="\x1b[31m"), "--kv-bits �"),
    ],
)
def test_a_setting_that_cannot_be_is_wrong_usage_in_one_sentence(given, sentence):
    with pytest.raises(UsageWrong) as caught:
        load_request("demo", given)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_clearing_the_cache_gave_back_is_said():
    on, off = CacheStatus(is_on=True), CacheStatus(is_on=False, reason="the self-test failed")

    freed = sentence(CacheCleared(freed_bytes=3 * 2**29, blocks=1234, snapshots=5), on)
    nothing = sentence(CacheCleared(freed_bytes=0, blocks=0, snapshots=0), on)
    without = sentence(CacheCleared(freed_bytes=0, blocks=0, snapshots=0), off)

    assert freed == "The prefix cache gave back 1.5 GiB: 1,234 blocks and 5 snapshots."
    assert nothing == "The prefix cache held nothing that could be freed."
    assert without == "The prefix cache is off, so nothing was freed: the self-test failed."


@pytest.mark.parametrize(
    ("cache", "text", "hit_rate"),
    [
        (
            CacheStatus(is_on=True, lookup_tokens=1000, hit_rate=0.931, used_bytes=2**30, budget_bytes=2**32),
            "prefix cache hit rate 93.1%, 1.0 GiB of 4.0 GiB",
            0.931,
        ),
        (CacheStatus(is_on=True, budget_bytes=2**32), "prefix cache no prompt yet, 0 KiB of 4.0 GiB", None),
        (CacheStatus(is_on=False, reason="no way to copy it"), "prefix cache off: no way to copy it", None),
    ],
)
def test_the_status_tells_of_the_prefix_cache(cache, text, hit_rate):
    entry = {"model": "demo", "cache": _cache(cache), "failed_tests": []}

    assert _at_work(entry) == f"demo; {text}"
    assert entry["cache"]["hit_rate"] == hit_rate


def test_the_status_names_the_self_tests_that_did_not_pass():
    assert _at_work({"model": "demo", "failed_tests": ["restore"]}) == "demo; self-tests not passed: restore"


def test_an_argument_that_is_not_text_is_wrong_usage(place, listen):
    client = AdminClient(place.home, listen().with_(name="control"))

    with pytest.raises(UsageWrong, match="UTF-8"):
        client.new_key("\udcff", "interactive")


def test_nothing_runs_and_the_command_line_says_so(place):
    with pytest.raises(NotRunning):
        running_control(place)

    assert not is_running(status(place.home))


def test_a_control_that_hangs_is_not_said_to_be_gone(place, listen, monkeypatch):
    monkeypatch.setattr("control.identity.HEALTHZ_TIMEOUT_S", 0.2)
    listener = listen()
    place.home.write_record(listener.with_(name="control"))
    os.kill(listener.record.pid, signal.SIGSTOP)

    with pytest.raises(NotAnswering, match=f"pid {listener.record.pid}") as caught:
        running_control(place)

    assert caught.value.exit_code == 1


def test_a_control_that_dies_while_it_is_asked_is_gone(place, listen):
    listener = listen()
    client = AdminClient(place.home, listener.with_(name="control"))
    listener.child.kill()
    listener.child.wait()

    with pytest.raises(NotRunning):
        client.overview()


def test_a_control_without_a_record_is_shown_by_the_lock_that_it_holds(place):
    with place.home.only_one("control", wait=False):
        with pytest.raises(NotAnswering, match=f"pid {os.getpid()}"):
            running_control(place)
        report = status(place.home)

    assert (report["control"]["pid"], report["control"]["state"]) == (os.getpid(), "not answering")
    assert is_running(report)


def test_an_engine_that_is_loading_is_not_blamed_for_having_no_port_yet(place, listen, monkeypatch):
    place.home.write_record(listen().with_(port=1))
    view = EngineView(state="loading", model_name="demo")
    overview = SimpleNamespace(engine=view, slots=(), waiting=(), api_base="", quitting=False)
    monkeypatch.setattr("control.cli.status._overview", lambda home, control: overview)

    report = status(place.home)

    assert report["engine"]["state"] == "loading"
    assert "reason" not in report["engine"]


def test_every_failure_of_a_command_has_an_exit_code_of_the_documentation():
    kinds = [CommandFailed]
    for kind in kinds:
        kinds += kind.__subclasses__()

    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 5}
