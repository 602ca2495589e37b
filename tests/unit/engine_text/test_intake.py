"""Bodies into requests: limits, defaults, and the rendering that a /count keeps for its /generate."""

import math

import msgspec
import pytest

from engine.door.intake import MOST_KEPT, Intake
from engine.errors import ContextTooLong, InvalidRequest
from engine.text.defaults import GenerationDefaults
from engine.wire import Sampling

CONTEXT = 100


class CountingLoad:
    """Loads the model's text side, and counts how often its tokenizer was asked."""

    def __init__(self, model):
        self.model = model
        self.num_loads = 0

    def __call__(self):
        self.num_loads += 1
        return self.model


@pytest.fixture
def intake(demo):
    return Intake(CountingLoad(demo), CONTEXT)


@pytest.fixture
def renderings(monkeypatch):
    """The prompts that were really rendered."""
    from engine.door import intake

    seen = []
    render = intake.render
    monkeypatch.setattr(
        intake, "render", lambda prompt, *args, **how: (seen.append(prompt), render(prompt, *args, **how))[1]
    )
    return seen


def body(request_id="a", text="Hello", **more):
    return msgspec.json.encode({"id": request_id, "prompt": {"text": text}} | more)


def said(text):
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def test_the_tokenizer_is_loaded_once(demo):
    load = CountingLoad(demo)
    intake = Intake(load, CONTEXT)

    intake.count(body())
    intake.admit(body())

    assert load.num_loads == 1


def test_a_counted_prompt_is_not_rendered_again(intake, renderings):
    counted = intake.count(body())
    admitted = intake.admit(body(max_tokens=3))

    assert len(renderings) == 1
    assert len(admitted.prompt) == counted.prompt_tokens


def test_another_prompt_under_the_same_id_is_rendered(intake, renderings):
    intake.count(body(text="Hello"))

    admitted = intake.admit(body(text="Something else"))

    assert len(renderings) == 2
    assert len(admitted.prompt) > 1


def test_a_kept_rendering_is_used_once(intake, renderings):
    intake.count(body())

    intake.admit(body())
    intake.admit(body())

    assert len(renderings) == 2


def test_a_prompt_that_was_counted_before_everything_is_forgotten_is_rendered_again(intake, renderings):
    counted = intake.count(body())

    intake.forget()
    admitted = intake.admit(body())

    assert len(renderings) == 2
    assert len(admitted.prompt) == counted.prompt_tokens


def test_the_oldest_rendering_is_let_go_when_too_many_are_kept(intake, renderings):
    for number in range(MOST_KEPT + 1):
        intake.count(body(f"id-{number}"))

    intake.admit(body("id-0"))
    intake.admit(body(f"id-{MOST_KEPT}"))

    assert len(renderings) == MOST_KEPT + 2


def test_max_tokens_is_what_was_asked_or_what_is_left(intake):
    prompt = {"tokens": [5] * 90}

    asked = intake.admit(msgspec.json.encode({"id": "a", "prompt": prompt, "max_tokens": 3}))
    clamped = intake.admit(msgspec.json.encode({"id": "a", "prompt": prompt, "max_tokens": 50}))
    unlimited = intake.admit(msgspec.json.encode({"id": "a", "prompt": prompt}))

    assert (asked.max_tokens, clamped.max_tokens, unlimited.max_tokens) == (3, 10, 10)


def test_a_prompt_that_leaves_room_for_no_token_is_too_long(intake):
    with pytest.raises(ContextTooLong) as refusal:
        intake.admit(msgspec.json.encode({"id": "a", "prompt": {"tokens": [5] * CONTEXT}}))

    assert (refusal.value.prompt_tokens, refusal.value.maximum_context_tokens) == (CONTEXT, CONTEXT)


