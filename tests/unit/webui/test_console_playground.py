import asyncio
import json

import msgspec
import pytest

from control import wire
from tests.fakes import control as fake
from tests.unit.webui.console_stage import ORIGIN
from webui.playground_answer import Account
from webui.text import load_texts
from webui.views.playground import Heard, progress_of

QUESTION = {"messages": [{"role": "user", "content": "hello"}], "temperature": None, "max_tokens": None}


def chunk(**delta) -> bytes:
    return b"data: " + msgspec.json.encode({"choices": [{"delta": delta, "finish_reason": None}]}) + b"\n\n"


def ended(reason: str = "stop", *, num_tokens: int = 3) -> bytes:
    end = {"choices": [{"delta": {}, "finish_reason": reason}]}
    usage = {"choices": [], "usage": {"completion_tokens": num_tokens}}
    return b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in (end, usage)) + b"data: [DONE]\n\n"


def failed(code: str) -> bytes:
    return b"data: " + msgspec.json.encode({"error": {"code": code, "message": "No."}}) + b"\n\n"


async def ask(console, question=QUESTION, *, token: str | None = None, **headers: str):
    if token is None:
        token = console.sessions.read(dict(console.browser.cookies)).form_token
    sent = {"X-Form-Token": token, "Origin": ORIGIN, "Sec-Fetch-Site": "same-origin", **headers}
    return await console.browser.post("/playground/chat", content=json.dumps(question), headers=sent)


def frames(answer) -> list[tuple[str, dict]]:
    parts = [frame.split("\n", 1) for frame in answer.text.split("\n\n") if frame]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


async def test_the_page_names_the_model_and_holds_no_word_of_a_conversation(console):
    page = (await console.browser.get("/playground")).text

    assert fake.MODEL.id in page
    assert "<noscript>" in page
    assert 'aria-current="page"' in page.split('href="/playground"')[1].split(">")[0]


async def test_without_a_model_the_page_says_what_to_do(console):
    console.control.overview = fake.overview(view=fake.engine("unloaded"))

    model = (await console.browser.get("/playground/model")).text

    assert "No model is loaded" in model
    assert 'href="/model"' in model


async def test_a_question_goes_to_the_gateway_as_it_is_and_its_answer_comes_in_pieces(console):
    answer = b": keep-alive\n\n" + chunk(role="assistant", content="") + chunk(reasoning_content="hm")
    console.control.order_answers[wire.PLAYGROUND] = answer + chunk(content="<b>hi</b>") + ended()

    given = await ask(console, {**QUESTION, "temperature": 0.5, "max_tokens": 9})

    told = frames(given)
    assert console.control.orders[-1] == (
        "POST",
        wire.PLAYGROUND,
        {"messages": QUESTION["messages"], "temperature": 0.5, "max_tokens": 9},
    )
    assert given.headers["content-type"].startswith("text/event-stream")
    assert told[:2] == [("thought", {"text": "hm"}), ("text", {"text": "<b>hi</b>"})]
    assert told[-1][0] == "end"
    assert told[-1][1]["phase"] == "Complete"
    assert "3 tokens" in told[-1][1]["numbers"]


@pytest.mark.parametrize(
    ("view", "chosen", "sent"),
    [
        (fake.engine("ready"), None, None),
        (fake.engine("ready", model=msgspec.structs.replace(fake.MODEL, is_demo=True)), None, 256),
        (fake.engine("ready", model=msgspec.structs.replace(fake.MODEL, is_demo=True)), 5_000, 5_000),
        (fake.engine("loading", model=None, wanted_model="demo"), None, 256),
    ],
)
async def test_a_model_of_random_weights_is_stopped_unless_a_length_was_chosen(console, view, chosen, sent):
    console.control.overview = fake.overview(view=view)
    console.control.order_answers[wire.PLAYGROUND] = chunk(content="nonsense") + ended("length")

    await ask(console, {**QUESTION, "max_tokens": chosen})
    model = (await console.browser.get("/playground/model")).text

    assert console.control.orders[-1][2].get("max_tokens") == sent
    assert ("ends after 256 tokens" in model) is (view.model is not None and view.model.is_demo)


async def test_what_ends_an_answer_is_said_in_words(console):
    for code, words in (("engine_died", "The engine crashed"), ("request_cancelled", "cancelled on another page")):
        console.control.order_answers[wire.PLAYGROUND] = chunk(content="half") + failed(code)

        told = frames(await ask(console))

        assert [name for name, _ in told] == ["text", "problem"]
        assert words in told[-1][1]["words"]


