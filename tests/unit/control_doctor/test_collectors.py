"""What the collectors see of real files, sockets and programs. macOS's own programs are stood for by little scripts."""

import os
import plistlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from control.doctor import mac
from control.doctor.collected_home import free_bytes, home_facts, models_folder
from control.doctor.collected_machine import listeners, login_facts, port_facts
from control.doctor.collected_versions import required_here, version_facts
from control.doctor.examination import examine
from control.doctor.facts import Facts, VersionFacts
from control.home import Home
from engine.wire import Launch
from tests.unit.control_doctor.scenes import record


@pytest.fixture
def home(tmp_path):
    before = os.umask(0o022)
    home = Home(tmp_path.resolve() / "home")
    home.create()
    home.made_admin_secret()
    yield home
    os.umask(before)


def found_in(home, engine=None):
    findings = examine(Facts(home_facts(home, engine, {}), versions=VersionFacts(splash="0")))
    return [(finding.check, finding.level) for finding in findings]


def test_a_home_as_splash_makes_it_has_no_faults(home):
    (home.root / "splash.toml").write_text("")
    (home.root / "splash.toml").chmod(0o644)
    (home.root / "models" / "big").mkdir(mode=0o755)

    assert found_in(home) == []


def test_looking_at_a_home_that_is_not_there_makes_none(tmp_path):
    home = Home(tmp_path / "none")

    facts = home_facts(home, None, {})

    assert not facts.is_there and facts.is_writable and not home.root.exists()
    assert facts.free_bytes > 0


def test_a_secret_that_was_made_readable_for_others_is_found(home):
    home.admin_secret_file.chmod(0o644)

    assert found_in(home) == [("open_permissions", "wrong")]


@pytest.mark.parametrize("content", ["", "short", "\N{SNOWMAN}" * 40])
def test_an_admin_secret_that_is_damaged_is_found(home, content):
    home.admin_secret_file.write_text(content, encoding="utf-8")

    assert found_in(home) == [("damaged_secret", "wrong")]


def test_a_cut_session_key_and_a_launch_that_nobody_understands_are_found(home):
    for name in ("console", "engine.json"):
        (home.root / "secrets" / name).write_text("{")
        (home.root / "secrets" / name).chmod(0o600)

    assert home_facts(home, None, {}).damaged == (home.root / "secrets" / "console", home.launch_file)


def test_an_engine_whose_launch_is_another_ones_has_lost_its_secret(home):
    engine = record("engine", nonce="of this engine")
    home.write_launch(Launch(secret="s", nonce="of another", port=1, model="demo"))

    assert ("lost_secret", "wrong") in found_in(home, engine)
    home.write_launch(Launch(secret="s", nonce="of this engine", port=1, model="demo"))
    assert found_in(home, engine) == []


def test_a_home_that_this_user_may_not_write_is_found(home):
    if os.getuid() != 0:
        home.root.chmod(0o500)
        assert not home_facts(home, None, {}).is_writable
        home.root.chmod(0o700)
        return
    # The superuser may write everywhere, so another user looks, from inside: the folders above would keep him out.
    home.root.chmod(0o755)
    looking = (
        "import os; from pathlib import Path; from control.doctor.collected_home import _is_writable;"
        "print(_is_writable(Path('.')), os.setuid(65534), _is_writable(Path('.')))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", looking], capture_output=True, text=True, check=True, cwd=home.root
    ).stdout

    assert answer.split() == ["True", "None", "False"]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HF_HUB_CACHE": "/big/hub"}, "/big/hub"),
        ({"HF_HOME": "/big"}, "/big/hub"),
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/huggingface/hub"),
        ({}, str(Path.home() / ".cache" / "huggingface" / "hub")),
    ],
)
def test_the_folder_of_the_hubs_models_is_the_one_that_the_hub_uses(environment, folder):
    asked = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE", "XDG_"))}

    told = subprocess.run(
        [sys.executable, "-c", asked], env=plain | environment, capture_output=True, text=True, check=True
    ).stdout.strip()

    assert str(models_folder(environment)) == folder == told


def test_the_room_of_a_folder_that_is_not_there_is_that_of_the_disk_above(tmp_path):
    assert free_bytes(tmp_path / "a" / "b") > 0


