"""The scheduler under random arrivals, lengths, classes, prefixes, cancellations and pools, in simulated time."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.admission import MemoryPool
from engine.promises import Promises
from tests.unit.engine.toy_device import ToyDevice, Visit

PLENTY = MemoryPool(1 << 40, kv_bytes_per_token=10, state_bytes_per_sequence=50)

lengths = st.one_of(st.integers(1, 100), st.integers(1, 6000), st.integers(1, 100_000))


long_or_short = st.one_of(st.integers(1, 40), st.integers(1, 1500))


def visits(*, most: int = 12, own=lengths, longest_shared: int = 9000, max_tokens=long_or_short, last_at: float = 30):
    """Requests of three families, at once or one after the other."""
    visit = st.builds(
        Visit,
        shared=st.sampled_from([0, 0, 40, longest_shared // 3, longest_shared]),
        own=own,
        family=st.integers(1, 3),
        tail=st.integers(4, 12),
        max_tokens=max_tokens,
        request_class=st.sampled_from(["interactive", "interactive", "batch"]),
        arrived_at=st.one_of(st.just(0.0), st.floats(0, last_at)),
        leaves_after_s=st.one_of(st.none(), st.none(), st.floats(0, 60)),
    )
    return st.lists(visit, min_size=1, max_size=most)


crowd = visits(
    own=st.one_of(st.integers(1, 300), st.integers(1, 1000)),
    longest_shared=600,
    max_tokens=st.integers(200, 1500),
    last_at=5,
)
devices = st.fixed_dictionaries(
    {
        "ms_per_token": st.floats(0.02, 0.4),
        "equal_cost_tokens": st.integers(5000, 40_000),
        "step_ms": st.floats(2, 40),
        "pause_ms": st.floats(0, 12),
        "seed": st.integers(0, 1 << 16),
        "needs_snapshots": st.booleans(),
        "most_cached_blocks": st.sampled_from([0, 100, 3000, 100_000]),
        "max_streams": st.integers(1, 5),
    }
)
slow = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@slow
@given(visits=visits(), options=devices, noise=st.floats(0, 0.1), share=st.sampled_from([0.0, 0.25, 0.5, 0.75]))
def test_both_promises_are_kept_while_speed_varies_by_a_tenth(visits, options, noise, share):
    device = ToyDevice(visits, PLENTY, noise=noise, promises=Promises(decode_share=share), **options)

    device.run()

    status = device.scheduler.promise_status()
    assert (status.gap_violations, status.share_violations) == (0, 0)
    assert device.largest_gap_ms <= status.max_gap_ms
    assert abs(device.largest_gap_ms - status.largest_gap_ms) < 0.01
    assert set(device.ended) == set(device.requests)
    assert not device.refused


@slow
@given(visits=visits(), options=devices, noise=st.floats(0.1, 0.3))
def test_a_gap_grows_by_no_more_than_speed_varies_and_the_share_is_kept_all_the_same(visits, options, noise):
    device = ToyDevice(visits, PLENTY, noise=noise, **options)

    device.run()

    status = device.scheduler.promise_status()
    slice_ms = 0.9 * device.promises.slice_while_decoding_ms * (1 + noise) / (1 - noise)
    assert device.largest_gap_ms <= slice_ms + (device.step_ms + 3 * device.pause_ms) * (1 + noise)
    assert status.share_violations == 0


@slow
@given(
    visits=crowd,
    options=devices,
    pool_bytes=st.sampled_from([10_000, 20_000, 30_000, 40_000]),
    state_bytes=st.sampled_from([0, 300]),
    changes=st.lists(st.tuples(st.floats(0, 60), st.sampled_from([0.3, 0.6, 0.9, 1.0])), max_size=4),
)
def test_however_short_memory_is_every_request_ends_once(visits, options, pool_bytes, state_bytes, changes):
    pool = MemoryPool(pool_bytes, kv_bytes_per_token=10, state_bytes_per_sequence=state_bytes)
    device = ToyDevice(visits, pool, pool_changes=sorted(changes), **options)

    device.run()

    assert len(device.ended) == len(visits)
    assert set(device.ended) == set(device.requests)
    assert device.scheduler.promise_status().share_violations == 0
    for request in device.requests:
        is_complete = len(request.tokens) == request.max_tokens
        assert is_complete or request in device.refused or request in device.leaves_at


@slow
@given(visits=visits(most=40, own=st.one_of(st.integers(1, 300), st.integers(4000, 20_000))), options=devices)
def test_in_a_long_line_nobody_is_passed_more_often_than_is_stated(visits, options):
    device = ToyDevice(visits, PLENTY, **options)

    device.run()

    assert set(device.ended) == set(device.requests)
