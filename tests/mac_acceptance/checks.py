"""What is shown on a Mac, in this order: each check is a function that returns what it saw.

It raises AssertionError for what is wrong, NotTried for what this machine can't show. The order matters: Splash is up
under launchd from `jobs_of_launchd` to `quit_leaves_nothing`.
"""

import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psutil

from control.doctor.mac import QUARANTINE, is_translated, quarantined, wired_limit_mib
from control.identity import live_process
from control.machine.mac_disk_bytes import mac_disk_bytes
from control.machine.mac_thermal_pressure import mac_thermal_pressure
from control.services.agents import TEMPLATES
from tests.mac_acceptance.stage import NotTried, Spoken, Stage, said
from tests.story.stack import wait_until

Check = Callable[[Stage], str]

NUM_WORDS, NUM_TOKENS, NUM_TRIES = 1_500, 128, 3
# Two runs of one machine differ by less; Background was measured at an eighth. Source: notes/console.md §0, 2.
LEAST_SHARE: Final = 0.85
# Of control: its ExitTimeOut, and what launchd takes to forget it.
BOOTOUT_LIMIT_S: Final = 60.0
AWAKE_LIMIT_S: Final = 60.0


def _require_mac() -> None:
    if sys.platform != "darwin":
        raise NotTried(f"this is {platform.system()}")


# --- The machine ---


def apple_silicon(_: Stage) -> str:
    _require_mac()
    assert platform.machine() == "arm64" and is_translated() is not True, f"{platform.machine()}, or under Rosetta"
    return f"macOS {platform.mac_ver()[0]}, {platform.machine()}, Python {platform.python_version()}"


def property_lists_are_valid(_: Stage) -> str:
    files = sorted(TEMPLATES.glob("*.plist"))
    said("plutil", "-lint", *map(str, files))
    return ", ".join(file.name for file in files)


def desktop_session(stage: Stage) -> str:
    session = stage.launchctl.session()
    assert session == "Aqua", f"launchctl managername says {session}: run this in a Terminal of the desktop"
    return session


def quarantine_is_seen(_: Stage) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Splash.command"
        file.touch()
        said("xattr", "-w", QUARANTINE, "0081;00000000;Splash;", str(file))
        assert quarantined([file]) == (file,), "doctor would not see it"
        said("xattr", "-dr", QUARANTINE, folder)
        assert quarantined([file]) == (), "the command that README names does not clear it"
    return "seen, and cleared by `xattr -dr`"


def figures_of_macos(_: Stage) -> str:
    _require_mac()
    disk, pressure, limit = mac_disk_bytes(os.getpid()), mac_thermal_pressure(), wired_limit_mib()
    assert disk is not None and disk[0] > 0, "proc_pid_rusage tells nothing"
    assert pressure is not None, "the thermal pressure is not told"
    assert limit is not None, "iogpu.wired_limit_mb is not told"
    return f"read {disk[0]:,} bytes, pressure {pressure}, iogpu.wired_limit_mb {limit}"


# --- Under launchd ---


def jobs_of_launchd(stage: Stage) -> str:
    stage.up("launchd")
    for name in ("control", "webui"):
        job, record = stage.job(name), stage.stack.record(name)
        assert job is not None, f"launchd does not know {stage.label(name)}"
        assert job.pid == record.pid, f"{name}: launchd says pid {job.pid}, the record {record.pid}"
    return f"{stage.label('control')}, {stage.label('webui')}"


def engine_is_on_the_gpu(stage: Stage) -> str:
    _require_mac()
    machine = stage.doctor()["machine"]
    assert machine["engine_device"] == "metal", f"the engine computes on {machine['engine_device']}"
    assert machine["working_set_bytes"] > 0, "Metal recommends no working set"
    return f"Metal, {machine['working_set_bytes'] / 2**30:.1f} GiB recommended"


def launchd_does_not_slow_it_down(stage: Stage) -> str:
    """The one check that takes minutes: the same prompts with the engine's ancestor in launchd and in this shell."""
    _require_mac()
    within = _best(stage)
    stage.quit()
    stage.up("detached")
    beside = _best(stage)
    stage.quit()
    stage.up("launchd")
    prefill, decode = within.prefill_speed / beside.prefill_speed, within.decode_speed / beside.decode_speed
    told = f"prefill {within.prefill_speed:,.0f} tok/s, {prefill:.2f} of a shell's; decode {decode:.2f} of it"
    assert min(prefill, decode) >= LEAST_SHARE, told
    return told


