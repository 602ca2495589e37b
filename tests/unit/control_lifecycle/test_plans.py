"""Plans of loads: asked once for however many, kept for a moment, and called off with the last who wants one."""

import asyncio
import os

import pytest

from control.lifecycle import Wanted
from control.plans import FRESH_S, MOST_AT_ONCE, MOST_KEPT, Planned, Plans
from control.wire import PlanAnswer


class Planner:
    """The engine's program: answers when the test lets it, and counts."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.asked: list[Wanted] = []
        self.num_running = 0
        self.most_running = 0
        self.num_cancelled = 0
        self.may_answer = asyncio.Event()
        self.failure: Exception | None = None

    async def ask(self, wanted: Wanted) -> Planned:
        self.asked.append(wanted)
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= 1
        if self.failure is not None:
            raise self.failure
        answer = PlanAnswer(outcome="fits", verdict=f"number {len(self.asked)}", name=wanted.model)
        return Planned(answer, self.folder)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def planner(tmp_path):
    planner = Planner(tmp_path)
    planner.may_answer.set()
    return planner


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def plans(planner, clock):
    return Plans(planner.ask, monotonic=clock)


async def let_all_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def begun(plans: Plans, planner: Planner, wanted: Wanted) -> asyncio.Task[PlanAnswer]:
    task = asyncio.create_task(plans.plan(wanted))
    await let_all_run()
    return task


async def test_the_same_plan_is_asked_once_for_a_while(plans, planner, clock):
    first = await plans.plan(Wanted("demo", context=9))
    clock.now += FRESH_S - 1
    second = await plans.plan(Wanted("demo", context=9, max_gap_ms=100.0))
    clock.now += 1
    third = await plans.plan(Wanted("demo", context=9))

    assert first == second
    assert third != first
    assert len(planner.asked) == 2


@pytest.mark.parametrize(
    "other", [Wanted("demo", context=8), Wanted("demo", budget_bytes=7), Wanted("demo", kv_bits=8), Wanted("mine")]
)
async def test_other_settings_are_another_plan(plans, planner, other):
    await plans.plan(Wanted("demo"))
    await plans.plan(other)

    assert len(planner.asked) == 2


async def test_a_folder_that_changed_is_planned_anew(plans, planner, tmp_path):
    await plans.plan(Wanted("demo"))
    os.utime(tmp_path, (1, 1))
    await plans.plan(Wanted("demo"))

    assert len(planner.asked) == 2


async def test_a_model_that_is_not_here_is_looked_for_every_time(plans, planner):
    planner.folder = None

    await plans.plan(Wanted("org/name"))
    await plans.plan(Wanted("org/name"))

    assert len(planner.asked) == 2


async def test_those_who_want_the_same_wait_for_one_question(plans, planner):
    planner.may_answer.clear()
    tasks = [await begun(plans, planner, Wanted("demo")) for _ in range(5)]

    planner.may_answer.set()
    answers = await asyncio.gather(*tasks)

    assert len(planner.asked) == 1
    assert len({answer.verdict for answer in answers}) == 1


async def test_who_leaves_takes_nothing_from_the_others(plans, planner):
    planner.may_answer.clear()
    leaving, staying = [await begun(plans, planner, Wanted("demo")) for _ in range(2)]

    leaving.cancel()
    await let_all_run()
    planner.may_answer.set()

    assert (await staying).outcome == "fits"
    assert planner.num_cancelled == 0


async def test_the_last_who_leaves_calls_the_question_off(plans, planner):
    planner.may_answer.clear()
    tasks = [await begun(plans, planner, Wanted("demo")) for _ in range(2)]

    for task in tasks:
        task.cancel()
    await let_all_run()
    planner.may_answer.set()
    again = await plans.plan(Wanted("demo"))

    assert planner.num_cancelled == 1
    assert planner.num_running == 0
    assert again.verdict == "number 2"


async def test_only_a_few_are_asked_at_once(plans, planner):
    planner.may_answer.clear()
    tasks = [await begun(plans, planner, Wanted("demo", context=1 + number)) for number in range(9)]

    planner.may_answer.set()
    await asyncio.gather(*tasks)

    assert planner.most_running == MOST_AT_ONCE
    assert len(planner.asked) == 9


async def test_a_question_that_fails_is_asked_again_next_time(plans, planner):
    planner.failure = RuntimeError("no memory")
    with pytest.raises(RuntimeError, match="no memory"):
        await plans.plan(Wanted("demo"))

    planner.failure = None

    assert (await plans.plan(Wanted("demo"))).outcome == "fits"


async def test_no_more_than_so_many_are_kept(plans, planner):
    for number in range(MOST_KEPT + 1):
        await plans.plan(Wanted("demo", context=1 + number))
    await plans.plan(Wanted("demo", context=MOST_KEPT + 1))
    await plans.plan(Wanted("demo", context=1))

    assert [wanted.context for wanted in planner.asked[MOST_KEPT:]] == [MOST_KEPT + 1, 1]
