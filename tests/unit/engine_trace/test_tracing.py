"""The switch of the trace: its file is whole, private and bounded, and a disk that fails ends the trace alone."""

import errno
import os
import stat

import pytest

from engine.prefix.state import state_of
from engine.replay.replay import replay
from engine.replay.trace import Trace
from engine.trace.events import Closed, TraceUnreadable, events_of
from engine.trace.tracing import Tracing
from tests.unit.engine_prefix.sessions import SMALL_SNAPSHOTS, an_agents_day
from tests.unit.engine_trace.living import Living


@pytest.fixture
def living():
    return Living(SMALL_SNAPSHOTS, budget_bytes=700_000_000)


def start(tracing, living):
    return tracing.start(
        model="org/Model 4bit",
        needs_snapshots=True,
        pool_bytes=1_000,
        state_of=lambda key_of, owner_of: state_of(living.cache.index, key_of=key_of, owner_of=owner_of),
        attach=lambda recorder: setattr(living.cache, "recorder", recorder),
    )


def serve(living, num_turns):
    for turn in list(an_agents_day())[:num_turns]:
        living.serve(turn)


def test_what_was_written_can_be_replayed(living, tmp_path):
    tracing = Tracing(tmp_path / "traces", wall=lambda: 0.0)
    begun = start(tracing, living)
    serve(living, 5)
    ended = tracing.stop()

    file = tmp_path / "traces" / begun.file
    trace = Trace.read(file)

    assert begun.file == "19700101-000000-org-Model-4bit.trace"
    assert [each.restored_len for each in replay(trace).lookups] == living.restored
    assert trace.is_whole and trace.opened.pool_bytes == 1_000
    assert (ended.is_on, ended.ended, ended.error) == (False, "stopped", None)
    assert ended.num_bytes == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_holds_no_more_than_it_may_and_says_that_it_is_full(living, tmp_path):
    tracing = Tracing(tmp_path, largest_bytes=4_000)
    begun = start(tracing, living)
    serve(living, 5)

    events = list(events_of((tmp_path / begun.file).read_bytes()))

    assert (tracing.status.is_on, tracing.status.ended) == (False, "full")
    assert isinstance(events[-1], Closed) and events[-1].reason == "full"
    assert len(living.restored) == 5


def test_a_disk_that_fails_ends_the_trace_and_nothing_else(living, tmp_path, monkeypatch):
    tracing = Tracing(tmp_path)
    start(tracing, living)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    serve(living, 5)

    assert (tracing.status.is_on, tracing.status.ended) == (False, "broken")
    assert tracing.status.error == "No space left on device"
    assert len(living.restored) == 5


def test_a_folder_that_cannot_be_written_is_said(living, tmp_path):
    (tmp_path / "traces").touch()

    status = start(Tracing(tmp_path / "traces"), living)

    assert not status.is_on and "can't be written" in status.error


def test_a_second_start_goes_on_with_the_same_file_and_a_second_stop_is_harmless(living, tmp_path):
    tracing = Tracing(tmp_path)
    first = start(tracing, living)

    second = start(tracing, living)
    tracing.stop()

    assert second.file == first.file
    assert tracing.stop().ended == "stopped"


def test_a_trace_that_was_cut_off_is_replayed_as_far_as_it_goes(living, tmp_path):
    tracing = Tracing(tmp_path)
    begun = start(tracing, living)
    serve(living, 5)
    tracing.stop()
    content = (tmp_path / begun.file).read_bytes()

    trace = Trace(content[: len(content) * 2 // 3])

    lookups = replay(trace).lookups
    assert not trace.is_whole and 0 < len(lookups) < 5
    assert [each.restored_len for each in lookups] == living.restored[: len(lookups)]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else", b"splash-trace 9\n"])
def test_another_file_is_refused(content):
    with pytest.raises(TraceUnreadable):
        Trace(content)


def test_a_trace_names_no_token_no_text_and_no_client(living, tmp_path):
    tracing = Tracing(tmp_path)
    begun = start(tracing, living)
    serve(living, 5)
    tracing.stop()
    content = (tmp_path / begun.file).read_bytes()

    prompt = next(an_agents_day()).prompt
    block = living.a_request(next(an_agents_day())).blocks

    assert b"agent" not in content and b"sibling" not in content
    assert not any(key in content or key[:8] in content for key in block.keys)
    assert not any(b"".join(token.to_bytes(4, "little") for token in prompt[n : n + 2]) in content for n in range(50))
