"""Who keeps the processes: the Mac's desktop session when there is one, nobody elsewhere, or whom a person names."""

import pytest

from control.command_errors import UsageWrong
from control.services import choice
from control.services.choice import manager_for, manager_of
from control.services.login import login_agent
from control.services.removal import has_service, remove_services
from engine.wire import ProcessRecord
from tests.story.launchd_stack import FAKES


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Give this process a platform, and a launchd with a session or none."""

    def become(platform: str, session: str | None) -> None:
        monkeypatch.setattr(choice.sys, "platform", platform)
        if session is None:
            monkeypatch.setattr("control.services.launchctl.shutil.which", lambda *_, **__: None)
        else:
            monkeypatch.setenv("PATH", str(FAKES), prepend=":")
            monkeypatch.setenv("FAKE_LAUNCHD", str(tmp_path / "launchd"))
            monkeypatch.setenv("FAKE_LAUNCHD_SESSION", session)

    return become


@pytest.mark.parametrize(
    ("platform", "session", "wanted", "name"),
    [
        ("darwin", "Aqua", None, "launchd"),
        ("darwin", "Background", None, "detached"),
        ("darwin", None, None, "detached"),
        ("linux", "Aqua", None, "detached"),
        ("darwin", "Aqua", "detached", "detached"),
        ("darwin", "Background", "launchd", "launchd"),
    ],
)
def test_the_machine_decides_unless_a_person_does(machine, home, platform, session, wanted, name):
    machine(platform, session)

    assert manager_for(home, wanted).name == name


def test_launchd_where_there_is_none_is_refused(machine, home):
    machine("linux", None)

    with pytest.raises(UsageWrong, match="no launchd on this machine"):
        manager_for(home, "launchd")
    with pytest.raises(UsageWrong, match="for a Mac"):
        login_agent(home)


@pytest.mark.parametrize(
    ("recorded", "name"), [("launchd", "launchd"), ("detached", "detached"), ("foreground", "detached")]
)
def test_who_started_a_process_is_in_its_record(machine, home, recorded, name):
    machine("linux", "Aqua")
    facts = {"pid": 1, "created_at_s": 0.0, "nonce": "n", "port": 1, "started_at_s": 0.0, "version": "0"}

    assert manager_of(home, ProcessRecord(name="control", manager=recorded, **facts)).name == name


def test_without_launchd_there_is_nothing_to_remove(machine, home):
    machine("linux", None)

    remove_services(home)

    assert not has_service(home, "control")
