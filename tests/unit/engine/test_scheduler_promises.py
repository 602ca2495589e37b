"""What is counted of the promises: gaps of running streams, and their share of the time around a slice."""

import pytest

from engine.promises import PromiseKeeper, Promises
from engine.scheduler import Decode, Join, Prefill, Scheduler
from tests.unit.engine.conversations import a_request
from tests.unit.engine.scheduling import DOCUMENT, decoding, prompt, started


def beside_a_document(**options):
    """A stream, and a document that was just started."""
    scheduler = Scheduler(max_streams=4, **options)
    stream = a_request("stream", prompt=(9,), max_tokens=1000)
    decoding(scheduler, stream)
    return scheduler, stream, started(scheduler, a_request("document", prompt=prompt(DOCUMENT)))


def test_a_slice_is_four_fifths_of_the_largest_gap():
    assert Promises(max_gap_ms=250).slice_while_decoding_ms == 200


@pytest.mark.parametrize(("share", "owed_ms"), [(0.0, 0), (0.25, 100), (0.5, 300), (0.75, 900)])
def test_what_is_owed_brings_the_streams_to_their_share(share, owed_ms):
    assert Promises(decode_share=share).owed_ms(300) == owed_ms


def test_before_anything_happened_nothing_is_counted():
    status = Scheduler(max_streams=4, promises=Promises(max_gap_ms=300, decode_share=0.25)).promise_status()

    assert (status.max_gap_ms, status.decode_share) == (300, 0.25)
    assert (status.gaps, status.windows, status.largest_gap_ms) == (0, 0, 0)


@pytest.mark.parametrize(("slice_ms", "violations"), [(400.0, 0), (460.0, 1)])
def test_a_gap_is_all_that_streams_waited_and_the_step_that_ends_it(slice_ms, violations):
    scheduler, _, document = beside_a_document()
    scheduler.next_action(0.0)

    scheduler.observe_prefill(document, 64, slice_ms)
    scheduler.observe_pause(20.0)
    scheduler.next_action(0.0)
    scheduler.observe_decode(30.0)

    status = scheduler.promise_status()
    assert (status.largest_gap_ms, status.gap_violations) == (slice_ms + 50, violations)


def test_a_stream_that_ends_with_the_step_had_that_gap_too():
    scheduler, stream, document = beside_a_document()
    scheduler.next_action(0.0)
    scheduler.observe_prefill(document, 64, 600.0)
    scheduler.next_action(0.0)

    scheduler.remove(stream)
    scheduler.observe_decode(30.0)

    assert scheduler.promise_status().gap_violations == 1


def test_who_joined_after_the_slice_had_no_gap():
    scheduler, stream, document = beside_a_document()
    scheduler.next_action(0.0)
    scheduler.observe_prefill(document, 64, 300.0)
    scheduler.remove(stream)
    document.prefilled_len = DOCUMENT - 1
    before = scheduler.promise_status()

    joined = scheduler.next_action(0.0)
    scheduler.observe_pause(600.0)
    scheduler.next_action(0.0)
    scheduler.observe_decode(30.0)

    assert joined == Join(document)
    assert scheduler.promise_status() == before


def test_time_in_which_nobody_decodes_breaks_no_promise():
    scheduler = Scheduler(max_streams=4)
    document = started(scheduler, a_request(prompt=prompt(DOCUMENT)))

    for _ in range(3):
        scheduler.next_action(0.0)
        scheduler.observe_prefill(document, 64, 5000.0)
        scheduler.observe_pause(5000.0)

    status = scheduler.promise_status()
    assert (status.gaps, status.windows, status.gap_violations) == (0, 0, 0)


@pytest.mark.parametrize(("decoded_ms", "violations"), [(300.0, 0), (278.0, 0), (275.0, 1)])
def test_a_window_reaches_from_slice_to_slice_and_must_have_the_share_within_two_hundredths(decoded_ms, violations):
    keeper = PromiseKeeper(Promises())

    keeper.sliced(280.0)
    keeper.decoded(decoded_ms - 10, ends_gap=True)
    keeper.paused(20.0)
    keeper.decoded(10.0, ends_gap=True)
    before = keeper.status()
    keeper.sliced(300.0)

    assert (before.windows, before.share_violations) == (0, 0)
    assert (keeper.status().windows, keeper.status().share_violations) == (1, violations)


