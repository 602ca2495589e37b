"""Who shares a prefix that another is computing waits for it, and nobody waits for nothing."""

import pytest

from engine.scheduler import Join, Prefill, Scheduler, Start
from engine.siblings import Siblings
from tests.unit.engine.conversations import a_request
from tests.unit.engine.scheduling import (
    DOCUMENT,
    a_document,
    a_short,
    finish_prefill,
    next_but_decode,
    prompt,
    slices,
    started,
)


class Cache:
    """Tells of each request what the test says."""

    def __init__(self):
        self.lengths = {}

    def restorable(self, request):
        return self.lengths.get(request.id, 0)


def siblings(*tails: int, shared: int = 2000):
    return [a_request(f"sibling {tail}", prompt=(*prompt(shared), *prompt(100, tail))) for tail in tails]


def test_who_shares_a_prefix_that_is_being_computed_waits_until_it_is_there():
    cache = Cache()
    scheduler = Scheduler(max_streams=4, restorable=cache.restorable, needs_snapshots=True)
    first, second = siblings(2, 3)
    started(scheduler, first)
    scheduler.enter(second)

    ends = []
    while first.prefilled_len < 1984:
        action = scheduler.next_action(0.0)
        assert isinstance(action, Prefill) and action.request is first
        assert scheduler.waiting_prefix == 1
        scheduler.observe_prefill(first, action.num_tokens, action.num_tokens * 1.0)
        ends.append(first.prefilled_len)
    cache.lengths[second.id] = 1984
    scheduler.prefix_changed()
    finish_prefill(scheduler, first)

    assert first.boundaries == {1984: "sibling"}
    assert ends[-1] == 1984
    assert scheduler.next_action(0.0) == Start(second)
    assert (scheduler.waiting_prefix, scheduler.prefix_waits) == (0, 1)


def test_without_a_cache_nobody_waits_for_what_could_not_be_restored():
    scheduler = Scheduler(max_streams=4)
    scheduler.set_model(needs_snapshots=True, is_padded=False, is_cache_on=False)
    first = started(scheduler, a_request("1", prompt=(*prompt(2000), *prompt(DOCUMENT, 2))))
    _, second = siblings(2, 3)
    scheduler.enter(second)

    assert scheduler.next_action(0.0) == Start(second)
    assert (scheduler.prefix_waits, first.boundaries) == (0, {})


def test_without_fixed_state_no_boundary_is_needed():
    scheduler = Scheduler(max_streams=4)
    first, second = siblings(2, 3)
    started(scheduler, first)
    scheduler.enter(second)

    assert isinstance(scheduler.next_action(0.0), Prefill)
    assert (scheduler.waiting_prefix, first.boundaries) == (1, {})


def test_a_boundary_that_is_armed_keeps_its_kind():
    scheduler = Scheduler(max_streams=4, needs_snapshots=True)
    first, second = siblings(2, 3)
    started(scheduler, first).boundaries = {1984: "shared_end"}
    scheduler.enter(second)

    scheduler.next_action(0.0)

    assert first.boundaries == {1984: "shared_end"}


@pytest.mark.parametrize(
    ("first_len", "second_len", "shared_len"), [(640, 640, 608), (640, 2000, 608), (2000, 641, 640)]
)
def test_the_last_token_of_either_prompt_is_not_waited_for(first_len, second_len, shared_len):
    scheduler = Scheduler(max_streams=4, needs_snapshots=True)
    first = started(scheduler, a_request("1", prompt=prompt(first_len)))
    scheduler.enter(a_request("2", prompt=prompt(second_len)))

    scheduler.next_action(0.0)

    assert first.boundaries == {shared_len: "sibling"}


