"""The decoding batch: a step is launched ahead, and nothing that it computes too much is ever seen."""

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import step as step_module
from engine.errors import ConstraintFailed, NonFiniteLogits
from engine.request import SampledToken, SamplingParameters
from engine.sampling import Sampler, choose_tokens
from engine.step import Decoder
from tests.unit.engine.conversations import GREEDY, a_request

VOCABULARY = 50
BROKEN_TOKEN = 49


class CountingLayout:
    """A model that always says the number after its input, and NaN after 49. Remembers what it was fed."""

    kind = "rows"

    def __init__(self):
        self.rows = []
        self.fed = []
        self.rooms = []

    def __len__(self):
        return len(self.rows)

    def join(self, caches):
        self.rows.append(caches)

    def leave(self, index):
        self.rows.pop(index)

    def sequence(self, index):
        return self.rows[index]

    def make_room(self, index, room_len):
        self.rooms.append((index, room_len))

    def forward(self, tokens):
        assert tokens.shape == (len(self.rows),)
        self.fed.append(tokens.tolist())
        logits = mx.where(mx.arange(VOCABULARY)[None] == tokens[:, None] + 1, 10.0, 0.0)
        return mx.where(tokens[:, None] == BROKEN_TOKEN, float("nan"), logits)

    def pending(self):
        return []

    @property
    def kv_bytes(self):
        return 0


class Script:
    """A grammar that takes one text, token after token; 0 is whatever the model likes. Writes down what it is asked."""

    def __init__(self, *tokens, told=None):
        self.tokens = list(tokens)
        self.told = [] if told is None else told
        self.accepted = []

    def allowed(self):
        self.told.append("allowed")
        token = self.tokens[len(self.accepted)]
        if isinstance(token, Exception):
            raise token
        return None if token == 0 else (1 << token).to_bytes(8, "little")

    def accept(self, token):
        self.told.append("accept")
        assert self.tokens[len(self.accepted)] in (0, token)
        self.accepted.append(token)


def joined(
    decoder: Decoder, request_id: str, last_token: int, *, max_tokens: int = 100, sampling=GREEDY, constraint=None
):
    request = a_request(
        request_id, prompt=(0, last_token), max_tokens=max_tokens, sampling=sampling, constraint=constraint
    )
    decoder.join(request, [], Sampler(sampling, request.prompt))
    return request


def tokens_of(step) -> dict[str, int]:
    return {outcome.request.id: outcome.result.token for outcome in step.outcomes}


def test_the_last_token_of_the_prompt_is_the_first_input():
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", 5)

    assert [tokens_of(decoder.step()) for _ in range(3)] == [{"a": 6}, {"a": 7}, {"a": 8}]


def test_before_a_step_every_row_is_told_the_room_of_its_request():
    layout = CountingLayout()
    decoder = Decoder(layout)
    joined(decoder, "a", 5, max_tokens=1).room_len = 30
    joined(decoder, "b", 5, max_tokens=1).room_len = 40

    decoder.step()

    assert layout.rooms == [(0, 30), (1, 40)]


def test_the_next_step_is_launched_before_a_step_is_read():
    layout = CountingLayout()
    decoder = Decoder(layout)
    joined(decoder, "a", 5)

    decoder.step()

    assert layout.fed == [[5], [6]]


def test_who_joins_later_starts_with_its_own_token_beside_the_others():
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", 5)
    decoder.step()
    joined(decoder, "b", 20)

    steps = [decoder.step() for _ in range(3)]

    assert [tokens_of(step) for step in steps] == [{"a": 7}, {"a": 8, "b": 21}, {"a": 9, "b": 22}]
    assert [step.width for step in steps] == [1, 2, 2]


def test_what_a_leaving_stream_computed_beyond_its_end_is_dropped():
    decoder = Decoder(CountingLayout())
    a, b, c = (joined(decoder, name, token) for name, token in (("a", 5), ("b", 20), ("c", 30)))
    decoder.step()

    decoder.leave(b)

    assert tokens_of(decoder.step()) == {"a": 7, "c": 32}
    assert tokens_of(decoder.step()) == {"a": 8, "c": 33}
    decoder.leave(a)
    decoder.leave(c)
    assert len(decoder) == 0
    assert decoder.drain() is None


