"""The right formula and the wrong ones, over histories whose speed is known. The table is in docs/metrics.md.

The report that this project began with gives 119.9 tokens a second as the mean of the requests' own speeds, and 103.7
as tokens over wall clock, for the same requests.
"""

import random
from dataclasses import dataclass
from statistics import fmean

import pytest

from control.metrics.throughput import Throughput
from tests.unit.control_metrics.decoding_engine import DecodingEngine

SPEEDS = {1: 100, 2: 160, 3: 200, 4: 250}
WAKING_S = 0.7


@dataclass(frozen=True)
class Request:
    """As its row tells it."""

    tokens: int
    first_emission: int
    prefill_s: float
    decode_s: float

    @property
    def speed(self) -> float:
        return (self.tokens - self.first_emission) / self.decode_s


def speeds_of(stretches) -> dict[int, float]:
    """The right formula: tokens of all streams over one wall clock, by width."""
    widths = {stretch.width for stretch in stretches}
    return {
        width: sum(s.tokens for s in stretches if s.width == width)
        / sum(s.seconds for s in stretches if s.width == width)
        for width in sorted(widths)
    }


# --- The wrong formulas ---


def mean_of_rates(requests) -> float:
    """A short request counts as much as a long one."""
    return fmean(request.speed for request in requests)


def with_first_emission(requests) -> float:
    """A speculative block that came with the first token, and whose time is in the TTFT, is counted as decoded."""
    return sum(request.tokens for request in requests) / sum(request.decode_s for request in requests)


def over_whole_durations(requests) -> float:
    """The prefill is taken for decoding."""
    return sum(request.tokens for request in requests) / sum(each.prefill_s + each.decode_s for each in requests)


def over_summed_durations(requests) -> float:
    """Two that ran at the same time are counted as if one had run after the other."""
    tokens = sum(request.tokens - request.first_emission for request in requests)
    return tokens / sum(request.decode_s for request in requests)


def per_sampled_second(samples) -> float:
    """Whatever the counter gained between two looks, prefills, joins and pauses or not."""
    return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])


class History:
    """An engine, the requests that it served, and all samples of it as (seconds, tokens)."""

    def __init__(self):
        self.stretches, self.requests, self.samples = [], [], []
        self.throughput = Throughput(self.stretches.append)
        self.engine = DecodingEngine(self.throughput)
        self.sample()

    def sample(self):
        self.engine.sample()
        self.samples.append((self.engine.now_s, sum(self.engine.tokens.values())))

    def decode(self, seconds, speed, *, every_s=1.0):
        """`speed` of all streams together."""
        each = speed * every_s / self.engine.width
        assert each == pytest.approx(round(each))
        for _ in range(round(seconds / every_s)):
            self.engine.decode(every_s, round(each))
            self.sample()

    def serve(self, name, *, prefill_s, seconds, speed, block=1, every_s=5.0):
        """One request alone, from its first token's sample to that of its last."""
        self.begin(name, prefill_s=prefill_s, block=block)
        self.decode(seconds, speed, every_s=every_s)
        self.end(name, prefill_s=prefill_s, decode_s=seconds, first_emission=block)

    def begin(self, name, *, prefill_s, block=1):
        for _ in range(round(prefill_s)):
            self.engine.prefill(1.0)
            self.sample()
        self.engine.join(name)
        self.engine.first_emission(name, block=block)
        self.sample()

    def wait(self, seconds):
        for _ in range(seconds):
            self.engine.wait(1.0)
            self.sample()

    def end(self, name, *, prefill_s, decode_s, first_emission=1):
        tokens = self.engine.streams[name].output_tokens
        self.requests.append(Request(tokens, first_emission, prefill_s, decode_s))
        self.engine.leave(name)
        self.sample()


@pytest.fixture
def report():
    """A short fast request and a long slow one, as the report had 1,537 of."""
    history = History()
    history.serve("short", prefill_s=30.0, seconds=370, speed=139.8)
    history.wait(60)
    history.serve("long", prefill_s=90.0, seconds=3610, speed=100)
    return history


def test_the_reports_requests_decode_at_103_7_tokens_a_second(report):
    assert speeds_of(report.stretches) == {1: pytest.approx(103.7)}


def test_the_mean_of_their_own_speeds_says_119_9(report):
    assert mean_of_rates(report.requests) == pytest.approx(119.9)


def test_prefills_and_pauses_in_between_make_them_look_slow(report):
    assert over_whole_durations(report.requests) == pytest.approx(100.67, abs=0.01)
    # 412,726 decoded tokens and two first ones; 3,980 s, and two prefills, first tokens and endings, and a pause.
    assert per_sampled_second(report.samples) == pytest.approx(99.2, abs=0.1)


def test_blocks_that_come_with_the_first_token_are_not_decoded():
    history = History()
    for number in range(20):
        history.serve(f"r{number}", prefill_s=1.0, seconds=1, speed=100, block=8, every_s=1.0)

    assert speeds_of(history.stretches) == {1: pytest.approx(100)}
    assert with_first_emission(history.requests) == pytest.approx(108)


def test_two_streams_that_overlap_are_divided_by_one_clock():
    history = History()
    history.begin("a", prefill_s=1.0)
    history.decode(60, 104)
    history.begin("b", prefill_s=1.0)
    history.decode(60, 140)
    history.end("b", prefill_s=1.0, decode_s=60.0)
    history.decode(60, 104)
    # 1.051 s for the prefill and first token of b, and its end, in which a stood still but for one token.
    history.end("a", prefill_s=1.0, decode_s=181.052)

    assert speeds_of(history.stretches) == {1: pytest.approx(104), 2: pytest.approx(140)}
    assert mean_of_rates(history.requests) == pytest.approx(81.1, abs=0.1)
    assert over_summed_durations(history.requests) == pytest.approx(86.6, abs=0.1)


