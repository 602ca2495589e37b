"""What doctor says of ports, files, memory, macOS and versions, from facts alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from control.doctor.examination import examine
from control.doctor.facts import Holder, LoginFacts, Package, PathFacts, PortFacts
from control.doctor.port_checks import collides
from control.misplaced import Misplaced
from control.wire import MemoryUser
from tests.unit.control_doctor.scenes import GIB, HOME, checks, well


def home(**changes):
    return well(home=replace(well().home, **changes))


def machine(**changes):
    return well(machine=replace(well().machine, **changes))


def only(facts):
    [finding] = examine(facts)
    return finding


def test_a_port_that_this_home_holds_itself_is_not_taken():
    assert checks(well(ports=(PortFacts("SPLASH_API_PORT", 8888, (Holder(100, "python", HOME),)),))) == []
    assert checks(well(ports=(PortFacts("SPLASH_API_PORT", 8888),))) == []


@pytest.mark.parametrize(
    ("holder", "named"),
    [
        (Holder(5, "jupyter lab"), "pid 5 (jupyter lab)"),
        (Holder(5, "python -m control", Path("/homes/other")), "pid 5, of another Splash: /homes/other"),
        (Holder(None), "a process that this user may not see"),
    ],
)
def test_a_taken_port_is_named_with_its_holder_and_its_setting(holder, named):
    finding = only(well(ports=(PortFacts("SPLASH_API_PORT", 8888, (holder,)),)))

    assert (finding.check, finding.level) == ("taken_port", "wrong")
    assert named in finding.what and "SPLASH_API_PORT" in finding.mend


def test_in_lan_mode_a_port_is_taken_at_any_address_unless_ours_is_there():
    ours_before, ours = (Holder(100, "python", HOME, address) for address in ("127.0.0.1", "0.0.0.0"))
    other = Holder(5, "jupyter lab", None, "192.168.1.2")

    in_the_way = checks(well(ports=(PortFacts("SPLASH_API_PORT", 8888, (ours_before, other), "0.0.0.0"),)))
    not_in_the_way = checks(well(ports=(PortFacts("SPLASH_API_PORT", 8888, (ours, other), "0.0.0.0"),)))

    assert (in_the_way, not_in_the_way) == ([("taken_port", "wrong")], [])


@pytest.mark.parametrize(
    ("about", "reached"),
    [
        (Misplaced("webui", 5, 18_082, "0.0.0.0", "127.0.0.1"), "Other machines reach it, and should not."),
        (Misplaced("control", 5, 8888, "127.0.0.1", "0.0.0.0"), "Other machines do not reach it, and should."),
    ],
)
def test_a_process_of_ours_at_an_address_that_the_settings_do_not_say_is_wrong(about, reached):
    finding = only(well(misplaced=(about,)))

    assert (finding.check, finding.level, finding.why) == ("open_address", "wrong", reached)
    assert f"listens at {about.listens_at} on port {about.port}" in finding.what


@pytest.mark.parametrize(
    ("address", "host", "is_in_the_way"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("::1", "127.0.0.1", False),
        ("192.168.1.4", "127.0.0.1", False),
    ],
)
def test_a_listener_at_another_address_is_not_in_the_way(address, host, is_in_the_way):
    assert collides(address, host) == is_in_the_way


def test_a_secret_that_others_may_read_is_wrong_and_an_open_log_behind_a_closed_door_a_warning():
    secret = PathFacts(HOME / "secrets" / "admin", 0o644, 0, is_folder=False, is_secret=True)
    log = PathFacts(HOME / "logs" / "control.log", 0o640, 0, is_folder=False)

    findings = examine(home(paths=(log, secret)))

    assert [(finding.check, finding.level) for finding in findings] == [
        ("open_permissions", "wrong"),
        ("open_permissions", "warning"),
    ]
    assert findings[0].mend == f"`chmod 600 {HOME}/secrets/admin`"


def test_a_home_that_others_may_enter_is_wrong():
    finding = only(home(paths=(PathFacts(HOME, 0o755, 0, is_folder=True),)))

    assert (finding.level, finding.mend) == ("wrong", f"`chmod 700 {HOME}`")


def test_a_command_that_mends_can_be_pasted_whatever_the_path():
    path = HOME / "it's mine" / "admin"

    finding = only(home(paths=(PathFacts(path, 0o644, 0, is_folder=False, is_secret=True),)))

    assert finding.mend == """`chmod 600 '/homes/mine/it'"'"'s mine/admin'`"""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"user": 501}, ("foreign_owner", "wrong")),
        ({"unreadable": (HOME / "secrets",)}, ("unreadable", "wrong")),
        ({"is_writable": False}, ("read_only_home", "wrong")),
        ({"damaged": (HOME / "secrets" / "console",)}, ("damaged_secret", "wrong")),
        ({"engine_secret_is_lost": True}, ("lost_secret", "wrong")),
        ({"free_bytes": 2**20}, ("low_disk", "wrong")),
        ({"free_bytes": 2 * GIB, "database_bytes": 2 * GIB}, ("low_disk", "wrong")),
        ({"models_free_bytes": GIB}, ("low_disk_for_models", "warning")),
    ],
)
def test_each_fault_of_the_home_is_found(changes, expected):
    assert checks(home(**changes)) == [expected]


def test_a_disk_whose_room_nobody_knows_is_no_fault():
    assert checks(home(free_bytes=None, models_free_bytes=None)) == []


def test_a_home_that_is_not_there_has_no_faults():
    assert checks(home(is_there=False, is_writable=False, damaged=(HOME,), free_bytes=0)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"is_translated": True}, ("wrong_architecture", "wrong")),
        ({"quarantined": (Path("/x/Splash.command"),)}, ("quarantine", "wrong")),
        ({"wired_limit_mib": 100_000}, ("wired_limit", "warning")),
        ({"available_bytes": GIB}, ("low_memory", "warning")),
        ({"swap_used_bytes": 8 * GIB}, ("swap", "warning")),
        ({"login": (LoginFacts(Path("/a.plist"), Path("/gone"), program_is_there=False),)}, ("broken_login", "wrong")),
        ({"login": (LoginFacts(Path("/a.plist"), None, program_is_there=False),)}, ("broken_login", "wrong")),
    ],
)
def test_each_fault_of_the_machine_is_found(changes, expected):
    assert checks(machine(**changes)) == [expected]


@pytest.mark.parametrize(
    "changes",
    [
        {"is_translated": False, "wired_limit_mib": 0},
        {"swap_used_bytes": GIB},
        {"login": (LoginFacts(Path("/a.plist"), Path("/bin/splash"), program_is_there=True),)},
    ],
)
def test_what_is_usual_on_a_mac_is_no_fault(changes):
    assert checks(machine(**changes)) == []


def test_the_wired_limit_is_shown_and_doctor_never_offers_to_set_another():
    finding = only(machine(wired_limit_mib=100_000))

    assert "100,000 MiB" in finding.what and "iogpu.wired_limit_mb=0" in finding.mend


def test_the_largest_program_of_somebody_else_is_named_when_memory_is_short():
    users = (MemoryUser("Splash", 3, 90 * GIB, True), MemoryUser("Browser", 40, 20 * GIB, False))

    assert "Browser" in only(machine(available_bytes=GIB, users=users)).mend


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        (Package("mlx", "0.32.4", "0.32.4", is_required=True), []),
        (Package("mlx", "0.32.4", "0.33.0", is_required=True), [("wrong_version", "wrong")]),
        (Package("uvicorn", "0.54.0", "0.55.0", is_required=False), [("wrong_version", "warning")]),
        (Package("mlx", "0.32.4", None, is_required=True), [("wrong_version", "wrong")]),
    ],
)
def test_a_package_of_another_version_is_found(package, expected):
    assert checks(well(versions=replace(well().versions, packages=(package,)))) == expected


def test_a_python_that_nobody_tried_is_a_warning_and_a_splash_that_is_not_installed_is_wrong():
    versions = well().versions

    assert checks(well(versions=replace(versions, python=(3, 15)))) == [("untried_python", "warning")]
    assert checks(well(versions=replace(versions, splash=None))) == [("not_installed", "wrong")]
