"""The machinery around the policy, with a process that is a puppet: gate, line, drain, restart, switch, quit."""

import asyncio
from contextlib import suppress

import pytest
from sqlalchemy.exc import OperationalError

from control.admin.errors import ModelRefused, Quitting
from control.command_errors import HomeUnusable
from control.engine_process import Adopted
from control.errors import EngineLingers, NoModel
from control.lifecycle import Exit, Wanted
from control.wire import LoadRequest
from tests.unit.control_lifecycle.scene import Scene, status


@pytest.fixture
def scene():
    return Scene()


async def test_without_a_model_nobody_is_let_in(scene):
    assert (scene.supervisor.availability, scene.supervisor.engine, scene.line.is_open) == ("none", None, False)


async def test_requests_that_waited_for_the_load_go_on_when_the_engine_is_ready(scene):
    await scene.supervisor.load(LoadRequest())
    ticket = scene.join()
    held = (scene.supervisor.availability, ticket.admitted.is_set())

    await scene.supervisor.refresh()

    assert held == ("held", False)
    assert (scene.supervisor.availability, ticket.admitted.is_set()) == ("ready", True)
    assert scene.engine.spawned == [Wanted("demo")]


async def test_an_engine_that_is_not_ready_yet_keeps_the_line_held(scene):
    scene.engine.says = status(state="loading", ready=False)
    await scene.supervisor.load(LoadRequest())

    await scene.supervisor.refresh()

    assert (scene.state, scene.supervisor.engine, scene.line.is_open) == ("loading", None, False)


async def test_the_view_says_whether_requests_are_held_or_turned_away(scene):
    never_loaded = scene.supervisor.view().holds
    await scene.supervisor.load(LoadRequest())
    loading = scene.supervisor.view().holds
    await scene.supervisor.refresh()
    ready = scene.supervisor.view().holds
    scene.supervisor.unload(force=False)
    await scene.look()
    unloaded = (scene.state, scene.supervisor.view().holds)

    assert (never_loaded, loading, ready) == (False, True, False)
    assert unloaded == ("unloaded", True)


async def test_a_crash_holds_the_line_says_why_and_is_followed_by_a_restart(scene):
    await scene.ready()
    scene.engine.end = Exit("The engine (pid 7) was killed by SIGKILL.")

    await scene.look()
    crashed = scene.supervisor.view()
    await scene.look(after_s=1.0)
    await scene.supervisor.refresh()

    assert (crashed.state, crashed.pid, crashed.error) == ("crashed", None, "The engine (pid 7) was killed by SIGKILL.")
    assert (scene.state, scene.supervisor.view().restarts, scene.supervisor.view().error) == ("ready", 1, None)
    assert len(scene.engine.spawned) == 2


async def test_a_model_that_is_refused_turns_away_those_who_waited_for_it(scene):
    await scene.supervisor.load(LoadRequest(model="huge"))
    ticket = scene.join()
    scene.engine.end = Exit("huge does not fit", is_final=True)

    await scene.look()

    assert (scene.state, scene.supervisor.view().error) == ("failed", "huge does not fit")
    assert isinstance(ticket.interruption, NoModel)


async def test_a_switch_to_a_model_that_would_not_load_is_refused_and_nothing_stops(scene):
    await scene.ready()
    scene.preview.refused.add("huge")

    with pytest.raises(ModelRefused, match="huge does not fit"):
        await scene.supervisor.load(LoadRequest(model="huge"))

    assert (scene.state, scene.line.is_open, len(scene.engine.spawned)) == ("ready", True, 1)


async def test_a_refused_load_after_an_unload_leaves_those_who_wait_held(scene):
    await scene.ready()
    scene.supervisor.unload(force=False)
    await scene.look()
    scene.preview.refused.add("huge")
    ticket = scene.join()

    with pytest.raises(ModelRefused, match="huge does not fit"):
        await scene.supervisor.load(LoadRequest(model="huge"))

    assert (scene.state, scene.supervisor.availability, ticket.interruption) == ("unloaded", "held", None)


async def test_a_switch_waits_for_running_requests_and_the_held_ones_go_on_with_the_new_model(scene):
    await scene.ready()
    running = scene.join("running")
    await scene.supervisor.load(LoadRequest(model="other"))
    held = scene.join("held")
    await scene.look()
    while_running = (scene.state, scene.supervisor.view().wanted_model, held.admitted.is_set())

    scene.line.leave(running)
    await scene.look()
    await scene.supervisor.refresh()

    assert while_running == ("draining", "other", False)
    assert scene.engine.spawned == [Wanted("demo"), Wanted("other")]
    assert (scene.state, held.admitted.is_set()) == ("ready", True)


