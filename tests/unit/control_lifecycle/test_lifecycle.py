"""The policy of the engine's life, driven by hand: states, gates, actions, back-off and the circuit breaker."""

import pytest

from control.lifecycle import BACK_OFF_S, FAILURE_LIMIT, FAILURE_WINDOW_S, Exit, Lifecycle, Spawn, Stop, Wanted

DEMO = Wanted("demo")
OTHER = Wanted("other")
CRASH = Exit("it was killed")
REFUSAL = Exit("the model does not fit", is_final=True)


def in_state(state: str) -> Lifecycle:
    life = Lifecycle(now=0)
    if state == "unloaded":
        return life
    life.load(DEMO, now=0)
    if state == "loading":
        return life
    if state == "crashed":
        life.exited(CRASH, now=0)
        return life
    if state == "failed":
        life.exited(REFUSAL, now=0)
        return life
    life.became_ready(now=0)
    if state == "ready":
        return life
    life.unload(now=0, force=state == "stopping")
    assert life.state == state
    return life


@pytest.mark.parametrize(
    ("state", "order", "after", "action"),
    [
        ("unloaded", "load demo", "loading", Spawn(DEMO)),
        ("loading", "load demo", "loading", None),
        ("loading", "load other", "stopping", Stop()),
        ("ready", "load demo", "ready", None),
        ("ready", "load other", "draining", None),
        ("ready", "restart", "draining", None),
        ("draining", "load demo", "draining", None),
        ("stopping", "load demo", "stopping", None),
        ("crashed", "load demo", "loading", Spawn(DEMO)),
        ("crashed", "load other", "loading", Spawn(OTHER)),
        ("failed", "load demo", "loading", Spawn(DEMO)),
        ("unloaded", "unload", "unloaded", None),
        ("loading", "unload", "stopping", Stop()),
        ("ready", "unload", "draining", None),
        ("ready", "force", "stopping", Stop(force=True)),
        ("draining", "unload", "draining", None),
        ("draining", "force", "stopping", Stop(force=True)),
        ("stopping", "unload", "stopping", None),
        ("stopping", "force", "stopping", Stop(force=True)),
        ("crashed", "unload", "unloaded", None),
        ("failed", "unload", "unloaded", None),
    ],
)
def test_an_order_moves_the_engine_on_and_names_what_to_do(state, order, after, action):
    life = in_state(state)
    orders = {
        "load demo": lambda: life.load(DEMO, now=1),
        "load other": lambda: life.load(OTHER, now=1),
        "restart": lambda: life.load(DEMO, now=1, again=True),
        "unload": lambda: life.unload(now=1),
        "force": lambda: life.unload(now=1, force=True),
    }

    done = orders[order]()

    assert (life.state, done) == (after, action)


@pytest.mark.parametrize(
    ("state", "gate"),
    [
        ("unloaded", "none"),
        ("loading", "held"),
        ("ready", "ready"),
        ("draining", "held"),
        ("stopping", "held"),
        ("crashed", "held"),
        ("failed", "none"),
    ],
)
def test_the_gate_follows_the_state(state, gate):
    assert in_state(state).gate == gate


def test_requests_are_held_after_a_person_unloaded_the_model():
    life = in_state("draining")
    life.drained(now=1)

    life.exited(Exit("stopped"), now=2)

    assert (life.state, life.gate, life.wanted) == ("unloaded", "held", None)


def test_a_switch_drains_then_stops_then_loads_the_new_model():
    life = in_state("ready")
    life.load(OTHER, now=1)

    steps = [life.drained(now=2), life.exited(Exit("stopped"), now=3)]

    assert steps == [Stop(), Spawn(OTHER)]
    assert (life.state, life.wanted, life.coming) == ("loading", OTHER, None)


def test_the_last_order_wins_while_a_switch_is_under_way():
    life = in_state("ready")
    life.load(OTHER, now=1)
    life.unload(now=2)
    life.drained(now=3)

    after = life.exited(Exit("stopped"), now=4)

    assert (after, life.state) == (None, "unloaded")


def test_an_engine_that_dies_while_it_drains_is_not_restarted():
    life = in_state("draining")

    after = life.exited(CRASH, now=1)

    assert (after, life.state, life.error) == (None, "unloaded", None)