async def test_an_answer_without_an_end_is_told_to_have_broken_off(console):
    console.control.order_answers[wire.PLAYGROUND] = chunk(content="half")

    told = frames(await ask(console))

    assert told[-1] == ("problem", {"words": "The answer broke off: the gateway or this console has ended."})


@pytest.mark.parametrize(("language", "words"), [("en", "No model is loaded"), ("zh-CN", "没有加载模型")])
async def test_a_refusal_before_the_answer_has_the_language_of_who_asks(console, language, words):
    console.control.refusal = wire.AdminError(code="no_model", message="No model is loaded.")

    given = await ask(console, **{"Accept-Language": language})

    assert given.status_code == 409
    assert words in given.json()["words"]


async def test_a_question_that_is_not_of_this_session_is_refused(console):
    foreign = await ask(console, token="made up")
    elsewhere = await ask(console, Origin="http://evil.example")

    assert (foreign.status_code, elsewhere.status_code) == (403, 403)
    assert console.control.orders == []


@pytest.mark.parametrize(
    ("question", "status"),
    [({"messages": []}, 400), ({**QUESTION, "temperature": 9}, 400), ({"messages": "x" * 2_200_000}, 413)],
    ids=["nothing", "hot", "large"],
)
async def test_a_question_that_cannot_be_asked_is_refused_here(console, question, status):
    given = await ask(console, question)

    assert given.status_code == status
    assert given.json()["words"]
    assert console.control.orders == []


async def test_a_silent_gateway_is_an_answer_too(console):
    console.control.is_silent = True

    given = await ask(console)

    assert given.status_code == 502
    assert "splash up" in given.json()["words"]


@pytest.mark.parametrize(
    ("slots", "line", "expected"),
    [
        ((), (fake.waiting(7, 3),), ("In the line", "place 3")),
        ((), (fake.waiting(7, 1, phase="held"),), ("Held until a model is ready", "place 1")),
        (
            (fake.prefilling(7, slot=1, prefilled=71, cached=10, prompt=100),),
            (),
            ("reading the prompt", "71% · ETA 9 s"),
        ),
        ((fake.decoding(7, slot=1),), (), ("generating", "52.1 tok/s · 812 tokens")),
        ((fake.paused(fake.decoding(7, slot=1)),), (), ("paused for memory", "")),
        ((fake.decoding(8, slot=1),), (), None),
    ],
    ids=["waits", "held", "reads", "generates", "paused", "gone"],
)
def test_where_an_answer_is_comes_from_the_overview(slots, line, expected):
    progress = progress_of("r7", Heard(), fake.overview(slots=slots, line=line), load_texts()["en"])

    assert (None if progress is None else (progress.phase, progress.numbers)) == expected


NEW = msgspec.structs.replace(fake.decoding(7, slot=1), tokens_per_second=None, output_tokens=1)


@pytest.mark.parametrize(
    ("slot", "heard", "said"),
    [
        (NEW, Heard(num_pieces=1), "1 token"),
        (NEW, Heard(num_pieces=21, seconds=0.5), "40.0 tok/s · 21 tokens"),
        (fake.prefilling(7, slot=1), Heard(num_pieces=3, seconds=0.1), "3 tokens"),
        (fake.decoding(7, slot=1), Heard(num_pieces=900, seconds=9.0), "52.1 tok/s · 900 tokens"),
        (fake.decoding(8, slot=1), Heard(num_pieces=2, seconds=1.0), "1.0 tok/s · 2 tokens"),
    ],
    ids=["the first", "no speed is known yet", "the overview is late", "both", "it has left its slot"],
)
def test_what_was_heard_goes_before_an_overview_that_is_older(slot, heard, said):
    progress = progress_of("r7", heard, fake.overview(slots=(slot,)), load_texts()["en"])

    assert (progress.phase, progress.numbers) == ("generating", said)


def test_the_first_token_counts_to_the_wait_and_the_others_to_the_speed():
    seconds = iter([10.0, 10.5, 12.5])
    account = Account(load_texts()["en"], now_s=lambda: next(seconds))
    stream = (chunk(content="one") + chunk(content="two") + ended("length", num_tokens=101)).decode()

    told = [frame for line in stream.splitlines() for frame in account.frames(line)]

    end = json.loads(told[-1].decode().split("data: ")[1])
    assert end == {"phase": "Ended at the longest answer", "numbers": "first token 0.50 s · 50.0 tok/s · 101 tokens"}


async def test_many_questions_at_once_each_get_their_own_answer(console):
    console.control.order_answers[wire.PLAYGROUND] = chunk(content="hi") + ended()

    answers = await asyncio.gather(*(ask(console) for _ in range(8)))

    assert all(frames(answer)[0] == ("text", {"text": "hi"}) for answer in answers)
