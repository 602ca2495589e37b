"""POST /plan: what is asked of the planner, what is an answer, what is an error, and that nobody waits in vain."""

import asyncio
import json
import sys
from types import SimpleNamespace

import msgspec
import psutil
import pytest
from starlette.requests import Request

from control import wire
from control.admin.plan import PlanApi
from control.engine_questions import EngineQuestions
from control.home import Home
from control.lifecycle import Wanted
from control.plans import Planned, Plans
from control.remembered import RememberedLoads
from control.wire import MemoryPlan, PlanAnswer
from tests.unit.control_lifecycle.rooms import served
from tests.unit.control_lifecycle.scene import Scene

PLAN = MemoryPlan(
    weights_bytes=1,
    fixed_bytes=1,
    kv_bytes_per_token=1,
    state_bytes_per_sequence=0,
    pool_bytes=9,
    limit_bytes=99,
    maximum_context_tokens=5,
    fits=True,
    verdict="demo fits",
)
MODEL = {"name": "splash-demo", "path": "/models/demo", "native_context_tokens": 7}


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


def engine_saying(home: Home, answer: object, *, exit_code: int = 0, complaint: str = "") -> EngineQuestions:
    said = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    program = f"import sys; print({said!r}); print({complaint!r}, file=sys.stderr); sys.exit({exit_code})"
    return EngineQuestions(home, [sys.executable, "-c", program])


async def ask(questions: EngineQuestions, **asked: object) -> SimpleNamespace:
    async with served(PlanApi(plans=Plans(questions.plan), supervisor=Scene().supervisor)) as client:
        answer = await client.post(wire.PLAN, content=json.dumps({"model": "demo", **asked}))
    return SimpleNamespace(status=answer.status_code, content=answer.content)


def plan_of(answer: SimpleNamespace) -> PlanAnswer:
    assert answer.status == 200, answer.content
    return msgspec.json.decode(answer.content, type=PlanAnswer)


async def test_a_plan_is_passed_on_with_its_numbers(home):
    answer = plan_of(await ask(engine_saying(home, {"message": "demo fits", "model": MODEL, "plan": PLAN})))

    assert answer == PlanAnswer(
        outcome="fits", verdict="demo fits", name="splash-demo", plan=PLAN, native_context_tokens=7
    )


async def test_what_does_not_fit_is_an_answer_with_the_numbers(home):
    too_large = msgspec.structs.replace(PLAN, fits=False, verdict="8 more than there are")

    answer = plan_of(await ask(engine_saying(home, {"model": MODEL, "plan": too_large})))

    assert (answer.outcome, answer.verdict, answer.plan) == ("too_large", "8 more than there are", too_large)


async def test_what_is_not_possible_is_an_answer_with_the_engines_sentence(home):
    refusal = {"code": "invalid_request", "message": "a context of 9 tokens is not possible"}

    answer = plan_of(await ask(engine_saying(home, refusal, exit_code=4)))

    assert (answer.outcome, answer.verdict, answer.plan) == ("refused", refusal["message"], None)


async def test_a_model_that_has_to_be_downloaded_is_an_answer_without_numbers(home):
    answer = plan_of(await ask(engine_saying(home, {"message": "org/name is not on this machine", "plan": None})))

    assert (answer.outcome, answer.verdict, answer.plan) == ("not_here", "org/name is not on this machine", None)


async def test_a_name_that_is_nothing_is_not_found(home):
    refusal = {"code": "not_found", "message": "there is no model called demo"}

    answer = await ask(engine_saying(home, refusal, exit_code=4))

    assert answer.status == 404
    assert msgspec.json.decode(answer.content, type=wire.AdminError) == wire.AdminError(
        code="model_not_found", message="there is no model called demo"
    )


@pytest.mark.parametrize(
    ("answer", "exit_code", "sentence"),
    [("", 1, "Traceback: no disk"), ("{", 0, "in a form that is not understood")],
)
async def test_an_engine_that_cannot_be_asked_is_an_error(home, answer, exit_code, sentence):
    answer = await ask(engine_saying(home, answer, exit_code=exit_code, complaint="Traceback: no disk"))

    assert answer.status == 422
    assert sentence in answer.content.decode()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"model": ""}, "model must be a name"),
        ({"model": "a\nb"}, "control characters"),
        ({"context": 0}, "context must be"),
        ({"budget_bytes": -1}, "budget_bytes must be"),
        ({"kv_bits": 3}, "kv_bits must be"),
        ({"context": "many"}, "context"),
    ],
)
async def test_what_no_load_could_have_is_refused_before_anybody_is_asked(home, asked, sentence):
    answer = await ask(EngineQuestions(home, ["/no/such/program"]), **asked)

    assert answer.status == 400
    assert sentence in answer.content.decode()


async def test_what_is_left_out_is_what_that_model_had_last(home):
    asked: list[Wanted] = []

    async def note(wanted: Wanted) -> Planned:
        asked.append(wanted)
        return Planned(PlanAnswer(outcome="not_here", verdict="", name=wanted.model), None)

    scene = Scene()
    await RememberedLoads(scene.memory).remember(Wanted("demo", context=9, kv_bits=8))
    async with served(PlanApi(plans=Plans(note), supervisor=scene.supervisor)) as client:
        for body in ({"model": "demo"}, {"model": "demo", "context": "default"}, {"model": "demo", "kv_bits": 4}):
            await client.post(wire.PLAN, content=json.dumps(body))

    assert asked == [
        Wanted("demo", context=9, kv_bits=8),
        Wanted("demo", kv_bits=8),
        Wanted("demo", context=9, kv_bits=4),
    ]


async def test_who_hangs_up_leaves_no_process_behind(home, tmp_path):
    pid_file = tmp_path / "pid"
    program = f"import os, pathlib, time; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    questions = EngineQuestions(home, [sys.executable, "-c", program])
    room = PlanApi(plans=Plans(questions.plan), supervisor=Scene().supervisor)
    sent = iter([{"type": "http.request", "body": b'{"model": "demo"}'}])

    async def receive():
        message = next(sent, None)
        if message is not None:
            return message
        async with asyncio.timeout(20):
            while not pid_file.exists() or not pid_file.read_text():  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    headers = [(b"content-type", b"application/json")]
    (route,) = room.routes()
    await route.endpoint(Request({"type": "http", "method": "POST", "headers": headers}, receive))

    assert not psutil.pid_exists(int(pid_file.read_text()))
