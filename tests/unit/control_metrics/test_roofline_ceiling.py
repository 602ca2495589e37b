"""The ceiling of the decode speed, against figures worked out by hand for each kind of model."""

import itertools
import random

import msgspec
import pytest

from control.metrics.roofline import ceiling_tokens_per_second, step_bytes, union_of_experts
from engine.wire import Roofline, SlidingWindow

DENSE = Roofline(bandwidth_bytes_per_s=800e9, shared_bytes=15_000_000_000, kv_bytes_per_token=65_536)
EXPERTS = Roofline(
    bandwidth_bytes_per_s=800e9,
    shared_bytes=4_000_000_000,
    kv_bytes_per_token=24_576,
    state_bytes=75_000_000,
    expert_bytes=600_000_000,
    num_experts=256,
    experts_per_token=8,
)
SLIDING = Roofline(
    bandwidth_bytes_per_s=100e9,
    shared_bytes=7_000_000_000,
    kv_bytes_per_token=20_000,
    windows=(SlidingWindow(tokens=1024, bytes_per_token=100_000),),
)


def test_a_dense_model_reads_its_weights_once_and_every_context():
    # 800 GB/s over 15 GB and 100,000 tokens of 65,536 bytes each.
    assert ceiling_tokens_per_second(DENSE, width=1, context_tokens=0) == pytest.approx(53.33, abs=0.01)
    assert ceiling_tokens_per_second(DENSE, width=1, context_tokens=100_000) == pytest.approx(800e9 / (15e9 + 6.5536e9))
    assert ceiling_tokens_per_second(DENSE, width=4, context_tokens=100_000) == pytest.approx(
        4 * 800e9 / (15e9 + 4 * 6.5536e9)
    )


def test_one_stream_reads_as_many_experts_as_its_token_takes():
    assert union_of_experts(EXPERTS, 1) == pytest.approx(8)
    assert step_bytes(EXPERTS, width=1, context_tokens=1000) == pytest.approx(4e9 + 8 * 600e6 + 75e6 + 1000 * 24_576)


def test_more_streams_share_some_of_the_experts():
    # 256 * (1 - (248 / 256) ** 4)
    assert union_of_experts(EXPERTS, 4) == pytest.approx(30.531, abs=0.001)
    assert union_of_experts(EXPERTS, 10_000) == pytest.approx(256)


def test_the_union_is_what_drawing_experts_at_random_gives():
    chance = random.Random(1)
    counts = []
    for _ in range(3000):
        drawn = [chance.sample(range(256), 8) for _ in range(3)]
        counts.append(len(set(itertools.chain.from_iterable(drawn))))

    assert union_of_experts(EXPERTS, 3) == pytest.approx(sum(counts) / len(counts), rel=0.01)


def test_a_window_bounds_what_is_read_of_it():
    full = 7e9 + 1024 * 100_000

    assert step_bytes(SLIDING, width=1, context_tokens=100) == 7e9 + 100 * 20_000 + 100 * 100_000
    assert step_bytes(SLIDING, width=1, context_tokens=1024) == full + 1024 * 20_000
    assert step_bytes(SLIDING, width=1, context_tokens=200_000) == full + 200_000 * 20_000


def test_quantised_keys_and_values_raise_the_ceiling_of_long_contexts_only():
    quantised = msgspec.structs.replace(DENSE, kv_bytes_per_token=DENSE.kv_bytes_per_token * 9 // 32)

    def gain(context_tokens):
        before, after = (
            ceiling_tokens_per_second(each, width=1, context_tokens=context_tokens) for each in (DENSE, quantised)
        )
        return after / before

    assert gain(0) == 1
    assert gain(200_000) == pytest.approx((15e9 + 13.1072e9) / (15e9 + 13.1072e9 * 9 / 32))


@pytest.mark.parametrize("roofline", [DENSE, EXPERTS, SLIDING])
def test_more_streams_never_lower_the_ceiling_and_never_raise_it_more_than_their_number(roofline):
    for context_tokens in (0, 4096, 100_000):
        ceilings = [
            ceiling_tokens_per_second(roofline, width=width, context_tokens=context_tokens) for width in (1, 2, 3, 4)
        ]
        assert ceilings == sorted(ceilings)
        assert all(ceiling <= ceilings[0] * width for width, ceiling in enumerate(ceilings, start=1))


@pytest.mark.parametrize("roofline", [DENSE, EXPERTS, SLIDING])
def test_a_longer_context_never_raises_the_ceiling(roofline):
    ceilings = [
        ceiling_tokens_per_second(roofline, width=2, context_tokens=tokens) for tokens in (0, 512, 2048, 65_536)
    ]

    assert ceilings == sorted(ceilings, reverse=True)