async def test_loading_what_runs_changes_nothing(scene):
    await scene.ready()

    await scene.supervisor.load(LoadRequest(model="demo"))
    await scene.supervisor.load(LoadRequest())
    await scene.look()

    assert (scene.state, len(scene.engine.spawned)) == ("ready", 1)


async def test_a_restart_loads_the_same_model_again(scene):
    await scene.ready("other", context=100)

    await scene.supervisor.restart()
    await scene.look()
    await scene.supervisor.refresh()

    assert scene.engine.spawned == [Wanted("other", 100)] * 2
    assert scene.state == "ready"


async def test_a_forced_unload_cuts_those_that_run_with_a_typed_error(scene):
    await scene.ready()
    ticket = scene.join()

    scene.supervisor.unload(force=True)
    await scene.look()

    assert ticket.interruption.code == "engine_stopped"
    assert (scene.state, scene.supervisor.availability) == ("unloaded", "held")


async def test_the_last_model_with_its_context_is_what_comes_back(scene):
    await scene.ready("other", context=4096, budget_bytes=10)
    after_a_restart_of_control = Scene(memory=scene.memory)

    await after_a_restart_of_control.supervisor.load(LoadRequest())

    assert after_a_restart_of_control.engine.spawned == [Wanted("other", 4096, 10)]


async def test_a_model_that_never_became_ready_is_not_remembered(scene):
    await scene.supervisor.load(LoadRequest(model="huge"))
    scene.engine.end = Exit("huge does not fit", is_final=True)
    await scene.look()

    await scene.supervisor.load(LoadRequest())

    assert scene.engine.spawned[-1] == Wanted("demo")


async def test_quit_tells_those_who_wait_drains_and_is_finished(scene):
    await scene.ready()
    running, also_running, waiting = scene.join("1"), scene.join("2"), scene.join("3")

    scene.supervisor.quit(force=False)
    await scene.look()
    is_early = scene.supervisor.finished.is_set()
    scene.line.leave(running)
    scene.line.leave(also_running)
    await scene.look()

    assert (waiting.interruption.code, running.interruption) == ("quitting", None)
    assert (is_early, scene.supervisor.finished.is_set()) == (False, True)
    assert scene.supervisor.availability == "none"


async def test_a_quit_by_force_is_told_as_a_quit_and_not_as_a_stop_of_the_model(scene):
    await scene.ready()
    running, waiting = scene.join("1"), [scene.join(str(n)) for n in range(2, 6)][-1]

    scene.supervisor.quit(force=True)

    assert (running.interruption.code, waiting.interruption.code) == ("quitting", "quitting")


async def test_nothing_is_loaded_any_more_while_it_quits(scene):
    scene.supervisor.quit(force=False)

    with pytest.raises(Quitting):
        await scene.supervisor.load(LoadRequest())
    with pytest.raises(Quitting):
        await scene.supervisor.restart()
    assert scene.supervisor.finished.is_set()


async def test_a_quit_that_cannot_end_the_engine_is_not_finished_and_may_be_repeated(scene):
    await scene.ready()
    scene.engine.can_be_ended = False
    scene.supervisor.quit(force=False)
    await scene.look()
    stuck = (scene.state, scene.supervisor.finished.is_set(), scene.supervisor.view().error)

    scene.engine.can_be_ended = True
    scene.supervisor.quit(force=True)
    await scene.look()

    assert stuck == ("failed", False, "The engine (pid 7) did not end within 0 s, not even by SIGKILL.")
    assert scene.supervisor.finished.is_set()


async def test_when_control_leaves_those_who_wait_are_told_and_the_engine_lives_on(scene):
    await scene.ready()
    tickets = [scene.join(str(number)) for number in range(3)]

    scene.supervisor.leave()

    assert [ticket.interruption and ticket.interruption.code for ticket in tickets] == [None, None, "gateway_restarts"]
    assert scene.engine.is_running
    assert scene.supervisor.availability == "none"


async def test_an_engine_that_lives_and_does_not_answer_is_shown_as_an_error_after_thirty_seconds(scene):
    await scene.ready()
    scene.engine.is_silent = True

    await scene.look(after_s=29)
    await scene.supervisor.refresh()
    early = scene.supervisor.view().error
    await scene.look(after_s=2)

    assert early is None
    assert scene.supervisor.view().error == "The engine (pid 7) has not answered for 31 s, though it lives."


async def test_an_engine_that_says_that_it_failed_is_ended_and_started_again(scene):
    await scene.ready()
    scene.engine.says = status(state="failed", ready=False, error="the device is gone")

    await scene.supervisor.refresh()
    await scene.look()

    assert (scene.state, scene.supervisor.view().error) == ("crashed", "the device is gone")


async def test_a_live_engine_is_adopted_with_its_weights(scene):
    scene.engine.adoptable = Adopted(Wanted("other", 100))

    await scene.supervisor.adopt()

    assert (scene.state, scene.supervisor.wanted_model, scene.engine.spawned) == ("ready", "other", [])
    assert scene.line.is_open


