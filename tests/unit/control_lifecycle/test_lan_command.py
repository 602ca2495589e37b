"""`splash lan` and `splash password` where nothing runs: what is kept, what is refused, and what is said."""

import json
import socket
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from control.cli.app import app
from control.cli.replacing import settings_now
from control.command_errors import PortTaken, SettingsInvalid, UsageWrong
from control.console_password import ConsolePassword
from control.home import Home
from control.identity import live_process
from control.lan import local_ipv4
from control.misplaced import misplaced
from control.ports import bind
from tests.story.stack import free_ports

PASSWORD = "correct horse battery"


@pytest.fixture
def home(tmp_path, monkeypatch):
    home = Home(tmp_path.resolve() / "home")
    ports = free_ports(4)
    for key, port in zip(("API", "ADMIN", "CONSOLE", "ENGINE"), ports, strict=True):
        monkeypatch.setenv(f"SPLASH_{key}_PORT", str(port))
    monkeypatch.setenv("SPLASH_HOME", str(home.root))
    monkeypatch.delenv("SPLASH_LAN", raising=False)
    return home


def splash(*words: str, typed: str | None = None):
    return CliRunner().invoke(app, words, input=typed)


def report(*words: str) -> dict:
    return json.loads(splash("lan", *words, "--json").stdout)


def test_it_is_off_until_it_is_chosen_and_the_choice_is_kept_in_the_file(home):
    before = report("status")
    on = report("on")
    written = (home.root / "splash.toml").read_text()
    off = report("off")

    assert (before["lan"], on["lan"], off["lan"]) == (False, True, False)
    assert written == "SPLASH_LAN = true\n"
    assert on["console"] == [] and all(each.endswith("/v1") for each in on["api"])
    assert (on["running"], on["has_key"], on["restart"]) == (False, None, [])


@pytest.mark.parametrize(("order", "word"), [("on", "off"), ("off", "1")])
def test_what_the_environment_says_otherwise_is_an_error_and_no_pretence(home, monkeypatch, order, word):
    monkeypatch.setenv("SPLASH_LAN", word)

    done = splash("lan", order)

    assert isinstance(done.exception, SettingsInvalid)
    assert f"SPLASH_LAN={word} goes before splash.toml" in str(done.exception)
    assert not (home.root / "splash.toml").exists()


def test_an_environment_that_says_the_same_is_no_hindrance(home, monkeypatch):
    monkeypatch.setenv("SPLASH_LAN", "true")

    assert report("on")["lan"]


def test_a_port_that_somebody_has_at_another_address_is_named_and_nothing_is_changed(home, monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("SPLASH_CONSOLE_PORT", str(other.getsockname()[1]))

        done = splash("lan", "on")

    assert isinstance(done.exception, PortTaken)
    assert "SPLASH_CONSOLE_PORT" in str(done.exception)
    assert not (home.root / "splash.toml").exists()


def test_what_is_still_missing_is_said(home):
    without = splash("lan", "on").stdout
    splash("password", typed=f"{PASSWORD}\n")
    with_it = splash("lan").stdout

    assert "`splash password`" in without and "Nothing is encrypted" in without
    assert "Each request needs a key" in without
    assert "`splash password`" not in with_it
    assert all(f"http://{address}:" in with_it for address in local_ipv4())


def test_a_password_is_one_line_of_the_input_and_is_kept_as_a_hash(home):
    done = splash("password", typed=f"{PASSWORD} \r\nanother line\n")

    assert done.exit_code == 0
    assert ConsolePassword(home).read().fits(f"{PASSWORD} ")
    assert PASSWORD not in done.output


@pytest.mark.parametrize(
    ("typed", "said"),
    [("short\n", "at least 10"), ("", "at least 10"), ("x" * 5_000 + "\n", "at most 1024"), (b"\xff" * 12, "UTF-8")],
)
def test_a_password_that_can_be_none_leaves_the_old_one(home, typed, said):
    splash("password", typed=f"{PASSWORD}\n")

    done = splash("password", typed=typed)

    assert isinstance(done.exception, UsageWrong)
    assert said in str(done.exception)
    assert ConsolePassword(home).read().fits(PASSWORD)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ([PASSWORD, PASSWORD], None),
        ([PASSWORD, "something else"], "The two passwords differ"),
        (["short"], "at least 10"),
        ([PASSWORD, EOFError()], "No password was set"),
    ],
)
def test_at_a_terminal_it_is_asked_for_twice(home, monkeypatch, typed, said):
    answers = iter(typed)

    def ask(_prompt):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("control.cli.password.getpass.getpass", ask)
    monkeypatch.setattr("control.cli.password.is_at_a_terminal", lambda: True)

    done = splash("password")

    assert (said is None) == (done.exit_code == 0)
    assert said is None or said in str(done.exception)
    assert ConsolePassword(home).is_set == (said is None)


def test_setting_and_removing_end_the_sessions_and_removing_nothing_ends_none(home):
    home.create()
    session_key = home.root / "secrets" / "console"

    def after(*words: str, typed: str | None = None) -> tuple[bool, bool]:
        session_key.write_text("a key")
        assert splash("password", *words, typed=typed).exit_code == 0
        return ConsolePassword(home).is_set, session_key.exists()

    kept = [after("--remove"), after(typed=f"{PASSWORD}\n"), after("--remove")]

    assert kept == [(False, True), (True, False), (False, False)]


def test_while_control_is_down_a_new_password_ends_the_console_and_another_is_started(home, listen, monkeypatch):
    home.create()
    before, after = (listen("polite", nonce, "--home", str(home.root)) for nonce in ("before", "after"))
    home.write_record(before.with_(name="webui", manager="detached"))
    started = []

    def start(_manager, settings, _home, admin_port):
        started.append((settings.is_lan_on, admin_port == settings.admin_port))
        home.write_record(after.with_(name="webui", manager="detached"))
        return SimpleNamespace(log_from_byte=0, ended=lambda: None, wrote=lambda found: found.nonce == "after")

    monkeypatch.setattr("control.cli.replacing.start_console", start)

    done = splash("password", typed=f"{PASSWORD}\n")

    assert done.exit_code == 0, done.exception
    assert started == [(False, True)]
    assert live_process(before.record) is None
    assert f"webui is pid {after.record.pid}." in done.stderr


def test_removing_the_password_says_how_the_console_is_opened_now(home):
    splash("password", typed=f"{PASSWORD}\n")

    removed = splash("password", "--remove").stdout

    assert removed == (
        "The console's password is removed; every session has ended.\n"
        "Only login links open the console now; `splash open` gives one.\n"
    )


def test_a_process_of_ours_at_another_address_is_seen_without_control(home, listen, monkeypatch):
    """LAN mode with a password wants the console at every address; this one is at the loopback one."""
    home.create()
    console, stranger = listen("polite", "n", "--home", str(home.root)), listen("foreign")
    splash("password", typed=f"{PASSWORD}\n")
    monkeypatch.setenv("SPLASH_LAN", "on")
    home.write_record(console.with_(name="webui", manager="detached"))
    home.write_record(stranger.with_(name="control", manager="detached"))

    [found] = misplaced(home, settings_now(home))

    assert (found.name, found.listens_at, found.wanted, found.is_open) == ("webui", "127.0.0.1", "0.0.0.0", False)
    assert "Still listening as before: webui; `splash up`" in splash("lan").stdout


def test_a_socket_for_every_address_takes_both_families():
    [port] = free_ports(1)
    with bind("::", port, key="SPLASH_API_PORT"):
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=5).close()
