"""A request's figures while it lives and in its row, with time as a parameter."""

import pytest

from control.dialects.chat import parse_chat
from control.errors import CancelledByOperator, NoModel
from control.fifo import Ticket
from control.live import Life, Speed
from engine import wire


@pytest.fixture
def life():
    exchange = parse_chat(b'{"model":"demo","messages":[{"role":"user","content":"x"}],"stream":true}', "id")
    life = Life(exchange, number=9, key="k", ticket=Ticket("id"), now=100.0, started_wall_s=1e9)
    life.ticket.arrival = 1
    return life


def prefill(processed, cached=0, total=1000):
    return [wire.Prefill(processed=processed, cached=cached, total=total)]


def test_a_speed_is_tokens_over_the_last_seconds():
    speed = Speed()
    for second in range(20):
        speed.add(float(second), second * (10 if second < 10 else 50) - (0 if second < 10 else 400))

    assert speed.per_second(19.0) == 50


def test_a_speed_is_unknown_at_first_and_falls_in_a_stall():
    speed = Speed()
    unknown = speed.per_second(0.0)
    speed.add(0.0, 0)
    speed.add(1.0, 30)

    assert unknown is None
    assert speed.per_second(1.0) == 30
    assert speed.per_second(3.0) == 10


@pytest.mark.parametrize("stalled_s", [3.0, 30.0, 3_000.0])
def test_a_stream_that_stands_still_has_no_speed_left(stalled_s):
    speed = Speed()
    for second in range(5):
        speed.add(float(second), second * 50)

    assert speed.per_second(4.0) == 50
    assert speed.per_second(4.0 + stalled_s) == 0.0


def test_a_stream_that_goes_on_after_a_stall_does_not_pay_for_it_for_long():
    speed = Speed()
    speed.add(0.0, 0)
    speed.add(1.0, 50)
    speeds = []
    for second in range(61, 66):
        speed.add(float(second), 50 + (second - 60) * 50)
        speeds.append(speed.per_second(float(second)))

    assert speeds[0] > 5
    assert speeds[-1] == 50


def test_a_slot_says_whether_its_client_has_what_was_generated(life):
    life.admitted(slot=0, now=101.0)
    whole = parse_chat(b'{"model":"demo","messages":[{"role":"user","content":"x"}]}', "id")
    other = Life(whole, number=9, key="k", ticket=Ticket("id"), now=100.0, started_wall_s=1e9)
    other.admitted(slot=1, now=101.0)

    assert (life.as_slot(101.0).stream, other.as_slot(101.0).stream) == (True, False)


def test_the_first_emission_is_not_part_of_the_decode_speed(life):
    life.admitted(slot=2, now=101.0)
    life.happened([wire.TextDelta(text=str(n)) for n in range(8)], 102.0)
    for tenth in range(1, 11):
        life.happened([wire.TextDelta(text="x")], 102.0 + tenth / 10)

    slot = life.as_slot(103.0)

    assert slot.output_tokens == 18
    assert slot.tokens_per_second == pytest.approx(10)


def test_a_prefill_shows_progress_speed_and_what_is_left(life):
    life.admitted(slot=0, now=101.0)
    life.happened(prefill(200, cached=200), 101.0)
    life.happened(prefill(400, cached=200), 102.0)

    slot = life.as_slot(102.0)

    assert (slot.phase, slot.cached_tokens, slot.prefilled_tokens, slot.prompt_tokens) == ("prefill", 200, 400, 1000)
    assert slot.tokens_per_second == 200
    assert slot.eta_s == 3
    assert slot.elapsed_s == 2


def test_a_bar_never_goes_back_and_never_past_its_end(life):
    life.admitted(slot=0, now=101.0)
    life.happened(prefill(600, cached=100), 101.0)
    life.happened(prefill(500, cached=50), 102.0)
    back = life.as_slot(102.0)
    life.happened(prefill(1200), 103.0)

    assert (back.prefilled_tokens, back.cached_tokens) == (600, 100)
    assert life.as_slot(103.0).prefilled_tokens == 1000


def test_the_engines_own_count_corrects_ours_upwards_only(life):
    life.admitted(slot=0, now=101.0)
    life.happened([wire.TextDelta(text="x")], 102.0)
    sample = wire.RequestStatus(
        id="id",
        phase="decode",
        request_class="interactive",
        prompt_tokens=10,
        cached_tokens=0,
        prefilled_tokens=10,
        output_tokens=30,
        tokens_per_second=0,
        age_ms=0,
    )

    life.sampled(sample, 103.0)
    life.sampled(wire.RequestStatus(**{**_fields(sample), "output_tokens": 5}), 104.0)

    assert life.as_slot(104.0).output_tokens == 30


def _fields(struct) -> dict:
    return {field: getattr(struct, field) for field in struct.__struct_fields__}