@pytest.mark.parametrize(
    ("reached", "restorable_len", "waits"),
    [(0, 0, True), (1952, 0, True), (1984, 0, False), (0, 1920, True), (0, 1921, False), (0, 1984, False)],
)
def test_nobody_waits_for_what_is_past_or_too_little(reached, restorable_len, waits):
    scheduler = Scheduler(max_streams=4, restorable=lambda _: restorable_len, needs_snapshots=True)
    first = a_request("1", prompt=(*prompt(2000), *prompt(DOCUMENT, 2)))
    _, second = siblings(2, 3)
    started(scheduler, first).prefilled_len = reached
    scheduler.enter(second)

    action = scheduler.next_action(0.0)

    assert (action == Start(second)) is not waits
    assert scheduler.waiting_prefix == waits


def test_the_waiting_go_on_when_who_computes_leaves():
    scheduler = Scheduler(max_streams=4)
    first, second, third = siblings(2, 3, 4)
    started(scheduler, first)
    scheduler.enter(second)
    scheduler.enter(third)
    slices(scheduler, 1)
    waiting = scheduler.waiting_prefix

    scheduler.remove(first)

    assert (waiting, scheduler.waiting_prefix) == (2, 0)
    assert scheduler.next_action(0.0) == Start(second)


def test_others_pass_the_waiting_and_it_is_not_counted_as_overtaking():
    scheduler = Scheduler(max_streams=4)
    document = started(scheduler, a_document(1))
    waiting, stranger = a_document(1), a_short(2)
    scheduler.enter(waiting)
    scheduler.enter(stranger)

    action = scheduler.next_action(0.0)

    assert action == Start(stranger)
    assert (document.num_overtaken, waiting.num_overtaken) == (1, 0)


def test_batch_that_waits_for_a_prefix_is_not_overtaken_by_interactive_either():
    scheduler = Scheduler(max_streams=4)
    producer, waiting = (a_document(1, request_class="batch") for _ in range(2))
    started(scheduler, producer)
    scheduler.enter(waiting)

    started(scheduler, a_short(2))

    assert (producer.num_overtaken, waiting.num_overtaken) == (1, 0)


def test_siblings_that_find_no_slot_still_have_their_boundary_armed():
    scheduler = Scheduler(max_streams=1, needs_snapshots=True)
    first, second = siblings(2, 3)
    started(scheduler, first)
    scheduler.enter(second)

    scheduler.next_action(0.0)

    assert first.boundaries == {1984: "sibling"}
    assert scheduler.waiting_prefix == 0


def test_a_batch_document_that_an_interactive_request_waits_for_is_not_taken_over():
    scheduler = Scheduler(max_streams=4)
    batch = started(scheduler, a_document(1, request_class="batch"))
    scheduler.enter(a_document(1))
    scheduler.enter(a_document(2))

    assert slices(scheduler, 3) == [batch] * 3


def test_four_siblings_are_one_prompts_work():
    cache = Cache()
    scheduler = Scheduler(max_streams=4, restorable=cache.restorable, needs_snapshots=True)
    everyone = siblings(2, 3, 4, 5, shared=8000)
    for request in everyone:
        scheduler.enter(request)

    computed = 0
    while not all(request.phase == "decode" for request in everyone):
        match next_but_decode(scheduler):
            case Start(request):
                request.prefilled_len = cache.restorable(request)
            case Prefill(request, num_tokens):
                computed += num_tokens
                scheduler.observe_prefill(request, num_tokens, num_tokens * 1.0)
                if request.boundaries.get(request.prefilled_len) == "sibling":
                    cache.lengths = {each.id: request.prefilled_len for each in everyone}
                    scheduler.prefix_changed()
            case Join():
                pass
            case other:
                raise AssertionError(other)

    assert computed <= 8100 + 3 * 132


def test_who_was_suspended_and_goes_on_may_share_more_than_before():
    kept = Siblings(restorable=lambda _: 0, needs_snapshots=True)
    producer, waiting = a_request("1", prompt=prompt(640)), a_request("2", prompt=prompt(2000))
    kept.sort_out([waiting], [producer], is_slot_free=True)
    kept.stopped_prefilling(producer)
    left = kept.num_waiting
    producer.tokens.extend(prompt(100))
    producer.blocks.extend(prompt(100))

    kept.sort_out([waiting], [producer], is_slot_free=True)

    assert left == 0
    assert list(producer.boundaries) == [608, 736]
