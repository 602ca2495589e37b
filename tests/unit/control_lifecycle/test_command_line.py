"""The command line's own pieces: tables, arguments, and which sentence a control that cannot be asked gets."""

import os
import signal
from importlib.metadata import version
from types import SimpleNamespace

import msgspec
import pytest

from control.cli.admin_client import AdminClient
from control.cli.app import app
from control.cli.cache import sentence
from control.cli.load_options import Given, load_request
from control.cli.load_progress import _what_happens
from control.cli.models import _row, print_models
from control.cli.places import Place, running_control
from control.cli.sizes import size_text
from control.cli.status import _cache, facts, is_running, status, table
from control.cli.tables import print_table
from control.cli.up import wait_until_loaded
from control.command_errors import CommandFailed, NotAnswering, NotRunning, StartFailed, UsageWrong
from control.config import Settings
from control.home import Home
from control.wire import CacheCleared, CacheStatus, EngineView, LoadRequest, ModelList, ModelOnDisk, UnusableModel
from engine.memory_text import size_text as engine_size_text

QUITTING = [
    ("quitting", "1 request runs to the end first; it goes on by itself"),
    ("requests", "2 requests wait"),
]


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
        (Given(context="0"), "--context must be a number of tokens, 1 or more"),
        (Given(budget="9999999999999999t"), "--budget must be a number of bytes"),
        (Given(kv_bits="7"), "--kv-bits must be 8 or 4"),
        (Given(max_gap_ms="49"), "--max-gap-ms must be from 50 to 10000"),
        (Given(max_gap_ms="10001"), "--max-gap-ms must be from 50 to 10000"),
        (Given(decode_share="0.91"), "--decode-share must be from 0 to 0.9"),
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
            "hit rate 93.1%, 1.0 GiB of 4.0 GiB",
            0.931,
        ),
        (CacheStatus(is_on=True, budget_bytes=2**32), "no prompt yet, 0 KiB of 4.0 GiB", None),
        (CacheStatus(is_on=False, reason="no way to copy it"), "off: no way to copy it", None),
    ],
)
def test_the_status_tells_of_the_prefix_cache(cache, text, hit_rate):
    report = {"control": {}, "engine": {"model": "demo", "cache": _cache(cache), "failed_tests": []}}

    assert facts(report) == [("model", "demo"), ("cache", text)]
    assert report["engine"]["cache"]["hit_rate"] == hit_rate


def test_the_status_names_the_self_tests_that_did_not_pass():
    report = {"control": {}, "engine": {"model": "demo", "cache": None, "failed_tests": ["restore", "rows"]}}

    assert facts(report) == [("model", "demo"), ("self-tests", "not passed: restore, rows")]


@pytest.mark.parametrize(
    ("control", "engine", "said"),
    [
        ({"quitting": True}, {"state": "draining", "running": 1, "waiting": 2}, QUITTING),
        (
            {},
            {"state": "draining", "running": 2},
            [("draining", "2 requests run to the end first; it goes on by itself")],
        ),
        ({"quitting": True}, {"state": "stopping", "running": 0}, [("quitting", "it goes on by itself")]),
        ({}, {"state": "ready", "running": 4, "waiting": 1}, [("requests", "1 request waits")]),
        (
            {},
            {"state": "unloaded", "waiting": 2},
            [("requests", "2 requests wait; `splash load MODEL` lets them go on")],
        ),
        ({}, {"state": "unloaded", "waiting": 0}, []),
    ],
)
def test_the_status_tells_of_requests_that_something_waits_for_and_of_those_that_wait(control, engine, said):
    assert facts({"control": control, "engine": engine}) == said


@pytest.mark.parametrize(
    ("console", "hint"),
    [
        ("running", "`splash up` brings control back; what else runs goes on"),
        ("stopped", "`splash up` starts it"),
    ],
)
def test_without_control_splash_does_not_run_and_how_to_start_it_is_said(console, hint):
    report = {"control": {"state": "stale"}, "webui": {"state": console}, "engine": {"state": "stopped"}}

    assert not is_running(report)
    assert facts(report) == [("hint", hint)]


@pytest.mark.parametrize(
    ("kv_bits", "text"),
    [
        (8, "context 65,536 tokens, kept in 8 bits; longest gap 250 ms, share of running streams 0.25"),
        (
            None,
            "context 65,536 tokens, kept as the model computes it; longest gap 250 ms, share of running streams 0.25",
        ),
    ],
)
def test_the_status_shows_the_settings_of_the_loaded_model(kv_bits, text):
    settings = {"context": 65_536, "kv_bits": kv_bits, "max_gap_ms": 250.0, "decode_share": 0.25}
    report = {"control": {}, "engine": {"model": "demo", "settings": settings, "cache": None}}

    assert facts(report)[1] == ("settings", text)


