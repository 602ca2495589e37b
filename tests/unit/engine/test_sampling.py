"""How the next token is chosen."""

import math

import mlx.core as mx
import pytest

from engine.request import SamplingParameters
from engine.sampling import Sampler, choose_tokens, unpacked
from tests.unit.engine.conversations import GREEDY

PROBABILITIES = (0.4, 0.3, 0.15, 0.1, 0.05)
LOGITS = mx.log(mx.array([PROBABILITIES]))


def draws(parameters: SamplingParameters, count: int = 300, *, prompt=()) -> list[int]:
    sampler = Sampler(parameters, prompt)
    return mx.concatenate([sampler.choose(LOGITS) for _ in range(count)]).tolist()


def chosen_after(parameters: SamplingParameters, *, prompt=(), logits=LOGITS, steps: int = 1) -> list[int]:
    sampler = Sampler(parameters, prompt)
    return [int(sampler.choose(logits).item()) for _ in range(steps)]


def test_temperature_zero_takes_the_most_likely():
    assert draws(GREEDY, 5) == [0] * 5


@pytest.mark.parametrize("temperature", [1e-7, 1e-38, 5e-324])
def test_a_temperature_that_no_logit_can_be_divided_by_is_greedy(temperature):
    assert draws(SamplingParameters(temperature=temperature, top_p=0.9), 5) == [0] * 5


def test_temperature_one_draws_as_the_model_says():
    drawn = draws(SamplingParameters(seed=3), 3000)

    for token, probability in enumerate(PROBABILITIES):
        assert drawn.count(token) / 3000 == pytest.approx(probability, abs=0.035)


def test_a_low_temperature_sharpens():
    drawn = draws(SamplingParameters(temperature=0.25, seed=3), 1000)

    expected = PROBABILITIES[0] ** 4 / sum(p**4 for p in PROBABILITIES)
    assert drawn.count(0) / 1000 == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("parameters", "possible"),
    [
        (SamplingParameters(top_k=1), {0}),
        (SamplingParameters(top_k=3), {0, 1, 2}),
        (SamplingParameters(top_k=99), {0, 1, 2, 3, 4}),
        (SamplingParameters(top_p=0.0), {0}),
        (SamplingParameters(top_p=0.39), {0}),
        (SamplingParameters(top_p=0.6), {0, 1}),
        (SamplingParameters(top_p=0.8), {0, 1, 2}),
        (SamplingParameters(min_p=0.3), {0, 1, 2}),
        (SamplingParameters(min_p=0.8), {0}),
        (SamplingParameters(top_k=4, top_p=0.85), {0, 1, 2}),
        (SamplingParameters(top_k=4, min_p=0.7), {0, 1}),
    ],
    ids=str,
)
def test_top_k_top_p_and_min_p_keep_exactly_the_likely_ones(parameters, possible):
    assert set(draws(parameters, 400)) == possible


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others():
    first, again, other = (draws(SamplingParameters(seed=seed), 40) for seed in (11, 11, 12))

    assert first == again
    assert first != other


def test_a_seed_gives_other_draws_at_other_positions():
    assert len(set(draws(SamplingParameters(seed=11), 40))) > 1


def test_a_row_draws_the_same_in_a_batch_as_alone():
    seeded = SamplingParameters(seed=5, top_p=0.95)
    alone = draws(seeded, 20)
    samplers = [Sampler(p, ()) for p in (GREEDY, seeded, SamplingParameters(seed=9, top_k=2))]

    together = [choose_tokens(mx.concatenate([LOGITS] * 3), samplers).tokens.tolist() for _ in range(20)]

    assert [row[1] for row in together] == alone
    assert [row[0] for row in together] == [0] * 20


def test_greedy_rows_need_no_sampler_state():
    choice = choose_tokens(mx.array([[1.0, 3.0, 2.0], [9.0, 3.0, 2.0]]), [Sampler(GREEDY, ()), Sampler(GREEDY, ())])

    assert choice.tokens.tolist() == [1, 0]
    assert choice.sampled(0, 1).logprob is None