def test_leaving_and_joining_between_two_steps_keeps_the_rows_apart():
    decoder = Decoder(CountingLayout())
    a = joined(decoder, "a", 5)
    joined(decoder, "b", 20)
    decoder.step()
    decoder.leave(a)
    joined(decoder, "c", 40)

    assert [tokens_of(decoder.step()) for _ in range(3)] == [{"b": 22}, {"b": 23, "c": 41}, {"b": 24, "c": 42}]


def test_draining_reads_the_step_in_flight_and_launches_nothing():
    layout = CountingLayout()
    decoder = Decoder(layout)
    joined(decoder, "a", 5)
    decoder.step()

    drained = decoder.drain()

    assert tokens_of(drained) == {"a": 7}
    assert decoder.drain() is None
    assert layout.fed == [[5], [6]]
    assert tokens_of(decoder.step()) == {"a": 8}


def test_nothing_is_launched_beyond_the_most_tokens_of_all():
    layout = CountingLayout()
    decoder = Decoder(layout)
    joined(decoder, "a", 5, max_tokens=2)

    decoder.step()
    decoder.step()

    assert layout.fed == [[5], [6]]


def test_a_broken_row_is_reported_and_the_others_go_on():
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", 5)
    joined(decoder, "b", BROKEN_TOKEN)

    outcomes = {outcome.request.id: outcome.result for outcome in decoder.step().outcomes}

    assert outcomes["a"] == SampledToken(6)
    assert isinstance(outcomes["b"], NonFiniteLogits)
    assert outcomes["b"].position == 2


def test_penalties_see_the_tokens_of_steps_that_were_not_read_yet():
    decoder = Decoder(CountingLayout())
    loud = SamplingParameters(temperature=0.0, presence_penalty=0.0, logit_bias=((3, 11.0),), frequency_penalty=0.75)
    joined(decoder, "a", 5, sampling=loud)

    tokens = [tokens_of(decoder.step())["a"] for _ in range(4)]

    # The bias makes 3 win with 11 against 10; said twice it has lost 1.5 and the model's own choice, 4, wins.
    assert tokens == [3, 3, 4, 5]


def results_of(step) -> dict:
    return {outcome.request.id: outcome.result for outcome in step.outcomes}


def test_a_grammar_chooses_where_the_model_would_not_and_its_neighbours_do_not_notice():
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", 5)
    joined(decoder, "b", 20, constraint=Script(30, 0, 7, 40, 0))
    joined(decoder, "c", 35)

    steps = [tokens_of(decoder.step()) for _ in range(4)]

    assert [step["b"] for step in steps] == [30, 31, 7, 40]
    assert [step["a"] for step in steps] == [6, 7, 8, 9]
    assert [step["c"] for step in steps] == [36, 37, 38, 39]


def test_a_grammar_is_told_a_token_while_the_next_forward_is_under_way():
    told = []
    layout = CountingLayout()
    forward = layout.forward
    layout.forward = lambda tokens: (told.append("forward"), forward(tokens))[1]
    decoder = Decoder(layout)
    joined(decoder, "a", 5, constraint=Script(30, 40, 9, told=told))

    decoder.step()

    assert told == ["forward", "allowed", "forward", "accept", "allowed"]


def test_while_an_answer_is_free_the_next_token_is_sampled_before_the_grammar_is_told(monkeypatch):
    told = []
    monkeypatch.setattr(step_module, "choose_tokens", lambda *given: (told.append("sampled"), choose_tokens(*given))[1])
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", 5, constraint=Script(0, 0, 0, 30, 40, 9, told=told))

    tokens = [tokens_of(decoder.step())["a"] for _ in range(5)]

    assert tokens == [6, 7, 8, 30, 40]
    first, free = ["allowed", "sampled"], ["sampled", "accept", "allowed"]
    assert told == [
        *(*first, *free, *free),
        *(*free, "sampled"),  # 8 may be anything, what follows may not: it is sampled a second time
        *("accept", "allowed", "sampled") * 2,
    ]


class Spelled(Script):
    """What is free is spelled out as a mask that allows every token: so the grammar always binds."""

    def allowed(self):
        return super().allowed() or b"\xff" * 8


SCRIPTS = st.lists(st.sampled_from([0, 0, 30, 40, 3]), min_size=9, max_size=9)
WILD = SamplingParameters(
    temperature=3.0, seed=4, presence_penalty=0.5, frequency_penalty=4.0, logit_bias=((BROKEN_TOKEN, -100.0),)
)


