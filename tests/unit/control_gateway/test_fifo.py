"""The line: a table of cases, and its invariants under random arrivals, ends, holds and changes of concurrency."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from control.errors import EngineStopped, LineFull, WaitedTooLong
from control.fifo import BATCH_PATIENCE_S, OVERTAKEN_LIMIT, Line, Ticket


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def opened(concurrency=4, **options) -> Line:
    line = Line(concurrency, **options)
    line.open()
    return line


def joined(line: Line, *names: str, request_class="interactive") -> list[Ticket]:
    tickets = [Ticket(name, request_class) for name in names]
    for ticket in tickets:
        line.join(ticket)
    return tickets


def names(tickets) -> list[str]:
    return [ticket.request_id for ticket in tickets]


def test_when_the_first_leaves_the_second_is_admitted():
    line = opened(1)
    first, second = joined(line, "a", "b")

    line.leave(first)

    assert second.admitted.is_set()


def test_join_tells_the_position_and_0_when_admitted_at_once():
    line = opened(1)

    positions = [line.join(Ticket(name)) for name in "abc"]

    assert positions == [0, 1, 2]


def test_a_ticket_that_is_not_ready_keeps_its_place_and_lets_the_others_pass():
    line = opened(1)
    first, second, third = Ticket("a"), Ticket("b"), Ticket("c")
    line.join(first, is_ready=False)
    line.join(second)
    line.join(third)

    before = (names(line.running), names(line.waiting), line.position(first))
    line.ready(first)
    line.leave(second)

    assert before == (["b"], ["a", "c"], 1)
    assert names(line.running) == ["a"]


def test_a_ticket_that_becomes_ready_is_admitted_when_there_is_room():
    line = opened(1)
    ticket = Ticket("a")

    position = line.join(ticket, is_ready=False)
    line.ready(ticket)

    assert position == 1
    assert ticket.admitted.is_set()


def test_tickets_that_are_not_ready_fill_the_line():
    line = opened(4, limit=2)
    for name in "ab":
        line.join(Ticket(name), is_ready=False)

    with pytest.raises(LineFull):
        line.join(Ticket("c"))


def test_batch_that_is_not_ready_is_not_overtaken():
    line = opened(1)
    unready = Ticket("batch", "batch")
    line.join(unready, is_ready=False)

    for number in range(2 * OVERTAKEN_LIMIT):
        ticket = Ticket(str(number))
        line.join(ticket)
        line.leave(ticket)

    assert unready.overtaken == 0


def test_why_those_that_waited_were_turned_away_is_known_until_somebody_may_wait_again():
    line = Line()
    reasons = [line.refusal]
    error = EngineStopped()
    line.turn_away_waiting(error)
    reasons.append(line.refusal)
    line.hold()
    reasons.append(line.refusal)
    line.turn_away_waiting(error)
    line.open()
    reasons.append(line.refusal)

    assert reasons == [None, error, None, None]


def test_a_new_line_is_held_until_it_is_opened():
    line = Line(2)
    first, second = joined(line, "a", "b")

    before = (first.admitted.is_set(), line.phase(first))
    line.open()

    assert before == (False, "held")
    assert first.admitted.is_set() and second.admitted.is_set()


def test_a_hold_keeps_those_that_run_and_admits_nobody():
    line = opened(2)
    first, second, third = joined(line, "a", "b", "c")

    line.hold()
    line.leave(first)

    assert names(line.running) == ["b"]
    assert line.phase(third) == "held"
    assert line.phase(second) == "running"


def test_the_257th_waiting_is_refused_and_nothing_changes():
    line = Line()
    joined(line, *(str(n) for n in range(256)))

    with pytest.raises(LineFull) as caught:
        line.join(Ticket("one more"))

    assert caught.value.limit == 256
    assert len(line.waiting) == 256


def test_more_concurrency_admits_at_once_and_less_only_stops_admitting():
    line = opened(1)
    first, *_ = joined(line, *"abcdef")

    line.set_concurrency(3)
    at_three = names(line.running)
    line.set_concurrency(2)
    line.leave(first)

    assert at_three == ["a", "b", "c"]
    assert names(line.running) == ["b", "c"]


@pytest.mark.parametrize("concurrency", [0, 5, -1])
def test_concurrency_is_1_to_4(concurrency):
    with pytest.raises(ValueError, match="1 to 4"):
        Line().set_concurrency(concurrency)


def test_interactive_goes_before_batch_that_came_earlier():
    line = opened(1)
    first, *_ = joined(line, "a")
    joined(line, "batch", request_class="batch")
    joined(line, "chat")

    line.leave(first)

    assert names(line.running) == ["chat"]
    assert names(line.waiting) == ["batch"]


@pytest.mark.parametrize(("concurrency", "slots_of_batch"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_batch_leaves_a_slot_for_interactive_where_there_is_more_than_one(concurrency, slots_of_batch):
    line = opened(concurrency)
    joined(line, *"abcdef", request_class="batch")

    assert len(line.running) == slots_of_batch


def test_batch_that_was_overtaken_often_enough_goes_first():
    line = opened(1)
    running, *_ = joined(line, "first")
    [batch] = joined(line, "batch", request_class="batch")
    others = joined(line, *(str(n) for n in range(OVERTAKEN_LIMIT + 2)))

    order = []
    while not batch.admitted.is_set():
        line.leave(running)
        [running] = line.running
        order.append(running.request_id)

    assert order == [*names(others[:OVERTAKEN_LIMIT]), "batch"]


def test_batch_that_waited_ten_minutes_goes_first():
    clock = Clock()
    line = opened(1, monotonic=clock)
    running, *_ = joined(line, "first")
    joined(line, "batch", request_class="batch")
    joined(line, "chat")

    clock.now += BATCH_PATIENCE_S
    line.leave(running)

    assert names(line.running) == ["batch"]


def test_a_ticket_that_is_put_back_waits_at_its_old_place_even_in_a_full_line():
    line = opened(1, limit=2)
    first, *_ = joined(line, "a", "b", "c")

    line.hold()
    line.put_back(first)

    assert names(line.waiting) == ["a", "b", "c"]
    assert not first.admitted.is_set()


def test_leaving_twice_is_harmless():
    line = opened(1)
    first, second, third = joined(line, "a", "b", "c")

    line.leave(first)
    line.leave(first)

    assert names(line.running) == ["b"]
    assert line.position(third) == 1
    assert line.position(second) == 0


def test_an_interruption_reaches_one_ticket_once():
    line = opened(1)
    first, second = joined(line, "a", "b")
    calls = []
    second.on_interrupt = lambda: calls.append("b")

    found = [
        line.interrupt("b", EngineStopped()),
        line.interrupt("b", EngineStopped()),
        line.interrupt("x", EngineStopped()),
    ]

    assert found == [True, False, False]
    assert calls == ["b"]
    assert first.interruption is None


@pytest.mark.parametrize("sleeper", ["monotonic", "elapsed"])
async def test_a_wait_ends_when_either_clock_says_so(sleeper):
    clocks = {"monotonic": Clock(), "elapsed": Clock()}
    line = Line(wait_limit_s=3600, clock_check_s=0.01, **clocks)
    [ticket] = joined(line, "a")
    waiting = asyncio.create_task(line.wait(ticket))
    await asyncio.sleep(0.03)
    before = waiting.done()

    clocks[sleeper].now += 3600

    with pytest.raises(WaitedTooLong, match="1 hours"):
        await waiting
    assert not before


async def test_a_wait_ends_with_admission():
    line = Line()
    [ticket] = joined(line, "a")
    waiting = asyncio.create_task(line.wait(ticket))

    line.open()
    await waiting

    assert names(line.running) == ["a"]


@given(st.lists(st.sampled_from(["interactive", "batch"]), max_size=30), st.integers(1, 4))
def test_within_a_class_the_order_of_arrival_is_the_order_of_admission(classes, concurrency):
    line = opened(concurrency)
    order = []
    for number, request_class in enumerate(classes):
        line.join(Ticket(str(number), request_class))

    while line.running:
        order.append(line.running[0])
        line.leave(line.running[0])

    for request_class in ("interactive", "batch"):
        arrivals = [ticket.arrival for ticket in order if ticket.request_class == request_class]
        assert arrivals == sorted(arrivals)
    assert len(order) == len(classes)


class RandomLine(RuleBasedStateMachine):
    """Random histories. The model knows only who must be there, and who ran at the last look."""

    tickets = Bundle("tickets")

    @initialize(concurrency=st.integers(1, 4))
    def start(self, concurrency):
        self.line = Line(concurrency, limit=6)
        self.present: set[Ticket] = set()
        self.running_before: set[Ticket] = set()
        self.count = 0

    @rule(target=tickets, request_class=st.sampled_from(["interactive", "batch"]), is_ready=st.booleans())
    def join(self, request_class, is_ready):
        ticket = Ticket(str(self.count), request_class)
        self.count += 1
        is_full = len(self.line.waiting) >= 6
        try:
            self.line.join(ticket, is_ready=is_ready)
        except LineFull:
            assert is_full
        else:
            assert not is_full
            self.present.add(ticket)
        return ticket

    @rule(ticket=tickets)
    def make_ready(self, ticket):
        if ticket in self.present:
            self.line.ready(ticket)

    @rule(ticket=consumes(tickets))
    def leave(self, ticket):
        self.line.leave(ticket)
        self.present.discard(ticket)

    @rule(ticket=tickets)
    def put_back(self, ticket):
        if ticket in self.line.running:
            self.line.put_back(ticket)

    @rule()
    def open(self):
        self.line.open()

    @rule()
    def hold(self):
        self.line.hold()

    @rule(concurrency=st.integers(1, 4))
    def change_concurrency(self, concurrency):
        self.line.set_concurrency(concurrency)

    @invariant()
    def nothing_is_lost_and_nothing_is_there_twice(self):
        everybody = [*self.line.running, *self.line.waiting]
        assert len(everybody) == len(set(everybody))
        assert set(everybody) == self.present

    @invariant()
    def who_is_admitted_runs_and_who_waits_is_not(self):
        assert all(ticket.admitted.is_set() and ticket.is_ready for ticket in self.line.running)
        assert not any(ticket.admitted.is_set() for ticket in self.line.waiting)

    @invariant()
    def nobody_new_is_admitted_above_concurrency_or_while_held(self):
        new = set(self.line.running) - self.running_before
        if new:
            assert self.line.is_open
            assert len(self.line.running) <= self.line.concurrency
            num_batch = sum(ticket.request_class == "batch" for ticket in self.line.running)
            if any(ticket.request_class == "batch" for ticket in new):
                assert num_batch <= max(1, self.line.concurrency - 1)
        self.running_before = set(self.line.running)

    @invariant()
    def nobody_waits_who_could_go(self):
        if self.line.is_open and len(self.line.running) < self.line.concurrency:
            assert all(ticket.request_class == "batch" for ticket in self.line.waiting if ticket.is_ready)

    @invariant()
    def interactive_tickets_stand_in_order_of_arrival_and_positions_count_from_one(self):
        arrivals = [ticket.arrival for ticket in self.line.waiting if ticket.request_class == "interactive"]
        assert arrivals == sorted(arrivals)
        assert [self.line.position(ticket) for ticket in self.line.waiting] == list(
            range(1, len(self.line.waiting) + 1)
        )


TestRandomLine = RandomLine.TestCase
