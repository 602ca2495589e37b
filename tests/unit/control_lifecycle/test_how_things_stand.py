"""What commands say of how things stand: control gone, nothing loaded, a cache without a budget, no terminal."""

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from control.cli import app as commands
from control.cli.cache import sentence
from control.cli.places import Place, running_control
from control.cli.status import _cache, facts
from control.cli.tables import print_facts, print_table
from control.command_errors import ControlGone, NotRunning
from control.config import Settings
from control.home import Home
from control.wire import Accepted, CacheCleared, CacheStatus, EngineView

LONG = "word " * 60


@pytest.fixture
def place(tmp_path):
    home = Home(tmp_path.resolve() / "home")
    home.create()
    home.made_admin_secret()
    return Place(Settings(home=home.root), home)


@pytest.mark.parametrize(
    ("names", "rest"),
    [(("webui", "engine"), "the console and the engine are"), (("webui",), "the console is")],
)
def test_without_control_it_is_said_who_runs_on(place, listen, names, rest):
    for name in names:
        place.home.write_record(listen("polite", f"nonce of {name}").with_(name=name))

    with pytest.raises(ControlGone) as caught:
        running_control(place)

    assert str(caught.value) == f"Control is not running ({rest}); `splash up` starts it."
    assert caught.value.exit_code == NotRunning.exit_code


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (EngineView(state="unloaded"), "No model is loaded.\n"),
        (EngineView(state="ready", model_name="demo", wanted_model="demo"), "The model is unloaded.\n"),
        (EngineView(state="unloaded", wanted_model="org/name", is_downloading=True), "The model is unloaded.\n"),
    ],
)
def test_unloading_says_whether_there_was_anything_to_unload(monkeypatch, before, said):
    overviews = iter((before, EngineView(state="unloaded")))
    client = SimpleNamespace(
        overview=lambda: SimpleNamespace(engine=next(overviews)),
        unload=lambda force: Accepted(message="", running=0, waiting=0),
    )
    monkeypatch.setattr(commands, "this_place", lambda: None)
    monkeypatch.setattr(commands, "running_control", lambda _place: client)

    done = CliRunner().invoke(commands.app, ["unload", "--force"])

    assert (done.exit_code, done.stdout) == (0, said)


def test_the_status_names_the_last_model_and_how_it_comes_back():
    engine = {"state": "unloaded", "model": None, "last_model": "/models/my own", "waiting": 1}

    assert facts({"control": {}, "engine": engine}) == [
        ("requests", "1 request waits; `splash load '/models/my own'` lets it go on"),
        ("model", "none; the last was /models/my own, `splash load '/models/my own'` brings it back"),
    ]


@pytest.mark.parametrize(
    ("cache", "text"),
    [
        (CacheStatus(is_on=True), None),
        (CacheStatus(is_on=True, lookup_tokens=1000, hit_rate=0.931), "hit rate 93.1%"),
    ],
)
def test_of_a_cache_whose_budget_is_not_known_no_size_is_told(cache, text):
    assert _cache(cache)["text"] == text


def test_one_block_is_one_block():
    freed = sentence(CacheCleared(freed_bytes=2**20, blocks=1, snapshots=1), CacheStatus(is_on=True))

    assert freed == "The prefix cache gave back 1 MiB: 1 block and 1 snapshot."


def test_what_goes_into_a_pipe_is_not_broken_into_lines(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)

    print_table(("name", "text"), [("a", LONG)])
    print_facts([("first", LONG), ("second", "short")])

    shown = capsys.readouterr().out.splitlines()
    assert sum(LONG.strip() in line for line in shown) == 2
    assert shown[-1] == "second  short", "nor is it filled up with spaces"
