"""Who goes before whom: documents and shorter prompts, interactive and batch."""

import pytest

from engine.line import BATCH_OVERTAKEN_LIMIT, BATCH_PATIENCE_S
from engine.precedence import DOCUMENT_OVERTAKEN_LIMIT, DOCUMENT_TOKENS
from engine.scheduler import Prefill, Scheduler, Start
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

OVERDUE = BATCH_PATIENCE_S


# --- documents --------------------------------------------------------------------------------------------------------


def test_a_second_document_is_not_even_started():
    scheduler = Scheduler(max_streams=4)
    first, second = started(scheduler, a_document(1)), a_document(2)
    scheduler.enter(second)

    assert set(slices(scheduler, 5)) == {first}
    assert (second.phase, second.room_len) == ("queued", 0)


def test_the_end_of_a_document_is_no_document_and_comes_before_the_next():
    scheduler = Scheduler(max_streams=4)
    first, second = started(scheduler, a_document(1)), a_document(2)
    scheduler.enter(second)

    first.prefilled_len = DOCUMENT - 1 - DOCUMENT_TOKENS
    not_before = scheduler.next_action(0.0)
    finish_prefill(scheduler, first)

    assert isinstance(not_before, Prefill) and not_before.request is first
    assert scheduler.next_action(0.0) == Start(second)


@pytest.mark.parametrize(("restorable_len", "is_document"), [(0, True), (DOCUMENT - 1 - DOCUMENT_TOKENS, False)])
def test_what_can_be_restored_does_not_make_a_document(restorable_len, is_document):
    scheduler = Scheduler(max_streams=4, restorable=lambda request: restorable_len if request.id == "warm" else 0)
    first = started(scheduler, a_document(1))
    warm = a_request("warm", prompt=prompt(DOCUMENT, 2))
    scheduler.enter(warm)

    action = scheduler.next_action(0.0)

    assert (action == Start(warm)) is not is_document
    assert first.num_overtaken == (0 if is_document else 1)


def test_shorter_ones_overtake_a_document_three_times():
    scheduler = Scheduler(max_streams=4)
    document = started(scheduler, a_document(1))
    shorts = [a_short(i) for i in range(2, 7)]
    for short in shorts:
        scheduler.enter(short)

    for short in shorts[:DOCUMENT_OVERTAKEN_LIMIT]:
        assert next_but_decode(scheduler) == Start(short)
        finish_prefill(scheduler, short)

    assert (document.num_overtaken, scheduler.overtakes) == (3, 3)
    finish_prefill(scheduler, document)
    assert next_but_decode(scheduler) == Start(shorts[3])


def test_asking_twice_overtakes_once():
    scheduler = Scheduler(max_streams=4)
    document = started(scheduler, a_document(1))
    short = started(scheduler, a_short(2))

    for _ in range(5):
        assert scheduler.next_action(0.0).request is short

    assert document.num_overtaken == 1


def test_a_document_that_waits_for_another_is_overtaken_too_and_three_times_at_most():
    scheduler = Scheduler(max_streams=4)
    document, waiting = started(scheduler, a_document(1)), a_document(2)
    scheduler.enter(waiting)
    for name in (3, 4):
        finish_prefill(scheduler, started(scheduler, a_short(name)))
    first_two = (document.num_overtaken, waiting.num_overtaken)
    finish_prefill(scheduler, document)
    assert scheduler.next_action(0.0) == Start(waiting)
    finish_prefill(scheduler, started(scheduler, a_short(5)))
    scheduler.enter(a_short(6))

    assert first_two == (2, 2)
    assert slices(scheduler, 3) == [waiting] * 3
    assert waiting.num_overtaken == 3


def test_an_earlier_short_one_that_could_not_start_overtakes_nobody():
    scheduler = Scheduler(max_streams=4)
    producer = started(scheduler, a_short(1))
    sibling, document = a_short(1), a_document(2)
    scheduler.enter(sibling)
    scheduler.enter(document)
    document.num_overtaken = 3
    finish_prefill(scheduler, producer)

    assert scheduler.next_action(0.0) == Start(sibling)
    assert document.num_overtaken == 3