def _best(stage: Stage) -> Spoken:
    tries = [stage.spoken(NUM_WORDS, NUM_TOKENS) for _ in range(NUM_TRIES)]
    return Spoken(max(each.prefill_speed for each in tries), max(each.decode_speed for each in tries))


def awake_while_it_works(stage: Stage) -> str:
    with stage.stack.api() as api:
        body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "slowly"}]}
        with api.stream("POST", "/chat/completions", json=body) as answer:
            next(answer.iter_lines())
            wait_until(lambda: "caffeinate" in said("pmset", "-g", "assertions"), "an assertion", AWAKE_LIMIT_S)
    return "pmset shows caffeinate while a request runs"


def console_alone_restarts(stage: Stage) -> str:
    control, engine, console = (stage.stack.record(name) for name in ("control", "engine", "webui"))
    done = stage.stack.splash("restart", "webui")
    assert done.returncode == 0, done.stderr
    assert stage.stack.record("webui").pid != console.pid, "it is the same process"
    assert (stage.stack.record("control"), stage.stack.record("engine")) == (control, engine), "another one moved"
    return "a new pid; control and engine are the same"


def killed_control_is_adopted_from(stage: Stage) -> str:
    engine = stage.stack.record("engine")
    control = stage.stack.kill("control", signal.SIGKILL)
    wait_until(lambda: live_process(control) is None, "control to be gone")
    survived = live_process(engine) is not None
    stage.up("launchd")
    is_same = stage.stack.record("engine").pid == engine.pid
    assert is_same, f"the engine {'was not adopted' if survived else 'died with control'}"
    return "the engine outlived it with its weights, and was adopted"


def lan_name_answers(stage: Stage) -> str:
    _require_mac()
    name = platform.node().split(".")[0].lower() + ".local"
    done = stage.stack.splash("lan", "on")
    assert done.returncode == 0, done.stderr
    try:
        assert stage.answers(name), f"{name} is refused"
    finally:
        stage.stack.splash("lan", "off")
    return f"http://{name} answers while LAN mode is on"


def bootout_ends_everything(stage: Stage) -> str:
    records = [stage.stack.record(name) for name in ("engine", "control", "webui")]
    stage.launchctl.bootout(stage.label("control"))
    wait_until(lambda: not any(map(live_process, records[:2])), "control and engine to end", BOOTOUT_LIMIT_S)
    wait_until(lambda: live_process(records[2]) is None, "the console to end", BOOTOUT_LIMIT_S)
    stage.up("launchd")
    return "control, engine and console ended; `splash up` begins anew"


def quit_leaves_nothing(stage: Stage) -> str:
    records = [stage.stack.record(name) for name in ("engine", "control", "webui")]
    stage.quit()
    left = [record.name for record in records if live_process(record) is not None]
    assert not left, f"still there: {', '.join(left)}"
    jobs = [name for name in ("control", "webui") if stage.job(name) is not None]
    assert not jobs, f"launchd still knows {', '.join(jobs)}"
    files = [file.name for file in stage.stack.home.launchd_folder.glob("*")]
    assert not files, f"left behind: {', '.join(files)}"
    return "no process, no job, no property list"


def start_at_login(stage: Stage) -> str:
    _require_mac()
    file = Path.home() / "Library" / "LaunchAgents" / f"{stage.label('login')}.plist"
    assert stage.stack.splash("login", "on").returncode == 0
    try:
        assert file.exists(), f"{file.name} is not there"
        said("plutil", "-lint", str(file))
    finally:
        assert stage.stack.splash("login", "off").returncode == 0
    assert not file.exists(), f"{file.name} is still there"
    return "written, valid, removed"


def memory_comes_back(_: Stage) -> str:
    _require_mac()
    ours = [process.pid for process in psutil.process_iter() if "python" in process.name() and _serves(process)]
    assert not ours, f"still running: {ours}"
    return f"{psutil.virtual_memory().available / 2**30:.1f} GiB available"


def _serves(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return any(words[at : at + 2] == ["-m", "engine"] for at in range(len(words))) and process.pid != os.getpid()


CHECKS: Final[Sequence[Check]] = (
    apple_silicon,
    property_lists_are_valid,
    desktop_session,
    quarantine_is_seen,
    figures_of_macos,
    jobs_of_launchd,
    engine_is_on_the_gpu,
    launchd_does_not_slow_it_down,
    awake_while_it_works,
    console_alone_restarts,
    killed_control_is_adopted_from,
    lan_name_answers,
    bootout_ends_everything,
    quit_leaves_nothing,
    start_at_login,
    memory_comes_back,
)
