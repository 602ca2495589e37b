"""Start at login: off until it is chosen, on for this place and these settings, and off again without a trace."""

import plistlib

import pytest
from typer.testing import CliRunner

from control.cli.app import app
from control.services.login import LoginAgent
from tests.story.launchd_stack import FAKES
from tests.unit.control_services.scripted import LOADED, ScriptedLaunchctl


@pytest.fixture
def agent(home, clock, tmp_path):
    return LoginAgent(
        home, ScriptedLaunchctl(clock), tmp_path / "Library" / "LaunchAgents", tmp_path / "bin" / "splash"
    )


def test_it_is_off_until_it_is_chosen_and_starts_nothing_then(agent):
    before = agent.state({})
    agent.turn_on({})

    content = plistlib.loads(agent.file.read_bytes())
    assert (before, agent.state({})) == ("off", "on")
    assert agent.launchctl.verbs == []
    assert content["ProgramArguments"] == [str(agent.splash), "up", "--no-open"]
    assert (content["RunAtLoad"], content["KeepAlive"]) == (True, False)


def test_no_link_and_no_key_gets_into_a_log(agent):
    agent.turn_on({})

    content = plistlib.loads(agent.file.read_bytes())
    assert content["StandardOutPath"] == "/dev/null"
    assert content["StandardErrorPath"] == str(agent.home.login_log)


def test_off_leaves_no_file_and_no_job_and_is_harmless_twice(agent):
    agent.turn_on({})
    agent.launchctl.loaded = LOADED

    agent.turn_off()
    agent.turn_off()

    assert (agent.state({}), agent.launchctl.loaded, agent.launchctl.verbs) == ("off", None, ["bootout"])


def test_another_port_since_then_is_stale_until_it_is_turned_on_again(agent):
    agent.turn_on({})

    changed = agent.state({"SPLASH_API_PORT": "9999"})
    agent.turn_on({"SPLASH_API_PORT": "9999"})

    assert (changed, agent.state({"SPLASH_API_PORT": "9999"})) == ("stale", "on")


DAMAGES = [
    lambda whole: whole[:200],
    lambda whole: b"",
    lambda whole: b"not a property list",
    *(
        lambda whole, body=body: b'<plist version="1.0">' + body + b"</plist>"
        for body in (b"<array/>", b"<date>x</date>", b"<data>!!</data>", b"<integer>x</integer>", b"<string>a</string>")
    ),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_was_cut_or_overwritten_is_broken_and_turning_it_on_writes_it_anew(agent, damage):
    agent.turn_on({})
    agent.file.write_bytes(damage(agent.file.read_bytes()))

    broken = agent.state({})
    agent.turn_on({})

    assert (broken, agent.state({})) == ("broken", "on")


def test_the_command_turns_it_on_and_off_for_this_home_and_says_so(home, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(FAKES), prepend=":")
    monkeypatch.setenv("FAKE_LAUNCHD", str(tmp_path / "launchd"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPLASH_HOME", str(home.root))
    folder = tmp_path / "Library" / "LaunchAgents"

    said, files = [], []
    for order in ("status", "on", "status", "off"):
        said.append(CliRunner().invoke(app, ["login", order]).stdout.split(";")[0])
        files.append(len(list(folder.glob("io.github.splash.login.*.plist"))))

    off, on = "Splash does not start at login", "Splash starts at login"
    assert said == [off, on, on, off]
    assert files == [0, 1, 1, 0]