# --- classes ----------------------------------------------------------------------------------------------------------


def test_interactive_goes_before_batch_and_in_order_within_a_class():
    scheduler = Scheduler(max_streams=4)
    line = [
        a_request(name, prompt=prompt(1, i), request_class=kind)
        for i, (name, kind) in enumerate(
            [("b1", "batch"), ("i1", "interactive"), ("b2", "batch"), ("i2", "interactive")]
        )
    ]
    for request in line:
        scheduler.enter(request)

    order = []
    while len(order) < 4:
        if isinstance(action := next_but_decode(scheduler), Start):
            order.append(action.request.id)

    assert order == ["i1", "i2", "b1", "b2"]


def test_an_interactive_document_takes_over_from_a_batch_one_which_goes_on_afterwards():
    scheduler = Scheduler(max_streams=4)
    batch = started(scheduler, a_document(1, request_class="batch"))
    slices(scheduler, 1)
    reached, room_len = batch.prefilled_len, batch.room_len
    interactive = started(scheduler, a_document(2))

    taken_over = slices(scheduler, 3)
    scheduler.remove(interactive)

    assert taken_over == [interactive] * 3
    assert (batch.prefilled_len, batch.room_len, batch.num_overtaken) == (reached, room_len, 1)
    assert slices(scheduler, 1) == [batch]


@pytest.mark.parametrize("a_prompt", [a_short, a_document])
def test_batch_does_not_start_while_an_interactive_prompt_is_prefilled(a_prompt):
    scheduler = Scheduler(max_streams=4)
    interactive = started(scheduler, a_document(1))
    scheduler.enter(a_prompt(2, request_class="batch"))

    assert slices(scheduler, 3) == [interactive] * 3


def test_batch_that_waited_ten_minutes_goes_before_interactive():
    scheduler = Scheduler(max_streams=4)
    patient = a_short(1, request_class="batch", arrived_at=0.0)
    scheduler.enter(patient)
    scheduler.enter(a_short(2, arrived_at=OVERDUE))

    assert scheduler.next_action(OVERDUE) == Start(patient)


def test_batch_that_was_overtaken_eight_times_goes_first():
    scheduler = Scheduler(max_streams=4)
    batch = a_short(100, request_class="batch")
    scheduler.enter(a_short(0))
    scheduler.enter(batch)

    began = []
    for name in range(1, 30):
        scheduler.enter(a_short(name))
        began.append(scheduler.next_action(0.0).request)
        finish_prefill(scheduler, began[-1])

    assert began.index(batch) == BATCH_OVERTAKEN_LIMIT + 1  # the first came before it


def test_overdue_batch_and_interactive_take_turns():
    scheduler = Scheduler(max_streams=4)
    for name in range(1, 4):
        scheduler.enter(a_short(name, request_class="batch"))
        scheduler.enter(a_short(name + 10, arrived_at=OVERDUE))

    began = []
    for _ in range(6):
        began.append(scheduler.next_action(OVERDUE).request)
        finish_prefill(scheduler, began[-1], now=OVERDUE)

    assert [request.request_class for request in began] == ["batch", "interactive"] * 3


@pytest.mark.parametrize("a_prompt", [a_short, a_document])
def test_overdue_batch_is_not_taken_over(a_prompt):
    scheduler = Scheduler(max_streams=4)
    batch = started(scheduler, a_document(1, request_class="batch"))
    scheduler.enter(a_prompt(2, arrived_at=OVERDUE))

    assert slices(scheduler, 3, now=OVERDUE) == [batch] * 3


def test_a_batch_document_that_becomes_overdue_takes_its_turn_back():
    scheduler = Scheduler(max_streams=4)
    batch = started(scheduler, a_document(1, request_class="batch"))
    interactive = started(scheduler, a_document(2))

    before, after = slices(scheduler, 2), slices(scheduler, 2, now=OVERDUE)

    assert (before, after) == ([interactive] * 2, [batch] * 2)