@settings(max_examples=30, deadline=None)
@given(first=SCRIPTS, second=SCRIPTS, joins_at=st.integers(0, 3), max_tokens=st.integers(1, 8))
def test_what_is_sampled_before_a_grammar_is_known_to_bind_is_never_seen(first, second, joins_at, max_tokens):
    def said(kind):
        decoder, steps = Decoder(CountingLayout()), []
        ending = joined(decoder, "a", 5, max_tokens=max_tokens, sampling=WILD, constraint=kind(*first))
        joined(decoder, "free", 20, sampling=WILD)
        for position in range(8):
            if position == joins_at:
                joined(decoder, "b", 30, sampling=WILD, constraint=kind(*second))
            if position == max_tokens:
                decoder.leave(ending)
            steps.append(tokens_of(decoder.step()))
        return steps

    assert said(Script) == said(Spelled)


def test_a_grammar_is_told_each_token_that_counts_once_and_none_beyond_the_end():
    script = Script(30, 40, 9, 10, 11, 12)
    decoder = Decoder(CountingLayout())
    request = joined(decoder, "a", 5, constraint=script)
    joined(decoder, "b", 20)

    first, second, drained = decoder.step(), decoder.step(), decoder.drain()
    decoder.step()
    decoder.leave(request)
    decoder.step()

    assert [tokens_of(step)["a"] for step in (first, second, drained)] == [30, 40, 9]
    assert script.accepted == [30, 40, 9, 10]


def test_a_grammar_is_not_asked_for_more_tokens_than_the_request_may_have():
    script = Script(30, 40)
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", 5, max_tokens=2, constraint=script)
    joined(decoder, "b", 20)

    steps = [tokens_of(decoder.step()) for _ in range(2)]

    assert [step["a"] for step in steps] == [30, 40]
    assert script.told == ["allowed", "accept", "allowed", "accept"]


def test_who_joins_with_a_grammar_is_bound_from_its_first_token():
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", 5)
    decoder.step()
    joined(decoder, "b", 20, constraint=Script(40, 0, 0))

    assert [tokens_of(decoder.step()) for _ in range(3)] == [{"a": 7}, {"a": 8, "b": 40}, {"a": 9, "b": 41}]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConstraintFailed("too complex"), "The grammar could not be followed: too complex."),
        (RuntimeError("secret"), "The grammar could not be followed: it raised an error."),
    ],
    ids=["typed", "untyped"],
)
@pytest.mark.parametrize("num_before", [0, 1, 2])
def test_a_grammar_that_fails_ends_its_own_request_only(error, message, num_before):
    decoder = Decoder(CountingLayout())
    request = joined(decoder, "a", 5, constraint=Script(*[30] * num_before, error))
    joined(decoder, "b", 20)

    steps = [results_of(decoder.step()) for _ in range(num_before + 1)]
    decoder.leave(request)

    assert [step["a"].token for step in steps[:-1]] == [30] * num_before
    assert isinstance(steps[-1]["a"], ConstraintFailed)
    assert steps[-1]["a"].message == message
    assert tokens_of(decoder.step()) == {"b": 21 + num_before + 1}


def test_a_token_that_the_grammar_does_not_take_ends_its_own_request_only():
    script = Script(0, 30, 0)
    script.accept = lambda token: script.accepted.append(token) if token == 6 else 1 / 0
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", 5, constraint=script)
    joined(decoder, "b", 20)

    decoder.step()
    second = results_of(decoder.step())

    assert isinstance(second["a"], ConstraintFailed)
    assert second["b"] == SampledToken(22)


def test_a_broken_row_is_reported_though_its_grammar_allows_only_finite_logits():
    decoder = Decoder(CountingLayout())
    joined(decoder, "a", BROKEN_TOKEN, constraint=Script(3, 4))

    assert isinstance(results_of(decoder.step())["a"], NonFiniteLogits)


def test_a_resumed_request_goes_on_behind_its_last_token():
    loud = SamplingParameters(seed=5, presence_penalty=1.0)
    request = a_request("a", prompt=(0, 5), max_tokens=4, sampling=loud, constraint=Script(30, 40, 9, 10))
    request.constraint.accepted = [30, 40]
    request.tokens = [30, 40]
    layout = CountingLayout()
    decoder = Decoder(layout)

    decoder.join(request, [], Sampler(loud, request.prompt, generated=request.tokens))
    steps = [tokens_of(decoder.step())["a"] for _ in range(2)]

    assert steps == [9, 10]
    assert layout.fed == [[40], [9]]