def test_who_listens_is_found_with_pid_command_and_home(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        found = listeners()
        [mine] = port_facts({"SPLASH_API_PORT": ("127.0.0.1", port)}, found, {os.getpid(): tmp_path})
        [elsewhere] = port_facts({"SPLASH_API_PORT": ("::1", port)}, found, {})

    assert [(holder.pid, holder.home) for holder in mine.holders] == [(os.getpid(), tmp_path)]
    assert sys.executable.rsplit("/", 1)[-1].split(".")[0][:6] in mine.holders[0].command
    assert elsewhere.holders == ()


def test_a_listener_that_nobody_is_shown_for_is_there_all_the_same():
    with socket.create_server(("127.0.0.1", 0)) as server:
        [port] = port_facts({"SPLASH_API_PORT": ("127.0.0.1", server.getsockname()[1])}, (), {})

    assert [holder.pid for holder in port.holders] == [None]


def test_what_starts_at_login_is_read_from_its_property_list(tmp_path):
    file = tmp_path / "io.github.splash.login.plist"

    assert login_facts(tmp_path, "io.github.splash.login") == ()
    for program, is_there in ((sys.executable, True), ("/no/such/splash", False)):
        file.write_bytes(plistlib.dumps({"ProgramArguments": [program, "up"]}))
        [login] = login_facts(tmp_path, "io.github.splash.login")
        assert (str(login.program), login.program_is_there) == (program, is_there)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"<plist", plistlib.dumps({"a": 1}), plistlib.dumps([])])
def test_a_property_list_that_nobody_understands_starts_nothing(tmp_path, content):
    (tmp_path / "x.plist").write_bytes(content)

    assert [login.program for login in login_facts(tmp_path, "x")] == [None]


def script(folder, body):
    file = folder / "program"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o700)
    return str(file)


@pytest.mark.parametrize(
    ("body", "limit"), [("echo 0", 0), ("echo 114688", 114688), ("exit 1", None), ("echo x", None)]
)
def test_the_wired_limit_is_what_sysctl_says(tmp_path, body, limit):
    assert mac.wired_limit_mib(platform="darwin", program=script(tmp_path, body)) == limit
    assert mac.wired_limit_mib(platform="linux", program=script(tmp_path, body)) is None


def test_rosetta_is_what_sysctl_says_of_this_very_process(tmp_path):
    asked = 'test "$*" = "-n sysctl.proc_translated" || exit 1;'

    assert mac.is_translated(platform="darwin", program=script(tmp_path, f"{asked} echo 1")) is True
    assert mac.is_translated(platform="darwin", program=script(tmp_path, f"{asked} echo 0")) is False
    assert mac.is_translated(platform="darwin", program=script(tmp_path, "exit 1")) is None
    assert mac.is_translated(platform="linux", program=script(tmp_path, "echo 1")) is None


def test_a_program_that_hangs_or_is_not_there_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(mac, "TIMEOUT_S", 0.2)

    assert mac.wired_limit_mib(platform="darwin", program=script(tmp_path, "exec sleep 60")) is None
    assert mac.wired_limit_mib(platform="darwin", program="/no/such/program") is None


def test_what_is_in_quarantine_is_what_xattr_finds_it_on(tmp_path):
    asking = script(
        tmp_path, 'test "$1 $2" = "-p com.apple.quarantine" || exit 1; case "$3" in *bad) echo 0083;; *) exit 1;; esac'
    )

    assert mac.quarantined([Path("/bad"), Path("/good")], platform="darwin", program=asking) == (Path("/bad"),)
    assert mac.quarantined([Path("/bad")], platform="linux", program=asking) == ()


@pytest.mark.parametrize(
    ("line", "platform", "expected"),
    [
        ("mlx==0.32.4; sys_platform == 'darwin'", "darwin", ("mlx", "==0.32.4")),
        ("mlx==0.32.4; sys_platform == 'darwin'", "linux", None),
        ('mlx[cpu]==0.32.4; sys_platform == "linux"', "linux", ("mlx", "==0.32.4")),
        ("starlette<2,>=1.10", "linux", ("starlette", "<2,>=1.10")),
        ("pytest>=9; extra == 'dev'", "linux", None),
        ("Huggingface_Hub>=1", "linux", ("huggingface-hub", ">=1")),
    ],
)
def test_a_line_of_metadata_is_understood(line, platform, expected):
    assert required_here(line, platform=platform) == expected


def test_the_versions_here_are_those_that_are_wanted_and_mlx_comes_with_its_half():
    facts = version_facts()
    required = {package.name: package for package in facts.packages if package.is_required}

    assert facts.splash
    assert {"mlx", "mlx-lm"} <= set(required) and len(required) == 3
    assert all(package.installed == package.wanted for package in required.values())


def test_a_version_beside_the_tested_one_is_seen(tmp_path):
    (tmp_path / "constraints.txt").write_text("uvicorn==0.0.1\nmlx==9.9\n")

    packages = {package.name: package for package in version_facts(constraints=tmp_path / "constraints.txt").packages}

    assert (packages["uvicorn"].wanted, packages["uvicorn"].is_required) == ("0.0.1", False)
    assert packages["mlx"].wanted != "9.9"