def test_a_row_measures_itself_when_the_engine_did_not_end(life):
    life.admitted(slot=0, now=103.0)
    life.happened([wire.Accepted(id="id", prompt_tokens=1000), *prefill(1000, cached=600)], 104.0)
    life.happened([wire.ReasoningDelta(text="x")], 105.0)
    life.is_client_gone = True

    row = life.as_row(106.0)

    assert (row.outcome, row.error_code) == ("cancelled", "client_gone")
    assert (row.queue_ms, row.prefill_ms, row.decode_ms) == (4000, 1000, 1000)
    assert (row.ttft_ms, row.total_ms) == (5000, 6000)
    assert (row.prompt_tokens, row.cached_tokens) == (1000, 600)
    assert (row.completion_tokens, row.reasoning_tokens) == (1, 1)


def test_a_request_that_leaves_the_line_has_waited_all_its_time(life):
    life.counted(74_000)
    life.is_client_gone = True

    row = life.as_row(101.0)

    assert (row.queue_ms, row.prefill_ms, row.decode_ms, row.ttft_ms) == (1000, None, None, None)
    assert (row.total_ms, row.prompt_tokens) == (1000, 0)


def test_a_request_that_the_engine_has_but_never_began_waited_on_and_has_read_nothing(life):
    life.admitted(slot=0, now=110.0)
    life.happened([wire.Accepted(id="id", prompt_tokens=74_000)], 110.0)
    life.is_client_gone = True

    row = life.as_row(140.0)

    assert (row.queue_ms, row.prefill_ms, row.decode_ms) == (40_000, None, None)
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens) == (0, 0, 0)


def test_a_prompt_that_is_cut_off_in_its_middle_has_read_what_was_restored_and_computed(life):
    life.admitted(slot=0, now=110.0)
    life.happened([wire.Accepted(id="id", prompt_tokens=74_000)], 110.0)
    life.happened(prefill(4_000, cached=4_000, total=74_000), 115.0)
    life.happened(prefill(24_000, cached=4_000, total=74_000), 125.0)
    life.is_client_gone = True

    row = life.as_row(126.0)

    assert (row.queue_ms, row.prefill_ms, row.decode_ms, row.ttft_ms) == (15_000, 11_000, None, None)
    assert (row.prompt_tokens, row.cached_tokens) == (24_000, 4_000)


@pytest.mark.parametrize(
    "end",
    [
        wire.Failed(
            code="out_of_memory",
            message="",
            usage=wire.Usage(prompt=74_000, cached=4_000),
            timings=wire.Timings(wait_ms=5_000, prefill_ms=11_000),
        ),
        wire.Finished(
            reason="cancelled",
            usage=wire.Usage(prompt=74_000, cached=4_000),
            timings=wire.Timings(wait_ms=5_000, prefill_ms=11_000),
        ),
    ],
    ids=["failed", "cancelled"],
)
@pytest.mark.parametrize("has_begun", [True, False])
def test_the_engines_last_word_does_not_count_what_was_not_read(life, end, has_begun):
    life.admitted(slot=0, now=110.0)
    if has_begun:
        life.happened(prefill(24_000, cached=4_000, total=74_000), 115.2)
    life.happened([end], 126.0)
    life.error = CancelledByOperator()

    row = life.as_row(126.0)

    assert row.outcome == "cancelled"
    assert (row.prompt_tokens, row.cached_tokens) == ((24_000, 4_000) if has_begun else (0, 0))
    assert (row.queue_ms, row.prefill_ms) == ((15_000, 11_000) if has_begun else (26_000, None))
    assert row.decode_ms is None


def test_an_answer_without_a_shown_token_has_read_its_whole_prompt(life):
    life.admitted(slot=0, now=101.0)
    life.happened(prefill(400), 102.0)
    life.happened([finished(wait_ms=1_000, prefill_ms=700)], 103.0)

    row = life.as_row(103.0)

    assert (row.outcome, row.prompt_tokens, row.queue_ms, row.prefill_ms) == ("completed", 1000, 2000, 700)


def test_a_request_that_is_turned_away_has_no_times(life):
    life.ticket.arrival = 0
    life.error = NoModel()

    row = life.as_row(101.0)

    assert (row.outcome, row.queue_ms, row.prefill_ms, row.prompt_tokens) == ("rejected", None, None, 0)


def test_a_request_that_never_ran_belongs_to_the_model_that_was_to_answer(life):
    life.expect("Qwen3.8-27B-4bit")
    life.is_client_gone = True

    assert life.as_row(101.0).model == "Qwen3.8-27B-4bit"


def test_a_request_that_is_put_back_and_leaves_the_line_counts_nothing_of_its_broken_run(life):
    life.admitted(slot=0, now=101.0)
    life.happened(prefill(500), 102.0)
    life.put_back()
    life.is_client_gone = True

    row = life.as_row(120.0)

    assert (row.queue_ms, row.prefill_ms, row.prompt_tokens) == (20_000, None, 0)


