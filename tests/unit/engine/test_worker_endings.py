"""Faults and the end of the engine: every request gets exactly one ending, whatever happens."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest

from engine.errors import ConstraintFailed, DeviceFailed, InvalidRequest, ModelUnsound, Refused, Stopping
from engine.execution import Execution
from engine.wire import Failed, Finished
from engine.worker import Worker
from tests.unit.engine.conftest import NUM_TOKENS, decode_plainly
from tests.unit.engine.conversations import PATIENCE_S, Client, NumberedOutput, a_request
from tests.unit.engine.models import KINDS, build
from tests.unit.engine.workers import (
    BROKEN_TOKEN,
    ENDLESS,
    ForgetfulGrammar,
    Wrapped,
    ask,
    described,
    running,
    wait_until,
)


def test_a_fault_in_the_text_of_one_request_ends_only_that_one(tiny):
    faulty = tiny.plain[0].tokens[3]
    with running(tiny.model) as worker:
        broken = ask(
            worker, "broken", prompt=tiny.plain[0].prompt, max_tokens=50, output=NumberedOutput(fault_token=faulty)
        )
        sound = ask(worker, "sound", prompt=tiny.plain[1].prompt, max_tokens=NUM_TOKENS)

        assert (broken.ending().code, broken.ending().retryable) == ("internal", False)
        assert sound.ending().reason == "length"

    assert sound.tokens == list(tiny.plain[1].tokens)


def test_logits_that_are_not_finite_fail_only_their_request(dense):
    with running(Wrapped(dense)) as worker:
        sound = ask(worker, "sound", max_tokens=300)
        broken = ask(worker, "broken", prompt=(5, 6, BROKEN_TOKEN), max_tokens=50)

        assert broken.ending().code == "internal"
        assert "not finite" in broken.ending().message
        assert sound.ending().reason == "length"

    assert broken.tokens == []
    assert len(sound.tokens) == 300


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt_len", [31, 32, 63])
def test_a_request_that_breaks_at_the_edge_of_a_block_fails_alone(kind, prompt_len):
    """The step behind its broken token is launched before that is read: the caches are one token further."""
    prompt = tuple(range(7, 6 + prompt_len))
    with running(Wrapped(build(KINDS[kind]))) as worker:
        broken = ask(worker, "broken", prompt=(*prompt, BROKEN_TOKEN))
        ungrammatical = ask(worker, "ungrammatical", prompt=(*prompt, 5), constraint=ForgetfulGrammar(0))

        assert [client.ending().code for client in (broken, ungrammatical)] == ["internal"] * 2
        assert ask(worker, "sound").ending().reason == "length"


def test_a_fault_of_the_device_that_passes_leaves_no_broken_prefix_behind():
    """What was computed while it lasted would break every request that begins alike."""
    model = build(KINDS["dense"])
    embedding = model.model.embed_tokens
    sound, broken = embedding.weight, embedding.weight * float("nan")
    mx.eval(broken)
    plain = decode_plainly(model, tuple(range(1, 100)))
    with running(model) as worker:
        embedding.weight = broken
        first = ask(worker, "first", prompt=plain.prompt, max_tokens=5)
        assert "not finite" in first.ending().message
        embedding.weight = sound

        again = ask(worker, "again", prompt=plain.prompt, max_tokens=NUM_TOKENS)

        assert again.ending().reason == "length"
        assert again.tokens == list(plain.tokens)


def test_grammars_that_fail_one_after_another_end_only_their_requests(dense):
    with running(dense) as worker:
        sound = ask(worker, "sound", max_tokens=ENDLESS)
        assert sound.started.wait(PATIENCE_S)

        failed = [ask(worker, f"failed {i}", constraint=HopelessGrammar()).ending() for i in range(4)]

        assert {ending.code for ending in failed} == {"internal"}
        worker.cancel("sound")
        assert sound.ending().reason == "cancelled"


class HopelessGrammar:
    def allowed(self):
        raise ConstraintFailed("no token of the model continues the answer")

    def accept(self, token):
        raise AssertionError("nothing was allowed")


def test_a_client_that_cannot_be_reached_does_not_disturb_the_others(dense):
    def gone(events):
        raise RuntimeError("event loop is closed")

    with running(dense) as worker:
        lost = a_request("lost", max_tokens=ENDLESS, arrived_at=time.monotonic())
        lost.deliver = gone
        worker.submit(lost)
        sound = ask(worker, "sound", max_tokens=30)

        assert sound.ending().reason == "length"
        wait_until(lambda: worker.snapshot.requests == ())


def test_stopping_ends_everyone_once_and_takes_nobody_new(dense):
    with running(dense, max_streams=1) as worker:
        runs, waits = ask(worker, "runs", max_tokens=ENDLESS), ask(worker, "waits")
        assert runs.started.wait(PATIENCE_S)

        worker.stop()
        endings = [runs.ending(), waits.ending()]
        assert worker.join(PATIENCE_S)

        assert [(ending.code, ending.retryable) for ending in endings] == [("stopping", True)] * 2
        assert worker.snapshot.state == "stopping"
        with pytest.raises(Stopping):
            worker.submit(a_request("late"))


def test_the_same_id_twice_and_an_empty_prompt_are_refused(dense):
    with running(dense) as worker:
        first = ask(worker, "twice", max_tokens=ENDLESS)

        with pytest.raises(InvalidRequest, match="twice"):
            worker.submit(a_request("twice"))
        with pytest.raises(InvalidRequest, match="no tokens"):
            worker.submit(a_request("empty", prompt=()))
        worker.cancel("twice")
        assert isinstance(first.ending(), Finished)


def test_an_error_of_the_device_fails_everyone_and_is_reported(dense):
    model = Wrapped(dense)
    fatal, reported = [], threading.Event()
    worker = Worker(
        lambda on_progress: SimpleNamespace(model=model),
        describe=described,
        memory_plan=None,
        on_fatal=lambda error: (fatal.append(error), reported.set()),
        max_streams=1,
    )
    worker.start()
    wait_until(lambda: worker.snapshot.ready)
    runs, waits = ask(worker, "runs", max_tokens=ENDLESS), ask(worker, "waits")
    assert runs.started.wait(PATIENCE_S)

    model.fault = RuntimeError("[METAL] command buffer execution failed")
    endings = [runs.ending(), waits.ending()]

    assert reported.wait(PATIENCE_S)
    assert all(isinstance(e, Failed) and e.code == "internal" and e.retryable for e in endings)
    assert isinstance(fatal[0], DeviceFailed) and "command buffer" in fatal[0].message
    assert worker.join(PATIENCE_S)
    assert worker.snapshot.state == "failed"
    with pytest.raises(Stopping):
        worker.submit(a_request("late"))


def started_with(load) -> tuple[Worker, list, Client]:
    fatal = []
    worker = Worker(load, describe=described, memory_plan=None, on_fatal=fatal.append)
    early = ask(worker, "early")
    worker.start()
    assert worker.join(PATIENCE_S)
    return worker, fatal, early


def test_a_model_that_does_not_load_is_refused_and_who_waited_for_it_is_told():
    def load(on_progress):
        raise Refused("the weights are damaged")

    worker, fatal, early = started_with(load)

    assert isinstance(fatal[0], Refused) and worker.snapshot.error == "The weights are damaged."
    assert early.ending().code == "internal"


def test_a_model_whose_logits_are_not_finite_is_refused():
    model = build(KINDS["dense"])
    model.model.norm.weight = model.model.norm.weight * float("nan")
    mx.eval(model.parameters())

    worker, fatal, _ = started_with(lambda on_progress: SimpleNamespace(model=model))

    assert isinstance(fatal[0], ModelUnsound)
    assert worker.snapshot.state == "failed"


def test_stopping_ends_a_load_at_its_next_progress(dense):
    reached, go_on = threading.Event(), threading.Event()

    def load(on_progress):
        on_progress(1, 10)
        reached.set()
        assert go_on.wait(PATIENCE_S)
        on_progress(2, 10)
        raise AssertionError("loading went on")

    fatal = []
    worker = Worker(load, describe=described, memory_plan=None, on_fatal=fatal.append)
    worker.start()
    assert reached.wait(PATIENCE_S)

    worker.stop()
    go_on.set()

    assert worker.join(PATIENCE_S)
    assert fatal == []
    assert (worker.snapshot.load.bytes_read, worker.snapshot.load.bytes_total) == (1, 10)
    assert worker.snapshot.state == "stopping"


def test_a_process_whose_worker_ended_exits_cleanly():
    program = """