def test_at_eighty_columns_the_status_breaks_no_cell_and_shows_every_line_of_an_error(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    entry = {"state": "not answering", "pid": 4_194_304, "port": 65_535, "memory_bytes": 99 * 2**30}
    error = "The engine ended 5 times in a row and is not started again. Last: it did.\nTraceback:\nMemoryError"

    table({"control": entry, "engine": entry | {"error": error, "cache": None}})

    shown = capsys.readouterr().out
    assert shown.count("not answering") == 2 and shown.count("101,376 MiB") == 2
    assert max(map(len, shown.splitlines())) <= 80
    assert [line.strip() for line in shown.splitlines()[-2:]] == ["Traceback:", "MemoryError"]


MODEL = ModelOnDisk(
    name="mlx-community/Qwen3-Coder-480B-A35B-Instruct-4bit-DWQ",
    path="/Users/somebody/.cache/huggingface/hub/models--mlx-community--Qwen3-Coder/snapshots/0123456789abcdef",
    architecture="qwen3_moe",
    quantization="4-bit",
    weights_bytes=270 * 2**30,
    native_context_tokens=262_144,
    fits=True,
    is_demo=False,
)


@pytest.mark.parametrize("columns", [80, 300])
def test_the_name_of_a_model_is_whole_at_any_width(columns, monkeypatch, capsys, place):
    async def models(self):
        return ModelList((MODEL,), (UnusableModel("/home/models/mine", "mine has no config.json."),))

    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("control.engine_questions.EngineQuestions.models", models)

    print_models(place, as_json=False)

    shown = capsys.readouterr().out
    assert MODEL.name in shown and MODEL.path in shown
    assert ("┃" in shown) is (columns == 300)
    assert "mine can't be used: mine has no config.json." in shown


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(3 * 2**29, "1.5 GiB"), (8_700_000, "8 MiB"), (5000, "5 KiB"), (2**40, "1,024.0 GiB")]
)
def test_sizes_and_words_of_models_are_those_of_the_engines_program(num_bytes, text):
    assert size_text(num_bytes) == engine_size_text(num_bytes) == text
    assert _row(msgspec.structs.replace(MODEL, quantization=None))[2] == "not quantised"


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as caught:
        app(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out == f"splash {version('splash-server')}\n"


@pytest.mark.parametrize("state", ["ready", "unloaded"])
def test_a_model_on_its_way_while_another_runs_is_shown_as_being_downloaded(state):
    coming = EngineView(state=state, model_name=None, wanted_model="org/name")

    assert _what_happens(coming) == "downloading"
    assert _what_happens(EngineView(state="draining", model_name="demo", wanted_model="org/name")) == "draining"


class Overviews:
    """An admin client that gives one overview after the other."""

    def __init__(self, *engines: EngineView) -> None:
        self.engines = list(engines)

    def overview(self):
        return SimpleNamespace(engine=self.engines.pop(0))


DOWNLOADING = EngineView(state="ready", model_name="demo", wanted_model="org/name")


def test_a_load_is_followed_through_its_download_to_the_end(monkeypatch):
    monkeypatch.setattr("control.cli.up.POLL_S", 0)
    ready = EngineView(state="ready", model_name="org/name", wanted_model="org/name")

    overview = wait_until_loaded(Overviews(DOWNLOADING, ready), show=lambda engine: None)

    assert overview.engine == ready


@pytest.mark.parametrize(
    "after",
    [
        EngineView(state="ready", model_name="demo", wanted_model="demo", error="the disk is full"),
        EngineView(state="unloaded", error="the disk is full"),
        EngineView(state="failed", model_name="org/name", wanted_model="org/name", error="the disk is full"),
    ],
)
def test_a_download_that_fails_is_told_by_the_command_that_waits_for_it(after, monkeypatch):
    monkeypatch.setattr("control.cli.up.POLL_S", 0)

    with pytest.raises(StartFailed, match="the disk is full"):
        wait_until_loaded(Overviews(DOWNLOADING, after), show=lambda engine: None)


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
    overview = SimpleNamespace(engine=view, slots=(), waiting=(), api_base="", quitting=False, leaving=False)
    monkeypatch.setattr("control.cli.status._overview", lambda home, control: overview)

    report = status(place.home)

    assert report["engine"]["state"] == "loading"
    assert "reason" not in report["engine"]


def test_every_failure_of_a_command_has_an_exit_code_of_the_documentation():
    kinds = [CommandFailed]
    for kind in kinds:
        kinds += kind.__subclasses__()

    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 5}