def test_a_second_run_starts_counting_anew_and_the_queue_counts_to_its_first_step(life):
    life.admitted(slot=0, now=101.0)
    life.happened([*prefill(500), wire.TextDelta(text="x"), wire.Failed(code="internal", message="")], 102.0)
    life.put_back()
    life.admitted(slot=1, now=110.0)
    again = life.as_slot(110.0)
    life.happened(prefill(100), 110.5)
    life.is_client_gone = True

    row = life.as_row(111.0)

    assert (again.slot, again.phase, again.prefilled_tokens, again.output_tokens) == (1, "prefill", 0, 0)
    assert (row.queue_ms, row.prefill_ms, row.ttft_ms, row.completion_tokens) == (10_500, 500, None, 0)


def sample(**changes):
    fields = {
        "id": "id",
        "phase": "queued",
        "request_class": "interactive",
        "prompt_tokens": 1000,
        "cached_tokens": 0,
        "prefilled_tokens": 1000,
        "output_tokens": 0,
        "tokens_per_second": 0.0,
        "age_ms": 0.0,
    }
    return wire.RequestStatus(**fields | changes)


def test_a_stream_that_is_paused_for_memory_says_so_until_its_next_token(life):
    life.admitted(slot=0, now=100.0)
    life.happened([*prefill(1000), wire.TextDelta(text="a")], 101.0)

    life.sampled(sample(is_suspended=True), 102.0)
    paused, is_generating = life.as_slot(102.0), life.is_generating
    life.happened([wire.TextDelta(text="b")], 103.0)

    assert (paused.is_suspended, paused.phase, is_generating) == (True, "decode", False)
    assert (life.as_slot(103.0).is_suspended, life.is_generating) == (False, True)


def test_a_prompt_that_is_paused_has_no_estimate_until_it_is_read_again(life):
    life.admitted(slot=0, now=100.0)
    life.happened(prefill(100), 100.0)
    life.happened(prefill(200), 101.0)

    life.sampled(sample(is_suspended=True), 101.0)
    paused = life.as_slot(101.0)
    life.happened(prefill(300), 102.0)

    assert (paused.is_suspended, paused.eta_s) == (True, None)
    assert life.as_slot(102.0).is_suspended is False
    assert life.as_slot(102.0).eta_s is not None


def finished(**timings):
    usage = wire.Usage(prompt=1000, completion=30, drafted=40, accepted=24)
    return wire.Finished(reason="stop", usage=usage, timings=wire.Timings(**timings))


def test_a_row_tells_the_largest_gap_between_emissions_and_none_before_the_first(life):
    life.admitted(slot=0, now=100.0)
    life.happened(prefill(1000), 130.0)
    for now in (140.0, 140.5, 142.0, 142.1):
        life.happened([wire.TextDelta(text="x")], now)
    life.happened([finished()], 150.0)

    assert life.as_row(150.0).largest_gap_ms == 1500


def test_a_pause_for_memory_is_a_gap_like_any_other_for_the_client(life):
    life.admitted(slot=0, now=100.0)
    life.happened([wire.TextDelta(text="x")], 101.0)
    life.sampled(sample(is_suspended=True), 102.0)
    life.happened([wire.TextDelta(text="x")], 121.0)

    assert life.as_row(121.0).largest_gap_ms == 20_000


def test_a_single_emission_has_no_gap(life):
    life.admitted(slot=0, now=100.0)
    life.happened([wire.TextDelta(text="x"), wire.TextDelta(text="y")], 101.0)

    assert life.as_row(130.0).largest_gap_ms is None


def test_a_second_run_begins_with_no_gap(life):
    life.admitted(slot=0, now=100.0)
    for now in (101.0, 105.0):
        life.happened([wire.TextDelta(text="x")], now)
    life.put_back()
    life.admitted(slot=0, now=200.0)
    for now in (201.0, 202.0):
        life.happened([wire.TextDelta(text="x")], now)

    assert life.as_row(202.0).largest_gap_ms == 1000


def test_a_row_has_the_engines_count_of_the_first_emission_and_of_drafts(life):
    life.admitted(slot=0, now=100.0)
    life.happened([wire.TextDelta(text="a whole block")], 101.0)
    life.happened([finished(first_emission_tokens=5)], 102.0)

    row = life.as_row(102.0)

    assert (row.first_emission_tokens, row.drafted_tokens, row.accepted_tokens) == (5, 40, 24)


def test_without_the_engines_count_the_first_emission_is_what_came_together(life):
    life.admitted(slot=0, now=100.0)
    life.happened([wire.TextDelta(text=str(n)) for n in range(3)], 101.0)
    life.happened([wire.TextDelta(text="x")], 102.0)
    life.is_client_gone = True

    assert life.as_row(103.0).first_emission_tokens == 3


def test_a_row_has_the_class_in_which_it_ran(life):
    life.ticket.request_class = "batch"

    assert life.as_row(101.0).request_class == "batch"
