"""What `splash doctor` prints, from facts: readable at 80 columns, and the same as JSON."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from control.cli.doctor import report, show
from control.doctor.facts import EngineMemory, Package, PathFacts
from control.wire import MemoryUser
from tests.unit.control_doctor.scenes import GIB, HOME, nobody, well


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def sick():
    secret = PathFacts(HOME / "secrets" / "admin", 0o644, 0, is_folder=False, is_secret=True)
    facts = well(records={"control": nobody("control")}, home=replace(well().home, paths=(secret,)))
    users = (MemoryUser("Browser", 40, 20 * GIB, False), MemoryUser("Splash", 3, 9 * GIB, True))
    return replace(facts, machine=replace(facts.machine, users=users, swap_used_bytes=8 * GIB))


def test_the_text_says_what_why_and_how_to_mend_within_80_columns(capsys):
    show(sick())

    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "The console runs, and control does not." in said
    assert f"Mend: `chmod 600 {HOME}/secrets/admin`" in said
    assert "3 things are wrong, and 1 warning. Nothing was changed." in said
    assert "Browser 20.0 GiB (40×)" in said


def test_a_well_splash_gets_one_sentence_and_the_figures(capsys):
    show(well())

    said = capsys.readouterr().out
    assert "Nothing is wrong." in said
    assert "unknown while no engine runs" in said


def test_the_figures_of_a_mac_are_shown(capsys):
    machine = replace(well().machine, wired_limit_mib=0, engine=EngineMemory(100 * GIB, "metal", 110 * GIB))
    packages = (Package("mlx", "1", "1", is_required=True), Package("uvicorn", "1", "1", is_required=False))

    show(well(machine=machine, versions=replace(well().versions, packages=packages)))

    said = capsys.readouterr().out
    assert "macOS chooses (iogpu.wired_limit_mb 0)" in said and "100.0 GiB; Metal recommends 110.0 GiB at most" in said
    assert "mlx 1" in said and "uvicorn" not in said


def test_a_path_gives_no_orders_to_the_terminal(capsys):
    path = Path("/a\x1b[31mb")

    show(well(home=replace(well().home, unreadable=(path,))))

    assert "\x1b[31m" not in capsys.readouterr().out


def test_the_json_has_the_verdict_the_findings_and_the_figures():
    found = msgspec.json.decode(msgspec.json.encode(report(sick())))

    assert found["ok"] is False
    assert {"console_without_control", "engine_without_control", "open_permissions", "swap"} == {
        finding["check"] for finding in found["findings"]
    }
    assert all(set(each) == {"check", "level", "what", "why", "mend"} for each in found["findings"])
    assert found["machine"]["users"][0]["name"] == "Browser"
    assert report(well())["ok"] is True
