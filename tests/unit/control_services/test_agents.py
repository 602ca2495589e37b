"""What launchd is told: every key, any path, and nothing that is secret."""

import plistlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.command_errors import StartFailed
from control.services.agents import Agent, job_environment, label_of, program, property_list

DEFAULT = Path("/Users/ann/Library/Application Support/Splash")
# All that XML can hold: no control characters but tab and line feed, no halves of characters.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff\x85  "))


def agent(root: str = "/Users/ann/Tom & Jerry's <家>", **changes) -> Agent:
    facts = {
        "label": "io.github.splash.control",
        "command": ("/Users/ann/.venv/bin/python", "-m", "control"),
        "environment": {"PATH": "/bin"},
        "root": Path(root),
        "log": Path(root) / "logs" / "control.log",
    }
    return Agent(**(facts | changes))


@pytest.mark.parametrize(
    ("name", "limit_s", "at_load"), [("control", 45, False), ("webui", 15, False), ("login", 15, True)]
)
def test_an_agent_never_comes_back_by_itself_is_not_throttled_and_has_time_to_end(name, limit_s, at_load):
    content = plistlib.loads(property_list(name, agent()))

    assert content == {
        "Label": "io.github.splash.control",
        "ProgramArguments": ["/Users/ann/.venv/bin/python", "-m", "control"],
        "EnvironmentVariables": {"PATH": "/bin"},
        "WorkingDirectory": "/Users/ann/Tom & Jerry's <家>",
        "StandardOutPath": "/Users/ann/Tom & Jerry's <家>/logs/control.log",
        "StandardErrorPath": "/Users/ann/Tom & Jerry's <家>/logs/control.log",
        "RunAtLoad": at_load,
        "KeepAlive": False,
        "LimitLoadToSessionType": "Aqua",
        "ProcessType": "Interactive",
        "ExitTimeOut": limit_s,
        "AbandonProcessGroup": False,
        "Umask": 0o077,
    }


@given(folder=TEXT, word=TEXT, value=TEXT)
def test_any_path_word_and_value_comes_back_as_it_was(folder, word, value):
    root = f"/{folder}"
    asked = agent(root=root, command=("/bin/x", word), environment={"KEY": value})

    content = plistlib.loads(property_list("control", asked))

    assert content["WorkingDirectory"] == str(Path(root))
    assert content["ProgramArguments"] == ["/bin/x", word]
    assert content["EnvironmentVariables"] == {"KEY": value}


@pytest.mark.parametrize("impossible", ["\x07", "\udcff"])
def test_a_character_that_no_property_list_can_hold_is_said_with_the_way_around(impossible):
    with pytest.raises(StartFailed, match="`splash up --manager detached`"):
        property_list("control", agent(environment={"KEY": impossible}))


def test_the_default_home_has_the_plain_label_and_every_other_one_its_own():
    first, second = (label_of("webui", Path(root), default_root=DEFAULT) for root in ("/a", "/b"))

    assert label_of("webui", DEFAULT, default_root=DEFAULT) == "io.github.splash.webui"
    assert first.startswith("io.github.splash.webui.") and len(first) == len("io.github.splash.webui.") + 8
    assert first != second
    assert label_of("control", Path("/a"), default_root=DEFAULT).removeprefix("io.github.splash.control") == (
        first.removeprefix("io.github.splash.webui")
    )


def test_a_job_gets_the_settings_the_proxy_and_the_mirror_and_nothing_else_of_the_shell():
    shell = {
        "SPLASH_API_PORT": "9000",
        "SPLASH_HOME": "./relative",
        "HF_ENDPOINT": "https://mirror",
        "https_proxy": "http://proxy",
        "PATH": "/opt/strange",
        "PYTHONPATH": "/somewhere",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "HF_TOKEN": "secret",
    }

    given_ = job_environment(shell, DEFAULT, python="/Users/ann/splash/.venv/bin/python3.13")

    assert given_ == {
        "SPLASH_API_PORT": "9000",
        "SPLASH_HOME": str(DEFAULT),
        "HF_ENDPOINT": "https://mirror",
        "https_proxy": "http://proxy",
        "PATH": "/Users/ann/splash/.venv/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONUNBUFFERED": "1",
    }


def test_a_program_is_whole_and_stays_in_its_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to("/usr/bin/env")

    assert program(("python", "-m", "control")) == (str(tmp_path / "python"), "-m", "control")