async def test_an_engine_that_is_not_ours_to_adopt_is_shown_and_left_alone(scene):
    scene.engine.lingers = True

    await scene.supervisor.adopt()

    assert scene.state == "unloaded"
    assert scene.supervisor.view().error == "an engine of an earlier start is still there"


async def test_every_status_is_passed_on(scene):
    seen = []
    scene.supervisor.on_status = seen.append

    await scene.ready()

    assert seen == [scene.engine.says]


async def test_a_load_that_cannot_be_remembered_changes_nothing_but_a_line_in_the_log(scene, caplog):
    scene.memory.failure = OperationalError("database is locked", None, Exception())

    await scene.ready("other")

    assert (scene.state, scene.line.is_open) == ("ready", True)
    assert scene.memory.values["last_model"] == "other"
    assert "load not remembered" in caplog.text


async def test_watching_goes_on_after_a_fault(scene, caplog, monkeypatch):
    monkeypatch.setattr("control.supervisor.LOOK_EVERY_S", 0)
    monkeypatch.setattr("control.supervisor.STATUS_EVERY_WHILE_LOADING_S", 0)
    await scene.supervisor.load(LoadRequest())
    faults = iter([RuntimeError("first"), RuntimeError("second")])

    def break_twice(status):
        for fault in faults:
            raise fault

    scene.supervisor.on_status = break_twice

    with suppress(TimeoutError):
        await asyncio.wait_for(scene.supervisor.run(), 0.2)

    assert scene.state == "ready"
    assert caplog.text.count("asking the engine for its status failed") == 2


async def test_an_engine_that_does_not_answer_yet_is_adopted_and_waited_for(scene):
    scene.engine.adoptable = Adopted(Wanted("other", 100))
    scene.engine.answers_at_once = False

    await scene.supervisor.adopt()
    waiting = (scene.state, scene.supervisor.availability)
    scene.engine.client = scene.engine
    await scene.supervisor.refresh()

    assert waiting == ("loading", "held")
    assert (scene.state, scene.engine.spawned) == ("ready", [])


async def test_an_engine_that_could_not_be_adopted_at_the_start_is_adopted_by_the_next_load(scene):
    scene.engine.lingers = True
    await scene.supervisor.adopt()
    scene.engine.lingers = False
    scene.engine.adoptable = Adopted(Wanted("other", 100))

    await scene.supervisor.load(LoadRequest())
    await scene.look()

    assert (scene.state, scene.supervisor.view().error, scene.engine.spawned) == ("ready", None, [])


async def test_an_engine_whose_secret_is_lost_is_named_and_replaced_by_the_next_load(scene):
    scene.engine.adoptable = Adopted(None)

    await scene.supervisor.adopt()
    before = scene.supervisor.view()
    await scene.supervisor.load(LoadRequest())
    await scene.look()
    await scene.supervisor.refresh()

    assert (before.state, before.pid) == ("failed", 7)
    assert "pid 7" in before.error and "secret is lost" in before.error
    assert (scene.state, scene.engine.spawned) == ("ready", [Wanted("demo")])


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (PermissionError(30, "Read-only file system"), "The engine can't be started: "),
        (FileNotFoundError(2, "No such file or directory", "python"), "The engine can't be started: "),
        (EngineLingers("somebody is there"), "somebody is there"),
    ],
)
async def test_what_stops_the_start_itself_is_said_once_and_not_tried_again(scene, failure, sentence):
    scene.engine.cannot_start = failure

    await scene.supervisor.load(LoadRequest())
    await scene.look(after_s=60)

    assert scene.state == "failed"
    assert scene.supervisor.view().error.startswith(sentence)


@pytest.mark.parametrize("failure", [OSError(11, "Resource temporarily unavailable"), HomeUnusable("x is read-only.")])
async def test_a_start_that_may_work_later_is_tried_again(scene, failure):
    scene.engine.cannot_start = failure
    await scene.supervisor.load(LoadRequest())
    ticket = scene.join()

    scene.engine.cannot_start = None
    await scene.look(after_s=1)
    await scene.supervisor.refresh()

    assert (scene.state, ticket.interruption, scene.supervisor.view().restarts) == ("ready", None, 0)


async def test_an_engine_that_cannot_be_signalled_is_shown_and_may_be_ended_later(scene):
    await scene.ready()
    scene.engine.cannot_be_signalled = True
    scene.supervisor.unload(force=False)
    await scene.look()
    stuck = (scene.state, scene.supervisor.view().error)

    scene.engine.cannot_be_signalled = False
    scene.supervisor.unload(force=True)
    await scene.look()

    assert stuck == ("failed", "The engine can't be ended: [Errno 1] Operation not permitted.")
    assert scene.state == "unloaded"