@pytest.mark.parametrize(("had_before_ms", "violations"), [(300.0, 1), (320.0, 1), (345.0, 0), (900.0, 0)])
def test_what_streams_had_too_much_counts_for_their_next_window_but_two_steps_at_most(had_before_ms, violations):
    keeper = PromiseKeeper(Promises())
    keeper.sliced(300.0)
    keeper.decoded(had_before_ms - 25, ends_gap=True)
    keeper.decoded(25.0, ends_gap=True)

    keeper.sliced(300.0)
    keeper.decoded(245.0, ends_gap=True)
    keeper.sliced(300.0)

    assert (keeper.status().windows, keeper.status().share_violations) == (2, violations)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("read_ms", [40.0, 15.0, 0.5])
def test_over_many_windows_the_streams_have_their_share_and_no_more(share, read_ms):
    """Steps of 40 ms do not divide what is owed: without the credit every window would be rounded up. The step that
    is in flight when a window ends is only read, which takes less.
    """
    scheduler, _, document = beside_a_document(promises=Promises(decode_share=share))
    decoded_ms = sliced_ms = 0.0
    is_in_flight = False

    while scheduler.promise_status().windows < 50:
        match scheduler.next_action(0.0):
            case Prefill() if not is_in_flight:
                sliced_ms += 310.0
                scheduler.observe_prefill(document, 16, 310.0)
            case Prefill() | Decode() as action:
                is_in_flight = isinstance(action, Decode)
                step_ms = 40.0 if is_in_flight else read_ms
                decoded_ms += step_ms
                scheduler.observe_decode(step_ms)

    sliced_ms -= 310.0  # what is owed for the last slice was not paid yet
    assert abs(decoded_ms / (decoded_ms + sliced_ms) - share) < 0.005
    assert scheduler.promise_status().share_violations == 0


def test_one_long_step_does_not_count_for_many_windows():
    scheduler, _, document = beside_a_document()
    decoded_ms = []

    for step_ms in (40.0, 2000.0):
        scheduler.next_action(0.0)
        scheduler.observe_decode(step_ms)
    for _ in range(3):
        assert isinstance(scheduler.next_action(0.0), Prefill)
        scheduler.observe_prefill(document, 16, 300.0)
        decoded_ms.append(0.0)
        while scheduler.next_action(0.0) == Decode():
            scheduler.observe_decode(20.0)
            decoded_ms[-1] += 20.0

    assert decoded_ms == [220.0, 300.0, 300.0]


def test_streams_that_end_before_they_used_up_their_window_break_no_promise():
    scheduler, stream, document = beside_a_document()
    scheduler.next_action(0.0)
    scheduler.observe_prefill(document, 64, 300.0)
    scheduler.next_action(0.0)
    scheduler.observe_decode(10.0)
    scheduler.remove(stream)

    for _ in range(2):
        assert isinstance(scheduler.next_action(0.0), Prefill)
        scheduler.observe_prefill(document, 64, 300.0)

    status = scheduler.promise_status()
    assert (status.windows, status.share_violations) == (0, 0)


def test_kept_by_the_scheduler_both_promises_are_counted_as_kept():
    scheduler, _, document = beside_a_document()

    while scheduler.promise_status().windows < 10:
        match scheduler.next_action(0.0):
            case Prefill(_, num_tokens):
                scheduler.observe_prefill(document, num_tokens, num_tokens * 1.5)
            case Decode():
                scheduler.observe_decode(25.0)

    status = scheduler.promise_status()
    assert (status.gap_violations, status.share_violations) == (0, 0)
    assert 300 < status.largest_gap_ms <= 425
    assert status.gaps > 100