def test_an_engine_that_dies_while_a_switch_drains_makes_way_for_the_new_model():
    life = in_state("ready")
    life.load(OTHER, now=1)

    assert life.exited(CRASH, now=2) == Spawn(OTHER)


def test_a_crash_is_followed_by_a_restart_when_the_back_off_is_over():
    life = in_state("ready")
    life.exited(CRASH, now=10)

    too_early, in_time = life.tick(now=10.9), life.tick(now=11)

    assert (too_early, in_time) == (None, Spawn(DEMO))
    assert (life.state, life.restarts, life.error) == ("loading", 1, CRASH.reason)


def test_the_reason_of_a_crash_is_forgotten_when_the_engine_is_ready_again():
    life = in_state("crashed")
    life.tick(now=1)

    life.became_ready(now=2)

    assert (life.state, life.error) == ("ready", None)


def test_a_refused_model_fails_with_the_engines_sentence_and_is_not_tried_again():
    life = in_state("loading")

    life.exited(REFUSAL, now=1)

    assert (life.state, life.error, life.tick(now=1000)) == ("failed", REFUSAL.reason, None)


def test_each_restart_waits_twice_as_long_as_the_one_before():
    life = in_state("loading")
    now, waits = 0.0, []
    for _ in range(FAILURE_LIMIT - 1):
        life.exited(CRASH, now=now)
        waits.append(life.retry_at - now)
        now = life.retry_at
        life.tick(now=now)

    assert tuple(waits) == BACK_OFF_S[: FAILURE_LIMIT - 1]


def test_the_longest_wait_is_sixteen_seconds():
    life = in_state("loading")
    now, waits = 0.0, []
    for _ in range(7):
        # Long enough apart that the window never holds five of them, too short to be forgotten.
        life.became_ready(now=now)
        now += 40
        life.exited(CRASH, now=now)
        waits.append(life.retry_at - now)
        now = life.retry_at
        life.tick(now=now)

    assert waits == [1, 2, 4, 8, 16, 16, 16]


def test_five_failures_in_two_minutes_are_the_end_and_the_reason_is_told():
    life = in_state("loading")
    now = 0.0
    for _ in range(FAILURE_LIMIT):
        life.became_ready(now=now)
        life.exited(CRASH, now=now + 1)
        now = (life.retry_at or 0) + 1
        life.tick(now=now)

    assert (life.state, life.gate) == ("failed", "none")
    assert CRASH.reason in life.error
    assert "5 times" in life.error


def test_five_loads_in_a_row_that_fail_slowly_are_the_end_too():
    life = in_state("loading")
    now = 0.0
    for _ in range(FAILURE_LIMIT):
        now += FAILURE_WINDOW_S
        life.exited(CRASH, now=now)
        now = life.retry_at or now
        life.tick(now=now)

    assert life.state == "failed"


def test_an_engine_that_stayed_ready_for_the_whole_window_starts_with_a_short_wait_again():
    life = in_state("loading")
    life.exited(CRASH, now=0)
    life.tick(now=1)
    life.exited(CRASH, now=1)
    life.tick(now=3)
    life.became_ready(now=3)

    life.exited(CRASH, now=3 + FAILURE_WINDOW_S)

    assert life.retry_at == 3 + FAILURE_WINDOW_S + BACK_OFF_S[0]


def test_an_order_to_load_forgives_earlier_failures():
    life = in_state("loading")
    for now in range(FAILURE_LIMIT):
        life.exited(CRASH, now=now)
        life.load(DEMO, now=now)

    assert life.state == "loading"


def test_an_engine_that_cannot_be_ended_is_a_failure_and_is_stopped_by_force_before_anything_else_runs():
    life = in_state("stopping")
    life.left_over("pid 7 did not end", now=1)

    action = life.load(OTHER, now=2)

    assert (action, life.state) == (Stop(force=True), "stopping")
    assert life.exited(Exit("stopped"), now=3) == Spawn(OTHER)


def test_an_adopted_engine_is_loading_until_it_says_that_it_is_ready():
    life = in_state("unloaded")

    life.adopted(DEMO, now=1)

    assert (life.state, life.gate, life.wanted) == ("loading", "held", DEMO)