@pytest.mark.parametrize("penalty", [1e-9, 0.009, 101, 1e300])
def test_a_repetition_penalty_that_no_logit_survives_is_refused_by_its_name(intake, penalty):
    with pytest.raises(InvalidRequest) as refusal:
        intake.admit(body(sampling={"repetition_penalty": penalty}))

    assert refusal.value.param == "sampling.repetition_penalty"


@pytest.mark.parametrize("penalty", [0.01, 1, 100])
def test_a_repetition_penalty_within_its_bounds_is_taken(intake, penalty):
    assert intake.admit(body(sampling={"repetition_penalty": penalty})).sampling.repetition_penalty == penalty


@pytest.mark.parametrize("ask", [Intake.count, Intake.admit])
@pytest.mark.parametrize("prompt", [{"text": "ab " * 300_000}, {"messages": [said("ab " * 300_000)]}])
def test_a_prompt_beyond_all_hope_is_refused_without_being_tokenised(intake, monkeypatch, ask, prompt):
    def never(*_, **__):
        raise AssertionError("tokenised")

    monkeypatch.setattr(type(intake.load().tokenizer), "encode", never, raising=False)

    with pytest.raises(ContextTooLong) as refusal:
        ask(intake, msgspec.json.encode({"id": "a", "prompt": prompt}))

    assert 600_000 // 11 < refusal.value.prompt_tokens < 600_000
    assert refusal.value.maximum_context_tokens == CONTEXT


@pytest.mark.parametrize("bad", [b"", b"nonsense", b"\xff\xfe", b'{"id": "a", "prompt": {"text": "x"'])
def test_what_is_not_json_is_refused(intake, bad):
    with pytest.raises(InvalidRequest, match="JSON"):
        intake.admit(bad)


def test_json_that_is_nested_without_end_is_refused(intake):
    nested = b'{"id": "a", "prompt": {"text": "x", "template_arguments": {"a": ' + b"[" * 10000 + b"]" * 10000 + b"}}}"

    with pytest.raises(InvalidRequest):
        intake.admit(nested)


def test_the_models_own_defaults_hold_where_the_client_is_silent():
    defaults = GenerationDefaults.of({"temperature": 0.6, "top_k": 20, "do_sample": True})

    resolved = defaults.resolve(Sampling(temperature=0.1, seed=7, logit_bias={9: 1.0, 3: -1.0}))

    assert (resolved.temperature, resolved.top_k, resolved.top_p) == (0.1, 20, 1.0)
    assert (resolved.seed, resolved.logit_bias) == (7, ((3, -1.0), (9, 1.0)))


def test_a_model_that_is_not_meant_to_be_sampled_is_greedy_by_default():
    assert GenerationDefaults.of({"do_sample": False, "temperature": 0.6}).temperature == 0.0


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"temperature": None, "top_p": "high"},
        {"temperature": -1, "top_p": 1.5, "min_p": math.nan, "top_k": -1, "repetition_penalty": 0},
        {"temperature": math.inf, "repetition_penalty": 1e6},
    ],
)
def test_without_usable_recommendations_the_neutral_values_hold(config):
    assert GenerationDefaults.of(config) == GenerationDefaults()


def test_requests_without_a_seed_differ_and_any_integer_is_a_seed():
    defaults = GenerationDefaults()

    seeds = {defaults.resolve(Sampling()).seed for _ in range(4)}

    assert len(seeds) == 4
    assert defaults.resolve(Sampling(seed=-1)).seed >= 0
    assert defaults.resolve(Sampling(seed=2**70)).seed < 2**63


def test_a_request_carries_the_blocks_and_the_marks_of_its_prompt(demo):
    prompt = {"messages": [said("Hello " * 40), said("Hello")]}

    admitted = Intake(CountingLoad(demo), 1000).admit(msgspec.json.encode({"id": "a", "prompt": prompt}))

    assert admitted.blocks.length == len(admitted.prompt)
    assert admitted.blocks.tail(0) == admitted.prompt[:32]
    assert 0 < admitted.marks.message_starts[-1] < len(admitted.prompt) - admitted.marks.generation_len
