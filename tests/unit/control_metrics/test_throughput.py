"""Throughput of histories whose speed is known: which windows count, how they are put together, what they say."""

import msgspec
import pytest

from control.metrics.throughput import LONGEST_STRETCH_S, Throughput
from engine.wire import Roofline
from tests.unit.control_metrics.decoding_engine import EPOCH_S, DecodingEngine, model


@pytest.fixture
def kept():
    return []


@pytest.fixture
def throughput(kept):
    return Throughput(kept.append)


@pytest.fixture
def engine(throughput):
    engine = DecodingEngine(throughput)
    engine.sample()
    return engine


def begin(engine, name="a", *, block=1, **details):
    """A request comes, its prompt is read, and its first emission is out when the engine is sampled."""
    engine.prefill(0.5)
    engine.join(name, **details)
    engine.first_emission(name, block=block)
    engine.sample()


def decode(engine, seconds, each_per_s, *, every_s=1.0):
    for _ in range(round(seconds / every_s)):
        engine.decode(every_s, round(each_per_s * every_s))
        engine.sample()


def end(engine, name="a"):
    engine.leave(name)
    engine.sample()


def test_successive_windows_with_the_same_streams_are_one_stretch(engine, kept):
    begin(engine, prompt_tokens=5000)
    decode(engine, 10, 50)
    end(engine)

    (stretch,) = kept
    assert (stretch.width, stretch.tokens, stretch.seconds) == (1, 500, pytest.approx(10))
    assert stretch.model == "Qwen3.8-27B-4bit"
    assert stretch.started_at_s == pytest.approx(EPOCH_S + 1000.551)
    # 5,001 tokens at its beginning and 5,501 at its end.
    assert stretch.context_tokens == 5251
    assert stretch.peak_tokens_per_second == pytest.approx(50)
    assert stretch.ceiling_tokens_per_second is None


def test_tokens_of_all_streams_are_divided_by_one_clock(engine, kept):
    begin(engine, "a")
    begin(engine, "b", prompt_tokens=3000)
    decode(engine, 4, 40)
    end(engine, "a")

    (stretch,) = kept
    assert (stretch.width, stretch.tokens, stretch.seconds) == (2, 320, pytest.approx(4))


def test_the_mean_context_is_of_all_streams_and_weighted_by_time(engine, kept):
    begin(engine, "a", prompt_tokens=999)
    begin(engine, "b", prompt_tokens=2999)
    engine.decode(3.0, 0)
    engine.sample()
    engine.decode(1.0, 800)
    engine.sample()
    end(engine)

    # a: 999 + 2 tokens, b: 2999 + 1: 2000.5 for three seconds, then up to 2800.5.
    assert kept[0].context_tokens == round((3 * 2000.5 + 1 * 2400.5) / 4)


def test_a_prefill_discards_the_window_that_it_is_in(engine, throughput, kept):
    begin(engine, "a")
    decode(engine, 3, 100)
    engine.prefill(0.6)
    engine.decode(0.4, 40)
    engine.sample()
    decode(engine, 2, 100)
    end(engine)

    assert [(stretch.tokens, stretch.seconds) for stretch in kept] == [
        (300, pytest.approx(3)),
        (200, pytest.approx(2)),
    ]
    assert throughput.discarded["prefill"] == 1


def test_a_prompt_that_was_restored_but_not_yet_prefilled_discards_it_too(engine, throughput, kept):
    begin(engine, "a")
    decode(engine, 2, 100)
    # The restoring took half of the window; no prefill has been counted yet.
    engine.decode(0.5, 50)
    engine.wait(0.5)
    engine.prefilling = 1
    engine.sample()
    engine.prefilling = 0
    engine.leave("a")
    engine.sample()

    assert [(stretch.tokens, stretch.seconds) for stretch in kept] == [(200, pytest.approx(2))]
    assert throughput.discarded["prefill"] == 2


@pytest.mark.parametrize("has_left", [False, True])
def test_somebody_who_joins_or_leaves_discards_the_window(engine, throughput, kept, has_left):
    begin(engine, "a")
    begin(engine, "b")
    decode(engine, 2, 50)
    engine.decode(0.5, 25)
    if has_left:
        engine.leave("a")
    else:
        engine.join("c")
    engine.decode(0.5, 20)
    engine.sample()

    assert [(stretch.width, stretch.tokens) for stretch in kept] == [(2, 200)]
    assert throughput.discarded["membership"] == 1


