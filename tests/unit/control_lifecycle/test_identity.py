"""Identity: pid, start time, port and nonce, and that nothing else is ever signalled."""

import os
import platform
import signal
import socket
import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from control.command_errors import PortTaken
from control.home import Home
from control.identity import live_process, port_holder, runs_for, send_signal, start_of, verify
from control.ports import bind
from engine.wire import ProcessRecord
from tests.story.stack import free_ports
from webui.home import is_alive


def record_of(child: subprocess.Popen, name: str) -> ProcessRecord:
    """Of a process that serves nothing."""
    return ProcessRecord(
        name=name,
        pid=child.pid,
        created_at_s=psutil.Process(child.pid).create_time(),
        nonce="n",
        port=1,
        manager="detached",
        started_at_s=1.0,
        version="0",
    )


def test_a_process_that_matches_its_record_in_everything_is_ours(listen):
    assert verify(listen().record).verdict == "ours"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"created_at_s": 1.0}, "gone"),
        ({"pid": 2**22 + 1}, "gone"),
        ({"nonce": "another"}, "stranger"),
    ],
)
def test_a_record_that_differs_in_one_thing_is_not_ours(listen, change, verdict):
    assert verify(listen().with_(**change)).verdict == verdict


def test_a_start_time_that_was_rounded_differently_is_the_same(listen):
    listener = listen()

    assert verify(listener.with_(created_at_s=listener.record.created_at_s + 1.9)).is_ours


def test_a_process_without_its_port_is_not_ours(listen):
    [port] = free_ports(1)

    identity = verify(listen().with_(port=port))

    assert (identity.verdict, identity.is_alive) == ("closed", True)


def test_a_port_that_another_process_holds_does_not_make_ours(listen):
    """A false start: our pid lives, and somebody else answers with the right nonce on the port."""
    ours, theirs = listen(), listen()

    assert verify(ours.with_(port=theirs.record.port)).verdict == "closed"


def test_a_process_that_answers_something_else_is_a_stranger(listen):
    assert verify(listen("foreign").record).verdict == "stranger"


def test_a_process_that_is_stopped_is_silent(listen, monkeypatch):
    monkeypatch.setattr("control.identity.HEALTHZ_TIMEOUT_S", 0.2)
    listener = listen()
    os.kill(listener.record.pid, signal.SIGSTOP)

    assert verify(listener.record).verdict == "silent"


def test_a_command_of_splash_for_this_home_is_known_and_another_is_not(listen, tmp_path):
    ours, elsewhere, foreign = (
        listen("polite", "n", "--home", str(tmp_path)),
        listen("polite", "n", "--home", str(tmp_path / "other")),
        listen(),
    )

    assert runs_for(ours.record, tmp_path)
    assert not runs_for(elsewhere.record, tmp_path)
    assert not runs_for(foreign.record, tmp_path)
    assert not runs_for(ours.with_(created_at_s=1.0), tmp_path)


def test_a_module_of_splash_that_was_started_in_this_home_is_known(tmp_path):
    (tmp_path / "control.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    child = subprocess.Popen([sys.executable, "-m", "control"], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        # Its command line may still be empty in the moment after its start.
        child.stdout.readline()
        record = record_of(child, "control")

        assert runs_for(record, tmp_path)
        assert not runs_for(record, tmp_path / "other")
        assert not runs_for(msgspec.structs.replace(record, name="webui"), tmp_path)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_zombie_counts_as_gone(listen):
    listener = listen()
    os.kill(listener.record.pid, signal.SIGKILL)
    os.waitid(os.P_PID, listener.record.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped

    assert verify(listener.record).verdict == "gone"


def test_a_reused_pid_is_never_signalled(listen):
    listener = listen()

    sent = send_signal(listener.with_(created_at_s=listener.record.created_at_s - 60), signal.SIGKILL)

    assert not sent
    assert live_process(listener.record) is not None


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere the kernel keeps the start itself")
@pytest.mark.parametrize("by_s", [-7200.0, -3.0, 3.0, 7200.0])
def test_a_clock_that_was_set_makes_no_live_process_a_reused_pid(listen, monkeypatch, by_s):
    listener = listen()
    start = start_of(listener.record.pid)
    record = listener.with_(created_at_s=start.at_s, created_after_boot_s=start.after_boot_s)
    set_the_clock(monkeypatch, by_s)

    assert live_process(record) is not None
    assert is_alive(record)
    assert live_process(msgspec.structs.replace(record, created_after_boot_s=start.after_boot_s - 60)) is None


def set_the_clock(monkeypatch, by_s):
    """As psutil sees it: the kernel gives the boot as now less the time since, so it moves with the clock."""
    before = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: before + by_s)


def test_who_holds_a_port_is_told_with_pid_and_command(listen):
    listener = listen()

    holder = port_holder(listener.record.port)

    assert holder.pid == listener.record.pid
    assert "http.server" in str(holder)


def test_a_port_that_another_splash_has_is_told_with_its_home(tmp_path):
    home = Home(tmp_path / "the other one")
    home.create()
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=home.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    port = int(child.stdout.readline())
    try:
        with pytest.raises(PortTaken) as of_a_stranger:
            bind("127.0.0.1", port, key="SPLASH_API_PORT")
        home.write_record(record_of(child, "control"))
        with pytest.raises(PortTaken) as of_splash:
            bind("127.0.0.1", port, key="SPLASH_API_PORT")
    finally:
        child.communicate("\n")

    assert "another Splash" not in str(of_a_stranger.value)
    assert f"another Splash, of the home {home.root}: pid {child.pid}" in str(of_splash.value)
    assert f"`SPLASH_HOME='{home.root}' splash quit`" in str(of_splash.value)


def test_nobody_holds_a_port_that_is_bound_and_does_not_listen():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))

        assert port_holder(bound.getsockname()[1]) is None


HALF_DEAD = """
import ctypes, sys, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("up", flush=True)
sys.stdin.readline()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(sys.argv[1], 93), 0)  # exit, of this thread alone
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a process as a zombie before its last thread")
def test_a_zombie_whose_threads_still_run_is_alive_until_the_last_of_them_has_ended():
    child = subprocess.Popen(
        [sys.executable, "-c", HALF_DEAD, platform.machine()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        child.stdout.readline()
        record = record_of(child, "engine")
        child.stdin.close()
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)

        before = live_process(record)
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert before is not None
        assert live_process(record) is None
