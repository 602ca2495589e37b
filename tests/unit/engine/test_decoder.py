"""The decoding batch: a step is launched ahead, and nothing that it computes too much is ever seen."""

import mlx.core as mx

from engine.errors import NonFiniteLogits
from engine.request import SampledToken, SamplingParameters
from engine.sampling import Sampler
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


def joined(decoder: Decoder, request_id: str, last_token: int, *, max_tokens: int = 100, sampling=GREEDY):
    request = a_request(request_id, prompt=(0, last_token), max_tokens=max_tokens, sampling=sampling)
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