from types import SimpleNamespace
from engine.worker import Worker
from tests.unit.engine.models import KINDS, build
from tests.unit.engine.workers import described, wait_until

worker = Worker(
    lambda on_progress: SimpleNamespace(model=build(KINDS["dense"])),
    describe=described,
    memory_plan=None,
    on_fatal=print,
)
worker.start()
wait_until(lambda: worker.snapshot.ready)
worker.stop()
assert worker.join(60)
"""
    root = Path(__file__).parents[3]

    ended = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_device_that_fails_again_while_requests_are_ended_still_ends_them_and_the_process(monkeypatch):
    model = Wrapped(build(KINDS["dense"]))
    fatal = []
    worker = Worker(
        lambda on_progress: SimpleNamespace(model=model), describe=described, memory_plan=None, on_fatal=fatal.append
    )
    worker.start()
    clients = [ask(worker, str(i), prompt=(i + 1, 2, 3), max_tokens=ENDLESS) for i in range(3)]
    assert all(client.started.wait(PATIENCE_S) for client in clients)

    def poisoned():
        raise RuntimeError("an illegal memory access was encountered")

    for name in ("clear_cache", "synchronize"):
        monkeypatch.setattr(mx, name, poisoned)
    model.fault = RuntimeError("an illegal memory access was encountered")

    assert worker.join(PATIENCE_S)
    assert [client.ending().retryable for client in clients] == [True] * 3
    assert len(fatal) == 1
    assert worker.snapshot.state == "failed"


@pytest.mark.parametrize("how", ["cancelled", "length"])
def test_what_a_request_that_ends_takes_is_a_pause_for_the_others(how, monkeypatch):
    """A long row that goes into the prefix cache as its request ends holds the other streams up."""
    usual = Execution.release

    def slow_release(self, request):
        if request.id == "leaves":
            time.sleep(0.6)
        usual(self, request)

    monkeypatch.setattr(Execution, "release", slow_release)
    with running(build(KINDS["dense"])) as worker:
        stays = ask(worker, "stays", max_tokens=ENDLESS)
        assert stays.started.wait(PATIENCE_S)
        leaves = ask(worker, "leaves", prompt=(5, 6), max_tokens=30 if how == "length" else ENDLESS)
        assert leaves.started.wait(PATIENCE_S)
        if how == "cancelled":
            worker.cancel("leaves")
        assert leaves.ending().reason == how
        wait_until(lambda: worker.snapshot.promises.gap_violations == 1)

        assert worker.snapshot.promises.largest_gap_ms > 600
        worker.cancel("stays")
        assert stays.ending().reason == "cancelled"
