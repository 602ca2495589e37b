"""/v1/completions with the official SDK, sync and async, as a stream and not."""

import openai
import pytest

from control.errors import RequestFailed
from engine import wire
from tests.unit.control_dialects.chat_stage import Played

ASKED = {"model": "demo", "prompt": "Once"}
TEXTS = (wire.TextDelta(text=" upon"), wire.ReasoningDelta(text=" a"), wire.TextDelta(text=" time"))


def scored(text: str, *top: tuple[str, float], token: bytes = b"") -> wire.TokenLogprob:
    alternatives = tuple(wire.Alternative(token=each, logprob=logprob) for each, logprob in top)
    return wire.TokenLogprob(token=text, bytes=tuple(token or text.encode()), logprob=-0.5, top=alternatives)


@pytest.fixture
def played():
    return Played(events=TEXTS)


@pytest.fixture
def sdk(played):
    with played.client() as client:
        yield client


def test_a_whole_completion(played, sdk):
    answer = sdk.completions.create(**ASKED)

    assert answer.choices[0].text == " upon a time"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.object, answer.model, answer.usage.total_tokens) == ("text_completion", "demo", 12)
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert played.prompt == wire.Prompt(text="Once")


def test_a_streamed_completion_with_usage(played, sdk):
    played.num_heartbeats = 2

    *parts, usage = list(sdk.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}))

    assert "".join(part.choices[0].text for part in parts) == " upon a time"
    assert parts[-1].choices[0].finish_reason == "stop"
    assert (usage.choices, usage.usage.prompt_tokens) == ([], 7)


async def test_both_async(played):
    async with played.async_client() as sdk:
        answer = await sdk.completions.create(**ASKED)
        parts = [part async for part in await sdk.completions.create(**ASKED, stream=True)]

    assert answer.choices[0].text == "".join(part.choices[0].text for part in parts) == " upon a time"


@pytest.mark.parametrize("is_stream", [False, True])
def test_echo_puts_the_prompt_first(sdk, is_stream):
    answer = sdk.completions.create(**ASKED, echo=True, stream=is_stream)

    texts = [part.choices[0].text for part in (answer if is_stream else [answer])]
    assert "".join(texts) == "Once upon a time"


def test_echo_stands_even_before_an_empty_answer(played, sdk):
    played.events = ()

    parts = list(sdk.completions.create(**ASKED, echo=True, stream=True))

    assert [part.choices[0].text for part in parts] == ["Once", ""]


def test_log_probabilities_are_the_same_both_ways(played, sdk):
    played.events = (
        wire.TextDelta(text="né", logprobs=(scored("n", ("n", -0.5), ("m", -2.0)), scored("\ufffd", token=b"\xc3"))),
        wire.TextDelta(text="e", logprobs=(scored("\ufffd", token=b"\xa9"), scored("e", ("a", -0.1)))),
    )

    whole = sdk.completions.create(**ASKED, logprobs=2).choices[0].logprobs
    parts = list(sdk.completions.create(**ASKED, logprobs=2, stream=True))

    assert whole.tokens == ["n", "\ufffd", "\ufffd", "e"]
    assert whole.token_logprobs == [-0.5] * 4
    assert whole.text_offset == [0, 1, 1, 2]
    assert whole.top_logprobs[0] == {"n": -0.5, "m": -2.0}
    assert whole.top_logprobs[3] == {"a": -0.1, "e": -0.5}
    streamed = [part.choices[0].logprobs for part in parts if part.choices[0].logprobs]
    assert [offset for each in streamed for offset in each.text_offset] == whole.text_offset
    assert played.exchanges[0].generate.sampling.logprobs == 2


def test_an_error_in_a_stream_is_raised(played, sdk):
    played.error = RequestFailed("4 GiB are missing.", engine_code="out_of_memory")

    with pytest.raises(openai.APIError, match="4 GiB are missing"):
        list(sdk.completions.create(**ASKED, stream=True))
