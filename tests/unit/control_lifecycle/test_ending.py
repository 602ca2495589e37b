"""Ending a process: asked, told, killed; and proven."""

import signal

import pytest

from control.ending import Ending, Patience, end_process
from control.identity import PortHolder
from control.loopback import ask
from tests.story.stack import is_free

QUICK = Patience(asked_s=5, terminated_s=0.3, killed_s=5)


def test_a_process_that_does_as_it_is_asked_gets_no_signal(listen):
    listener = listen("stubborn")

    ending = end_process(
        listener.record,
        ask=lambda: ask(listener.record.port, "/shutdown", method="POST", timeout_s=2),
        patience=QUICK,
    )

    assert (ending.how, ending.is_proven) == ("asked", True)
    assert listener.child.wait() == 0
    assert is_free(listener.record.port)


def test_a_process_that_cannot_be_asked_is_terminated(listen):
    listener = listen()

    ending = end_process(listener.record, patience=Patience(terminated_s=5))

    assert (ending.how, ending.is_proven) == ("SIGTERM", True)
    assert listener.child.wait() == -signal.SIGTERM


def test_a_process_that_ignores_everything_is_killed(listen):
    listener = listen("stubborn")

    ending = end_process(listener.record, patience=QUICK)

    assert (ending.how, ending.is_proven) == ("SIGKILL", True)
    assert ending.held_bytes > 0


def test_a_process_that_is_known_to_be_stuck_is_killed_without_being_asked(listen):
    listener, asked = listen(), []

    ending = end_process(listener.record, ask=lambda: asked.append(True), at_once=True)

    assert (ending.how, ending.is_proven, asked) == ("SIGKILL", True, [])
    assert listener.child.wait() == -signal.SIGKILL


def test_a_port_may_close_a_moment_after_its_process_is_gone(listen, monkeypatch):
    listener, looks = listen(), iter([True, True, False])
    listener.child.kill()
    listener.child.wait()
    monkeypatch.setattr("control.ending.is_listening", lambda port: next(looks))

    ending = end_process(listener.record)

    assert ending.is_proven


@pytest.mark.parametrize(
    ("is_gone", "holder", "sentence"),
    [
        (False, None, "The engine (pid {pid}) did not end within 12 s, not even by SIGKILL."),
        (True, PortHolder(7, "other"), "The engine ended, but its port is held by pid 7 (other)."),
    ],
)
def test_what_is_not_proven_is_said_in_one_sentence(listen, is_gone, holder, sentence):
    record = listen().record

    ending = Ending("SIGKILL", 12.0, is_gone=is_gone, port_holder=holder, held_bytes=None)

    assert ending.shortcoming(record) == sentence.format(pid=record.pid)


def test_force_that_comes_meanwhile_cuts_the_wait_short(listen):
    listener = listen("stubborn")

    ending = end_process(
        listener.record, ask=lambda: None, patience=Patience(asked_s=60, terminated_s=60), is_forced=lambda: True
    )

    assert ending.how == "SIGKILL"
    assert ending.seconds < 10


def test_ending_what_has_ended_is_proven_at_once(listen):
    listener = listen()
    listener.child.kill()
    listener.child.wait()

    ending = end_process(listener.record)

    assert (ending.how, ending.is_proven) == ("already gone", True)


def test_a_port_that_is_still_held_is_not_a_proof(listen):
    ended, other = listen(), listen()
    ended.child.kill()
    ended.child.wait()

    ending = end_process(ended.with_(port=other.record.port))

    assert not ending.is_proven
    assert ending.port_holder.pid == other.record.pid


@pytest.mark.parametrize("change", [{"created_at_s": 1.0}, {"pid": 2**22 + 1}])
def test_a_stranger_with_the_same_pid_is_left_alone(listen, change):
    listener = listen()

    end_process(listener.with_(**change), patience=QUICK)

    assert listener.child.poll() is None