def test_the_bias_is_added_to_the_logits_and_unknown_tokens_are_left_out():
    biased = SamplingParameters(temperature=0.0, logit_bias=((4, 100.0), (9999, 100.0)))

    assert chosen_after(biased) == [4]


def test_the_repetition_penalty_looks_at_prompt_and_output():
    logits = mx.array([[3.0, 2.0, 1.5, -1.0]])
    penalised = SamplingParameters(temperature=0.0, repetition_penalty=2.5)

    # 3/2.5 = 1.2 for the prompt's token 0, then 2/2.5 = 0.8 for token 1 once it was said.
    assert chosen_after(penalised, prompt=(0,), logits=logits, steps=3) == [1, 2, 0]


def test_the_repetition_penalty_makes_a_negative_logit_smaller():
    logits = mx.array([[-1.0, -1.5]])

    assert chosen_after(SamplingParameters(temperature=0.0, repetition_penalty=2.0), prompt=(0,), logits=logits) == [1]


def test_the_presence_penalty_counts_once_and_only_the_output():
    logits = mx.array([[3.0, 2.0, 0.0]])
    penalised = SamplingParameters(temperature=0.0, presence_penalty=1.5)

    # 3, then 1.5 against 2, then 1.5 against 0.5, and so on: a second time costs nothing more.
    assert chosen_after(penalised, prompt=(0, 0), logits=logits, steps=5) == [0, 1, 0, 0, 0]


def test_the_frequency_penalty_counts_every_time():
    logits = mx.array([[3.0, 2.0, 0.0]])
    penalised = SamplingParameters(temperature=0.0, frequency_penalty=1.2)

    # 3 | 1.8, 2 | 1.8, .8 | .6, .8 | .6, -.4 | -.6, -.4, 0
    assert chosen_after(penalised, prompt=(0, 0), logits=logits, steps=6) == [0, 1, 0, 1, 0, 2]


def test_logprobs_are_of_the_model_itself_whatever_the_sampling():
    altered = SamplingParameters(
        temperature=0.1, logit_bias=((4, 100.0),), frequency_penalty=1.0, top_k=1, num_logprobs=3
    )

    choice = choose_tokens(LOGITS * 1.0 + 7.0, [Sampler(altered, ())])
    sampled = choice.sampled(0, choice.tokens.tolist()[0])

    assert sampled.token == 4
    assert sampled.logprob == pytest.approx(math.log(0.05), abs=1e-5)
    assert [token for token, _ in sampled.top] == [0, 1, 2]
    assert [logprob for _, logprob in sampled.top] == pytest.approx([math.log(p) for p in (0.4, 0.3, 0.15)], abs=1e-5)


@pytest.mark.parametrize(("num_logprobs", "num_top"), [(0, 0), (1, 1), (20, 5)])
def test_as_many_alternatives_as_asked_for_and_as_there_are(num_logprobs, num_top):
    choice = choose_tokens(LOGITS, [Sampler(SamplingParameters(temperature=0.0, num_logprobs=num_logprobs), ())])

    sampled = choice.sampled(0, 0)

    assert len(sampled.top) == num_top
    assert sampled.logprob == pytest.approx(math.log(0.4), abs=1e-5)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_told_apart_from_its_neighbours(broken):
    logits = mx.array([[1.0, 2.0, 3.0], [1.0, broken, 3.0], [-math.inf, 2.0, 3.0]])

    choice = choose_tokens(logits, [Sampler(GREEDY, ())] * 3)

    assert choice.finite_rows() == [True, False, True]


def mask(*allowed: int) -> bytes:
    return sum(1 << token for token in allowed).to_bytes(4, "little")


def constrained(parameters: SamplingParameters, allowed: bytes, count: int = 300) -> list[int]:
    sampler = Sampler(parameters, ())
    return mx.concatenate([sampler.choose(LOGITS, allowed) for _ in range(count)]).tolist()


