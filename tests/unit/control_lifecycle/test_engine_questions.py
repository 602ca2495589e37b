"""What the engine's program is asked, with little programs in its place."""

import asyncio
import json
import sys

import psutil
import pytest

from control.admin.errors import ModelRefused
from control.engine_questions import EngineQuestions
from control.home import Home
from control.lifecycle import Wanted


@pytest.fixture
def answering(tmp_path):
    """An engine whose program writes this text."""
    home = Home(tmp_path / "home")
    home.create()
    return lambda text: EngineQuestions(home, [sys.executable, "-c", f"print({text!r})"])


@pytest.mark.parametrize("answer", [{"plan": None}, {}, {"plan": None, "message": "org/name is not here"}])
async def test_a_model_that_is_not_downloaded_yet_may_be_loaded(answering, answer):
    is_here = await answering(json.dumps(answer)).check(Wanted("org/name"))

    assert not is_here


async def test_the_progress_of_a_download_is_told_line_by_line(answering):
    told = []

    await answering('{"bytes_read": 1, "bytes_total": 4}\n{"bytes_read": 4, "bytes_total": 4}').fetch(
        "org/name", told.append
    )

    assert [(progress.bytes_read, progress.bytes_total) for progress in told] == [(1, 4), (4, 4)]


async def test_a_download_that_fails_is_a_refusal_with_the_last_sentence(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    program = "import sys; print('{}', flush=True); sys.exit('a warning\\norg/name is nowhere')"

    with pytest.raises(ModelRefused, match=r"^org/name is nowhere$"):
        await EngineQuestions(home, [sys.executable, "-c", program]).fetch("org/name", lambda progress: None)


async def test_a_download_that_is_called_off_leaves_no_process(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    program = "import os, time; print('{\"bytes_read\": %d}' % os.getpid(), flush=True); time.sleep(60)"
    pids = asyncio.Queue()
    fetching = asyncio.create_task(
        EngineQuestions(home, [sys.executable, "-c", program]).fetch(
            "org/name", lambda progress: pids.put_nowait(progress.bytes_read)
        )
    )
    pid = await pids.get()

    fetching.cancel()
    await asyncio.wait({fetching})

    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("answer", ["null", "{", '{"plan": 1}', ""])
async def test_an_answer_that_is_not_understood_is_a_refusal(answering, answer):
    with pytest.raises(ModelRefused, match="form that is not understood"):
        await answering(answer).check(Wanted("demo"))


async def test_the_plan_is_asked_for_with_what_the_load_would_have(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    program = "import sys; sys.exit(' '.join(sys.argv[1:]))"
    questions = EngineQuestions(home, [sys.executable, "-c", program])

    with pytest.raises(ModelRefused, match=r"^plan --model demo --json --context 9 --budget 7 --kv-bits 4 --home"):
        await questions.check(Wanted("demo", context=9, budget_bytes=7, kv_bits=4))


async def test_of_folders_that_cannot_be_used_those_of_the_home_are_told(answering, tmp_path):
    home, elsewhere = tmp_path / "home" / "models" / "mine", tmp_path / "hub" / "mine"
    refused = [{"path": str(path), "message": "No."} for path in (home, elsewhere)]

    listed = await answering(json.dumps({"models": [], "refused": refused})).models()

    assert [each.path for each in listed.refused] == [str(home)]


@pytest.mark.parametrize(("code", "level"), [(4, "INFO"), (1, "WARNING")])
async def test_a_refusal_of_the_engine_is_logged_with_the_model_and_is_no_warning(tmp_path, caplog, code, level):
    home = Home(tmp_path / "home")
    home.create()
    program = f"import sys; print('There is no such model.', file=sys.stderr); sys.exit({code})"
    caplog.set_level("INFO")

    with pytest.raises(ModelRefused, match="no such model"):
        await EngineQuestions(home, [sys.executable, "-c", program]).check(Wanted("qwne"))

    (record,) = [each for each in caplog.records if each.name == "control.engine_questions"]
    assert record.levelname == level
    assert "plan --model qwne --json" in record.getMessage()
    assert "reason='There is no such model.'" in record.getMessage()


async def test_an_engine_that_cannot_be_started_is_a_refusal(tmp_path):
    home = Home(tmp_path / "home")
    home.create()

    with pytest.raises(ModelRefused, match="could not be asked `models`"):
        await EngineQuestions(home, ["/no/such/program"]).models()


async def test_a_refusal_passes_on_the_engines_reason_and_its_number(answering):
    refusal = {
        "code": "invalid_request",
        "message": "too long",
        "reason": "context_above_native",
        "maximum_context_tokens": 4096,
    }

    answer = (await answering(json.dumps(refusal)).plan(Wanted("demo", context=9_000))).answer

    assert (answer.outcome, answer.reason, answer.native_context_tokens) == ("refused", "context_above_native", 4096)


async def test_an_engine_that_does_not_answer_in_time_is_ended_and_the_refusal_says_so(tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    home.create()
    monkeypatch.setattr("control.engine_questions.ANSWER_LIMIT_S", 0.5)
    program = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"

    with pytest.raises(ModelRefused, match="did not answer `models` within 0 s, and was ended"):
        await EngineQuestions(home, [sys.executable, "-c", program]).models()

    pid = (home.root / "pid").read_text()
    assert pid and not psutil.pid_exists(int(pid))


async def test_an_engine_that_a_disk_holds_is_left_behind_and_said_in_the_log(answering, monkeypatch, caplog):
    class Held:
        pid = 7

        async def wait(self):
            await asyncio.Event().wait()

    monkeypatch.setattr("control.engine_questions.KILL_LIMIT_S", 0.01)

    await answering("")._until_gone(Held())

    assert "engine question does not end pid=7" in caplog.text