def test_one_who_leaves_while_another_joins_is_no_same_company(engine, throughput, kept):
    begin(engine, "a")
    engine.decode(0.5, 25)
    engine.leave("a")
    engine.join("b")
    engine.first_emission("b")
    # As if the two had cancelled each other out.
    engine.epoch -= 2
    engine.sample()

    assert kept == []
    assert throughput.discarded["membership"] == 1


def test_a_step_that_was_launched_at_another_width_discards_the_window(engine, throughput, kept):
    begin(engine, "a")
    begin(engine, "b")
    end(engine, "b")
    engine.decode(0.02, 1, width=2)
    engine.decode(0.98, 98)
    engine.sample()
    end(engine, "a")

    assert kept == []
    assert throughput.discarded["membership"] == 3


@pytest.mark.parametrize("block", [1, 8])
def test_the_first_emission_belongs_to_the_ttft_however_many_tokens_it_has(engine, kept, block):
    begin(engine, block=block)
    decode(engine, 5, 100)
    end(engine)

    assert [(stretch.tokens, stretch.seconds) for stretch in kept] == [(500, pytest.approx(5))]


@pytest.mark.parametrize("block", [1, 8])
def test_a_first_emission_after_a_sample_between_joining_and_decoding_belongs_to_it_too(
    engine, throughput, kept, block
):
    begin(engine, "a")
    decode(engine, 1, 50)
    engine.join("b")
    engine.sample()
    # Same epoch, same streams, no prefill: and yet the first tokens of b are in it.
    engine.first_emission("b", block=block)
    engine.decode(0.95, 40)
    engine.sample()
    decode(engine, 2, 40)
    end(engine)

    assert [(stretch.width, stretch.tokens) for stretch in kept] == [(1, 50), (2, 160)]
    assert throughput.discarded["membership"] == 3


def test_the_first_window_after_a_pause_does_not_count(engine, throughput, kept):
    # The prompt is one token, or all of it is in the cache: nothing is prefilled.
    engine.wait(0.7)
    engine.join("a")
    engine.first_emission("a", seconds=0.3)
    engine.sample()
    decode(engine, 2, 100)
    end(engine)

    assert [(stretch.tokens, stretch.seconds) for stretch in kept] == [(200, pytest.approx(2))]
    assert throughput.discarded == {"idle": 1, "membership": 1}


def test_an_engine_that_does_nothing_discards_nothing(engine, throughput, kept):
    for _ in range(5):
        engine.wait(1.0)
        engine.sample()

    assert (kept, throughput.discarded) == ([], {})


def test_a_slow_model_is_not_made_faster_by_windows_without_a_token(engine, kept):
    begin(engine)
    for second in range(9):
        engine.decode(1.0, 1 if second % 3 == 2 else 0)
        engine.sample()
    end(engine)

    assert [(stretch.tokens, stretch.seconds) for stretch in kept] == [(3, pytest.approx(9))]


def test_no_window_lies_across_a_sleep(engine, throughput, kept):
    begin(engine)
    decode(engine, 2, 100)
    engine.sleep(3600)
    engine.decode(1.0, 100)
    engine.sample()
    # The device wakes up in this one.
    engine.decode(1.0, 20)
    engine.sample()
    decode(engine, 2, 100)
    end(engine)

    assert [(stretch.tokens, stretch.seconds) for stretch in kept] == [(200, pytest.approx(2)), (200, pytest.approx(2))]
    assert (throughput.discarded["gap"], throughput.discarded["idle"]) == (1, 2)


def test_a_sleep_that_only_controls_clocks_saw_is_one_too(throughput, kept):
    engine = DecodingEngine(throughput)
    begin(engine)
    for wall_s in (0.0, 1.0, 1000.0):
        engine.decode(1.0, 100)
        throughput.observe(engine.status(), wall_s=wall_s, monotonic_s=engine.now_s)

    assert throughput.discarded["gap"] >= 1


def test_a_long_silence_is_no_window(engine, throughput, kept):
    begin(engine)
    decode(engine, 2, 100)
    engine.decode(60.0, 10)
    engine.sample()
    end(engine)

    assert [stretch.tokens for stretch in kept] == [200]
    assert throughput.discarded["gap"] == 1


