"""The file that is double-clicked: it makes what is missing, starts Splash, opens the console, and lets go."""

import os
import re
import shutil
import stat
import subprocess

import pytest

from control.identity import live_process
from tests.story.launchd_stack import FAKES, LaunchdStack
from tests.story.stack import ROOT, SPLASH, fake_engine

pytestmark = pytest.mark.story


@pytest.fixture
def place(tmp_path):
    """A folder of Splash with a space in its name, and nothing in it but the file."""
    folder = tmp_path / "My Splash"
    (folder / "launchd").mkdir(parents=True)
    shutil.copy(ROOT / "launchd" / "Splash.command", folder / "launchd")
    return folder


def program(file, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def double_click(place, **environment) -> subprocess.CompletedProcess[str]:
    """As the Finder does: from the person's folder, by the whole path."""
    return subprocess.run(
        [place / "launchd" / "Splash.command"],
        env=os.environ | environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_without_an_environment_it_is_made_first(place, tmp_path):
    program(tmp_path / "bin" / "make", 'mkdir -p .venv/bin; cp "$(dirname "$0")/made" .venv/bin/splash; echo $* $PWD')
    program(tmp_path / "bin" / "made", 'echo "splash $*"')

    done = double_click(place, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"env {place}\nsplash up\n")
    assert "close it" in done.stdout


@pytest.mark.parametrize("made", [True, False])
def test_a_failure_keeps_its_sentence_in_sight_and_is_one(place, tmp_path, made):
    program(tmp_path / "bin" / "make", "echo Python is too old. >&2; exit 2")
    if made:
        program(place / ".venv" / "bin" / "splash", "echo Port 8888 is taken. >&2; exit 5")

    done = double_click(place, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    assert done.returncode == 1
    assert ("Port 8888 is taken." if made else "Python is too old.") in done.stderr
    assert "Splash did not start" in done.stdout and "close it" not in done.stdout


def test_splash_outlives_it_and_the_console_is_opened_with_a_link_that_is_good_once(place, tmp_path):
    stack = LaunchdStack(tmp_path / "home", engine_command=fake_engine(), state=tmp_path / "launchd")
    opened = tmp_path / "opened"
    hidden = f"--manager launchd --engine-command '{stack.engine_command}'"
    program(place / ".venv" / "bin" / "splash", f'exec "{SPLASH}" "$@" {hidden}')
    browser = {"DISPLAY": ":9", "BROWSER": str(FAKES / "open"), "FAKE_OPENED": str(opened)}

    try:
        done = double_click(place, **stack.environment, **browser)
        shown = opened.read_text().strip()
        page = stack.home.root / "run" / "open-console.html"
        [link] = set(re.findall(r"http://[^\"]+", page.read_text()))

        assert (done.returncode, done.stderr) == (0, "")
        assert shown == page.as_uri(), "what a program is started with, every user of the machine may read"
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert f":{stack.ports['console']}/login?token=" in link
        assert stack.record("control").manager == "launchd"
        assert all(live_process(stack.record(name)) for name in ("control", "webui", "engine"))
    finally:
        stack.clean_up()