def test_a_prefill_in_the_middle_is_not_the_streams_slowness():
    history = History()
    history.begin("a", prefill_s=1.0)
    history.decode(20, 100)
    for _ in range(10):  # the prompt of b is read in slices; a has half of the time
        history.engine.prefill(0.5)
        history.engine.decode(0.5, 50)
        history.sample()
    history.engine.join("b")
    history.engine.first_emission("b")
    history.sample()
    history.decode(20, 160)
    history.end("b", prefill_s=10.0, decode_s=20.0)
    history.end("a", prefill_s=1.0, decode_s=50.052)

    assert speeds_of(history.stretches) == {1: pytest.approx(100), 2: pytest.approx(160)}
    assert history.throughput.discarded["prefill"] == 10
    assert over_summed_durations(history.requests) == pytest.approx(81.4, abs=0.1)
    assert per_sampled_second(history.samples) == pytest.approx(111.0, abs=1.0)


# --- Any history: at a constant speed for each width, that is what is found ---

ACTIONS = {
    "decode": (24, 1, 200),
    "join": (6, 1, 12),
    "leave": (3, 0, 3),
    "suspend": (1, 0, 3),
    "resume": (2, 0, 3),
    "prefill": (2, 1, 10),
    "restore": (1, 1, 10),
    "wait": (2, 1, 200),
    "sleep": (1, 6, 10_000),
    "restart": (1, 0, 0),
    "sample": (4, 0, 0),
}
NUM_HISTORIES = 60
NUM_ACTIONS = 120


def random_actions(seed: int):
    """Each action with its amount; the first number above says how often it comes beside the others."""
    chance = random.Random(seed)
    weights = [weight for weight, _, _ in ACTIONS.values()]
    for action in chance.choices(list(ACTIONS), weights, k=NUM_ACTIONS):
        _, least, most = ACTIONS[action]
        yield action, chance.randint(least, most)


class AnyHistory:
    """Steps take width / speed seconds and give each stream a token. Sampled whenever it is told, between two steps."""

    def __init__(self):
        self.stretches = []
        self.throughput = Throughput(self.stretches.append)
        self.engine = DecodingEngine(self.throughput)
        self.fresh = set()
        self.number = 0
        self.was_idle = True
        self.engine.sample()

    def do(self, action, amount):
        engine = self.engine
        running = [name for name, stream in engine.streams.items() if not stream.is_suspended]
        paused = [name for name, stream in engine.streams.items() if stream.is_suspended]
        match action:
            case "decode" if running:
                for _ in range(amount):
                    self.step()
                # As often as control looks, more or less.
                engine.sample()
            case "join" if engine.width < 4:
                self.number += 1
                name = f"r{self.number}"
                engine.join(name, prompt_tokens=100 * amount)
                self.fresh.add((name, amount))
            case "leave" if amount < len(running):
                was = engine.width
                engine.leave(running[amount])
                if engine.width and amount % 2 and not self.fresh:
                    # What was launched before it left is counted at the width that it was launched at.
                    engine.sample()
                    engine.decode(was / SPEEDS[was], 1, width=was)
            case "suspend" if amount < len(running):
                engine.suspend(running[amount])
            case "resume" if amount < len(paused) and engine.width < 4:
                engine.resume(paused[amount])
            case "prefill":
                engine.prefill(amount / 10)
            case "restore":
                # A start restores a prompt, is seen, and is prefilled.
                engine.wait(amount / 10)
                engine.prefilling = 1
                engine.sample()
                engine.prefill(0.1)
                engine.prefilling = 0
            case "wait" if not running:
                engine.wait(amount / 10)
            case "sleep":
                engine.sleep(amount)
                self.was_idle = True
            case "restart":
                engine.restart()
                self.fresh.clear()
            case "sample":
                engine.sample()
        self.was_idle = self.was_idle or not self.engine.width

    def step(self):
        engine = self.engine
        if self.was_idle:
            engine.wait(WAKING_S)
            self.was_idle = False
        engine.decode(engine.width / SPEEDS[engine.width], 1)
        for name, block in self.fresh.copy():
            if name in engine.streams and not engine.streams[name].is_suspended:
                engine.streams[name].output_tokens += block - 1
                engine.tokens[f"b{engine.width}"] += block - 1
                self.fresh.discard((name, block))


def history_of(actions) -> AnyHistory:
    found = AnyHistory()
    for action, amount in actions:
        found.do(action, amount)
    found.throughput.close()
    return found


@pytest.mark.parametrize("seed", range(NUM_HISTORIES))
def test_whatever_happens_the_speed_of_each_width_is_found(seed):
    found = history_of(random_actions(seed))

    for stretch in found.stretches:
        assert stretch.tokens / stretch.seconds == pytest.approx(SPEEDS[stretch.width])
        assert stretch.peak_tokens_per_second in (None, pytest.approx(SPEEDS[stretch.width]))


def test_such_histories_are_worth_looking_at():
    found = [history_of(random_actions(seed)) for seed in range(NUM_HISTORIES)]

    stretches = [stretch for history in found for stretch in history.stretches]
    reasons = {reason for history in found for reason in history.throughput.discarded}
    assert {stretch.width for stretch in stretches} == set(SPEEDS)
    assert len(stretches) > 5 * NUM_HISTORIES
    assert reasons == {"restart", "gap", "idle", "prefill", "membership"}