def test_no_window_lies_across_a_restart(engine, throughput, kept):
    begin(engine)
    decode(engine, 2, 100)
    engine.restart()
    engine.join("a")
    engine.first_emission("a")
    engine.decode(1.0, 500)
    engine.sample()
    decode(engine, 1, 100)
    end(engine)

    assert [stretch.tokens for stretch in kept] == [200]
    assert throughput.discarded["restart"] == 1


def test_no_window_lies_across_a_change_of_the_model(engine, throughput, kept):
    begin(engine)
    decode(engine, 2, 100)
    engine.model = model("other")
    decode(engine, 4, 20)
    end(engine)

    assert [(stretch.model, stretch.tokens) for stretch in kept] == [("Qwen3.8-27B-4bit", 200), ("other", 40)]
    assert throughput.discarded["restart"] == 1


def test_counters_that_went_back_are_those_of_another_engine(engine, throughput, kept):
    begin(engine)
    decode(engine, 2, 100)
    engine.tokens["b1"] -= 150
    decode(engine, 1, 100)

    assert throughput.discarded["restart"] == 1


def test_the_same_status_twice_is_one(engine, kept):
    begin(engine)
    for _ in range(4):
        engine.decode(1.0, 100)
        engine.sample()
        engine.sample()
    end(engine)

    assert [(stretch.tokens, stretch.seconds) for stretch in kept] == [(400, pytest.approx(4))]


def test_a_stream_of_hours_is_cut_into_minutes(engine, kept):
    begin(engine)
    decode(engine, 150, 30)
    end(engine)

    assert [stretch.seconds for stretch in kept] == [
        pytest.approx(LONGEST_STRETCH_S),
        pytest.approx(LONGEST_STRETCH_S),
        pytest.approx(30),
    ]
    assert sum(stretch.tokens for stretch in kept) == 4500


def test_what_is_under_way_when_control_ends_is_kept(engine, throughput, kept):
    begin(engine)
    decode(engine, 3, 100)

    throughput.close()

    assert [stretch.tokens for stretch in kept] == [300]


def test_one_who_gave_its_memory_away_is_not_among_the_streams(engine, throughput, kept):
    begin(engine, "a")
    begin(engine, "b")
    decode(engine, 2, 40)
    engine.suspend("b")
    engine.sample()
    decode(engine, 2, 70)
    engine.resume("b")
    engine.sample()
    decode(engine, 2, 40)
    end(engine)

    assert [(stretch.width, stretch.tokens) for stretch in kept] == [(2, 160), (1, 140), (2, 160)]


def test_the_peak_is_the_fastest_five_seconds_in_a_row(engine, kept):
    begin(engine)
    for tokens in (90, 90, 130, 140, 130, 140, 130, 90, 200, 20):
        engine.decode(1.0, tokens)
        engine.sample()
    end(engine)

    (stretch,) = kept
    assert stretch.peak_tokens_per_second == pytest.approx((140 + 130 + 90 + 200 + 130) / 5)
    assert stretch.tokens / stretch.seconds == pytest.approx(116)


def test_less_than_five_seconds_has_no_peak(engine, kept):
    begin(engine)
    decode(engine, 4, 100)
    end(engine)

    assert kept[0].peak_tokens_per_second is None


def test_a_stretch_has_the_ceiling_of_its_width_and_context(engine, kept):
    engine.roofline = Roofline(bandwidth_bytes_per_s=1e9, shared_bytes=8_000_000, kv_bytes_per_token=1000)
    begin(engine, "a", prompt_tokens=999)
    begin(engine, "b", prompt_tokens=1000)
    engine.decode(5.0, 0)
    engine.sample()
    end(engine)

    # 999 + 2 and 1,000 + 1 tokens: a step reads 8 MB of weights and 2 * 1.001 MB of contexts.
    assert kept[0].ceiling_tokens_per_second == pytest.approx(2 * 1e9 / (8e6 + 2 * 1001 * 1000))


def test_a_status_of_an_older_engine_has_no_roofline():
    found = msgspec.json.decode(b'{"bandwidth_bytes_per_s":1.0,"shared_bytes":2,"kv_bytes_per_token":3}', type=Roofline)

    assert (found.windows, found.num_experts) == ((), 0)
