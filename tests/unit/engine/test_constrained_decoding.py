"""A model that knows nothing, held to a grammar: what comes out is what was asked for, in any batch and any layout."""

import copy
import dataclasses
import functools
import json
import re

import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tool_parsers import json_tools

from engine.layout import new_caches
from engine.model.demo import build_demo
from engine.padded import PaddedLayout
from engine.request import Request, SampledToken, SamplingParameters
from engine.rows import RowsLayout
from engine.sampling import Sampler
from engine.step import Decoder, prefill_slice
from engine.text.constraint import constraint_of
from engine.text.decoder import TokenDecoder
from engine.text.grammar import Grammars
from engine.text.markup import ANSWER, THOUGHT
from engine.text.messages import as_functions
from engine.text.output import TokenOutput, ToolUse
from engine.text.template import Rendered
from engine.text.tokenizer import load_text_model
from engine.wire import (
    GenerateRequest,
    Grammar,
    Message,
    Prompt,
    ReasoningDelta,
    TextDelta,
    TextPart,
    Tool,
    ToolCallBegin,
    ToolCallDelta,
    ToolChoice,
)
from tests.unit.engine.conversations import GREEDY, a_request
from tests.unit.engine.models import KINDS, build

MAX_TOKENS = 400
WARM = SamplingParameters(temperature=1.0, seed=11)
PROMPT = (40, 41, 42, 43)
ORDER = {
    "type": "object",
    "properties": {
        "item": {"enum": ["tea", "coffee"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "note": {"type": "string", "maxLength": 12},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["item", "count", "note", "tags"],
    "additionalProperties": False,
}
JSON = Grammar(kind="json_schema", schema=ORDER)
# In XML a text may be of any length, and a model that knows nothing does not find its end.
SHORT_NOTE = {"enum": ["hot", "with <milk>", "to\ngo"]}
TOOL = Tool(name="order", parameters=ORDER | {"properties": ORDER["properties"] | {"note": SHORT_NOTE}}, strict=True)


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "demo"
    folder.mkdir()
    build_demo(folder)
    return load_text_model(folder)


@pytest.fixture(scope="module")
def grammars(text_model):
    return Grammars(text_model)


@pytest.fixture(scope="module")
def build_once(text_model):
    @functools.cache
    def build_kind(kind):
        configuration = copy.deepcopy(KINDS[kind])
        configuration.get("text_config", configuration)["vocab_size"] = text_model.vocabulary_size
        return build(configuration)

    return build_kind


@pytest.fixture(params=[("dense", RowsLayout), ("dense", PaddedLayout), ("hybrid", RowsLayout)], ids=str)
def decoder(request, build_once):
    kind, layout = request.param
    model = build_once(kind)
    decoder = Decoder(layout(model, make_prompt_cache(model)))
    decoder.model = model
    return decoder


def asked(request_id, text_model, grammars, *, sampling, grammar=None, tools=(), state=ANSWER, prompt=PROMPT):
    """A request, its output and its constraint, as the HTTP side would make them. Thinking is off."""
    functions = tuple(as_functions(tools))
    choice = ToolChoice(mode="required", parallel=False) if tools else ToolChoice()
    message = Message(role="user", content=(TextPart("Hi"),))
    body = GenerateRequest(
        id=request_id,
        prompt=Prompt(messages=(message,), tools=tools, tool_choice=choice, effort="none"),
        grammar=grammar,
    )
    output = TokenOutput(
        decoder=TokenDecoder(text_model.tokenizer, continues_text=False),
        markup=text_model.markup,
        state=state,
        end_tokens=text_model.end_tokens,
        tool_use=ToolUse(text_model.tokenizer.tool_parser, functions, False) if tools else None,
    )
    rendered = Rendered(prompt, state, has_markup=True, continues_text=False, tools=functions)
    return a_request(
        request_id,
        prompt=prompt,
        max_tokens=MAX_TOKENS,
        sampling=sampling,
        output=output,
        constraint=constraint_of(body, rendered, text_model, grammars),
    )


def join(decoder, request: Request) -> None:
    model = decoder.model
    caches = new_caches(model, room_len=MAX_TOKENS + 2 * len(request.prompt))
    prefill_slice(model, caches, request.inputs(0, request.input_len - 1))
    decoder.join(request, caches, Sampler(request.sampling, request.prompt, generated=request.tokens))


def decode_all(decoder, requests, *, most_steps=10**6) -> dict:
    """Until every request ended by itself or has all its tokens, or for so many steps. Returns events by request."""
    for request in requests:
        join(decoder, request)
    return go_on(decoder, requests, most_steps=most_steps)


def go_on(decoder, requests, *, most_steps=10**6) -> dict:
    events = {request.id: [] for request in requests}
    while len(decoder) and most_steps:
        most_steps -= 1
        for outcome in decoder.step().outcomes:
            assert isinstance(outcome.result, SampledToken), outcome.result
            request = outcome.request
            request.tokens.append(outcome.result.token)
            events[request.id] += request.output.push(outcome.result)
            if request.output.finish is not None or len(request.tokens) == request.max_tokens:
                decoder.leave(request)
                events[request.id] += request.output.close("length")[0]
    return events


def text_of(events) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def is_an_order(value) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == ORDER["properties"].keys()
        and value["item"] in ("tea", "coffee")
        and type(value["count"]) is int
        and 1 <= value["count"] <= 99
        and isinstance(value["note"], str)
        and len(value["note"]) <= 12
        and all(tag in (True, False) for tag in value["tags"])
        and len(value["tags"]) <= 3
    )


def test_json_that_the_schema_describes_comes_out_beside_neighbours_that_are_free(decoder, text_model, grammars):
    code = Grammar(kind="regex", pattern="[a-f]{3}-[0-9]{2}")
    bound = [
        asked("greedy json", text_model, grammars, sampling=GREEDY, grammar=JSON),
        asked("warm json", text_model, grammars, sampling=WARM, grammar=JSON),
        asked("code", text_model, grammars, sampling=WARM, grammar=code),
    ]
    free = asked("free", text_model, grammars, sampling=WARM)
    free.max_tokens = 30

    events = decode_all(decoder, [free, *bound])

    assert is_an_order(json.loads(text_of(events["greedy json"])))
    assert is_an_order(json.loads(text_of(events["warm json"])))
    assert re.fullmatch("[a-f]{3}-[0-9]{2}", text_of(events["code"]))
    assert all(request.output.finish.reason == "stop" for request in bound)


def test_streams_beside_a_bound_one_say_what_they_say_without_it(decoder, text_model, grammars):
    def free():
        requests = [asked(name, text_model, grammars, sampling=how) for name, how in (("a", GREEDY), ("b", WARM))]
        for request in requests:
            request.max_tokens = 40
        return requests

    alone, beside = free(), free()
    decode_all(decoder, alone)
    decode_all(decoder, [beside[0], asked("json", text_model, grammars, sampling=WARM, grammar=JSON), beside[1]])

    assert [request.tokens for request in beside] == [request.tokens for request in alone]


@pytest.mark.parametrize("family", ["xml", "json"])
def test_a_required_call_is_read_as_one(decoder, text_model, grammars, family):
    if family == "json":
        tokenizer = copy.copy(text_model.tokenizer)
        tokenizer._tool_parser = json_tools.parse_tool_call
        text_model = dataclasses.replace(text_model, tokenizer=tokenizer)

    said = decode_all(
        decoder,
        [
            asked(name, text_model, grammars, sampling=sampling, tools=(TOOL,))
            for name, sampling in (("greedy", GREEDY), ("warm", WARM))
        ],
    )

    for events in said.values():
        arguments = "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))
        assert [event.name for event in events if isinstance(event, ToolCallBegin)] == ["order"]
        assert is_an_order(json.loads(arguments))
        assert text_of(events) == ""


def test_a_thought_before_the_answer_is_free(decoder, text_model, grammars):
    end = text_model.tokenizer.encode("</think>", add_special_tokens=False)[0]
    thinking = SamplingParameters(temperature=1.0, seed=3, logit_bias=((end, 5.0),))
    request = asked("a", text_model, grammars, sampling=thinking, grammar=JSON, state=THOUGHT)

    (events,) = decode_all(decoder, [request]).values()

    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) != ""
    assert is_an_order(json.loads(text_of(events)))


def test_a_bound_request_that_is_suspended_goes_on_as_if_it_had_not_been(decoder, text_model, grammars):
    whole = asked("whole", text_model, grammars, sampling=WARM, grammar=JSON)
    decode_all(decoder, [whole])
    suspended = asked("suspended", text_model, grammars, sampling=WARM, grammar=JSON)

    decode_all(decoder, [suspended], most_steps=7)
    decoder.leave(suspended)
    tokens_before = list(suspended.tokens)
    join(decoder, suspended)
    go_on(decoder, [suspended])

    assert len(tokens_before) == 7
    assert suspended.tokens == whole.tokens