@pytest.mark.parametrize(
    ("parameters", "possible"),
    [
        (GREEDY, {1}),
        (SamplingParameters(), {1, 3, 4}),
        (SamplingParameters(temperature=0.0, logit_bias=((0, 100.0), (4, 50.0))), {4}),
        (SamplingParameters(logit_bias=((0, 100.0),)), {1, 3, 4}),
        (SamplingParameters(top_k=2), {1, 3}),
        (SamplingParameters(top_k=4), {1, 3, 4}),
        (SamplingParameters(top_p=0.6), {1}),
        (SamplingParameters(top_p=0.8), {1, 3}),
        (SamplingParameters(min_p=0.3), {1, 3}),
    ],
    ids=str,
)
def test_only_what_the_mask_allows_is_drawn_and_shares_are_of_that(parameters, possible):
    assert set(constrained(parameters, mask(1, 3, 4))) == possible


def test_a_mask_leaves_the_proportions_of_what_it_allows():
    drawn = constrained(SamplingParameters(seed=3), mask(1, 3), 3000)

    assert drawn.count(1) / 3000 == pytest.approx(0.75, abs=0.035)


@pytest.mark.parametrize("vocabulary", [5, 32, 40, 64, 70])
def test_a_mask_may_be_longer_or_shorter_than_the_models_vocabulary(vocabulary):
    allowed = unpacked((1 << 3 | 1 << 33).to_bytes(8, "little"), vocabulary)

    assert [token for token, is_allowed in enumerate(allowed.tolist()) if is_allowed] == [
        token for token in (3, 33) if token < vocabulary
    ]
    assert allowed.shape == (vocabulary,)


def test_a_masked_row_leaves_its_neighbours_draws_alone():
    def samplers():
        return [Sampler(SamplingParameters(seed=5), ()), Sampler(SamplingParameters(seed=6), ()), Sampler(GREEDY, ())]

    logits = mx.concatenate([LOGITS] * 3)
    free, beside = samplers(), samplers()

    plain = [choose_tokens(logits, free).tokens.tolist() for _ in range(20)]
    masked = [choose_tokens(logits, beside, [None, mask(4), None]).tokens.tolist() for _ in range(20)]

    assert [row[0] for row in masked] == [row[0] for row in plain]
    assert [row[2] for row in masked] == [row[2] for row in plain]
    assert [row[1] for row in masked] == [4] * 20


def test_logprobs_and_finiteness_are_of_the_model_itself_under_a_mask():
    asked = SamplingParameters(temperature=0.0, num_logprobs=2)
    logits = mx.concatenate([LOGITS, mx.where(mx.arange(5) == 0, math.nan, LOGITS)])

    choice = choose_tokens(logits, [Sampler(asked, ()), Sampler(GREEDY, ())], [mask(3), mask(3)])
    sampled = choice.sampled(0, choice.tokens.tolist()[0])

    assert sampled.token == 3
    assert sampled.logprob == pytest.approx(math.log(0.1), abs=1e-5)
    assert [token for token, _ in sampled.top] == [0, 1]
    assert choice.finite_rows() == [True, False]


@pytest.mark.parametrize(
    "parameters",
    [
        SamplingParameters(seed=7),
        SamplingParameters(seed=7, top_p=0.9, presence_penalty=1.5),
        SamplingParameters(seed=7, frequency_penalty=0.8, logit_bias=((4, 2.0),)),
        SamplingParameters(temperature=0.0, frequency_penalty=1.2),
        SamplingParameters(seed=7, repetition_penalty=1.7),
    ],
    ids=str,
)
@pytest.mark.parametrize("num_before", [0, 1, 9])
def test_a_resumed_request_goes_on_as_if_it_had_not_been_interrupted(parameters, num_before):
    whole = chosen_after(parameters, prompt=(2,), steps=20)

    resumed = Sampler(parameters, (2,), generated=whole[:num_before])

    assert [int(resumed.choose(LOGITS).item()) for _ in range(20 - num_before)] == whole[num_before:]
