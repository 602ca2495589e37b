"""The worker thread with real tiny models: every request gets the tokens that it would get alone, and true figures."""

import gc
import time
from itertools import pairwise

import mlx.core as mx

import engine.buffers
from engine.layout import held_bytes, new_caches
from engine.request import SamplingParameters
from engine.step import prefill_slice
from engine.wire import Prefill, TextDelta
from tests.unit.engine.conftest import NUM_TOKENS
from tests.unit.engine.conversations import PATIENCE_S, Client, NumberedOutput, a_request
from tests.unit.engine.workers import ENDLESS, ask, memory_plan, running, wait_until


def test_one_stream_says_what_plain_mlx_lm_says(tiny):
    with running(tiny.model) as worker:
        for number, plain in enumerate(tiny.plain):
            client = ask(worker, str(number), prompt=plain.prompt, max_tokens=NUM_TOKENS)

            assert client.ending().reason == "length"
            assert client.tokens == list(plain.tokens)


def test_four_streams_at_once_say_what_each_says_alone(tiny):
    lengths = (NUM_TOKENS, 20, 41, NUM_TOKENS)
    with running(tiny.model) as worker:
        clients = [
            ask(worker, str(number), prompt=plain.prompt, max_tokens=length)
            for number, (plain, length) in enumerate(zip(tiny.plain, lengths, strict=True))
        ]
        for client in clients:
            client.ending()
        status = worker.snapshot

    for client, plain, length in zip(clients, tiny.plain, lengths, strict=True):
        assert client.tokens == list(plain.tokens[:length])
    assert sum(status.scheduler.decode_tokens_by_width.values()) == sum(lengths)
    assert {"b2", "b3", "b4"} & set(status.scheduler.decode_batches_by_width)


def test_a_seed_gives_the_same_tokens_alone_and_among_others(tiny):
    seeded = SamplingParameters(temperature=0.9, top_p=0.95, seed=1234, frequency_penalty=0.3)
    prompt = tiny.plain[1].prompt
    with running(tiny.model) as worker:
        alone = ask(worker, "alone", prompt=prompt, max_tokens=40, sampling=seeded)
        alone.ending()
        others = [
            ask(worker, f"other {i}", prompt=tiny.plain[i].prompt, max_tokens=60, sampling=SamplingParameters(seed=i))
            for i in (0, 2, 3)
        ]
        among = ask(worker, "among", prompt=prompt, max_tokens=40, sampling=seeded)
        for client in (*others, among):
            client.ending()

    assert among.tokens == alone.tokens
    assert len(set(alone.tokens)) > 5


def test_cancelling_one_leaves_the_others_as_they_are(tiny):
    with running(tiny.model) as worker:
        doomed = ask(worker, "doomed", prompt=tiny.plain[2].prompt, max_tokens=ENDLESS)
        assert doomed.started.wait(PATIENCE_S)
        others = [ask(worker, str(i), prompt=tiny.plain[i].prompt, max_tokens=NUM_TOKENS) for i in (0, 1)]
        assert others[0].started.wait(PATIENCE_S)

        assert worker.cancel("doomed")
        ending = doomed.ending()
        for client in others:
            client.ending()

    assert (ending.reason, ending.usage.completion) == ("cancelled", len(doomed.tokens))
    assert doomed.tokens[:NUM_TOKENS] == list(tiny.plain[2].tokens[: len(doomed.tokens)])
    for client, i in zip(others, (0, 1), strict=True):
        assert client.tokens == list(tiny.plain[i].tokens)


def test_a_request_is_cancelled_while_it_waits_and_while_it_is_prefilled(dense):
    with running(dense, max_streams=1) as worker:
        prefilled = ask(worker, "prefilled", prompt=(1,) * 60_000, max_tokens=1)
        waiting = ask(worker, "waiting")
        wait_until(lambda: worker.snapshot.scheduler.prefill_batches > 0)

        worker.cancel("waiting")
        worker.cancel("prefilled")

        assert waiting.ending().reason == prefilled.ending().reason == "cancelled"
        assert prefilled.tokens == waiting.tokens == []
        assert not worker.cancel("prefilled")
        wait_until(lambda: worker.snapshot.memory_actual.kv_bytes == 0)


def test_the_text_side_ends_a_request(dense):
    with running(dense) as worker:
        said = ask(worker, "1", max_tokens=6)
        said.ending()
        stopped = ask(worker, "2", max_tokens=ENDLESS, output=NumberedOutput(end_token=said.tokens[-1]))

        ending = stopped.ending()

    first_end = said.tokens.index(said.tokens[-1])
    assert ending.reason == "stop"
    assert stopped.tokens == said.tokens[:first_end]
    assert ending.usage.completion == first_end + 1


def test_usage_and_timings_add_up(dense):
    began_at = time.monotonic()
    with running(dense) as worker:
        client = ask(worker, prompt=(1,) * 200, max_tokens=10, output=NumberedOutput(holds_back=True))
        ending = client.ending()
        passed_ms = (time.monotonic() - began_at) * 1000

    timings = ending.timings
    assert (ending.usage.prompt, ending.usage.cached, ending.usage.completion) == (200, 0, 10)
    assert timings.first_emission_tokens == 2
    assert min(timings.prefill_ms, timings.decode_ms) > 0
    assert timings.wait_ms + timings.prefill_ms + timings.decode_ms <= passed_ms


def test_prefill_progress_never_falls_ends_before_the_text_and_comes_at_most_four_times_a_second(dense):
    told_at = []
    with running(dense) as worker:
        client = Client()
        request = a_request(prompt=(1,) * 2500, max_tokens=3, client=client, arrived_at=time.monotonic())

        def deliver(events):
            told_at.extend(time.monotonic() for event in events if isinstance(event, Prefill))
            client.deliver(events)

        request.deliver = deliver
        worker.submit(request)
        client.ending()

    processed = [event.processed for event in client.progress]
    texts = [isinstance(event, TextDelta) for event in client.events]
    assert processed == sorted(processed)
    assert processed[0] == 0
    assert all(event.total == 2500 and event.cached == 0 for event in client.progress)
    assert texts.index(True) >= len(processed)
    assert all(later - earlier >= 0.24 for earlier, later in pairwise(told_at))


def test_a_stream_goes_on_while_a_long_prompt_is_prefilled(dense):
    with running(dense) as worker:
        stream = ask(worker, "stream", max_tokens=ENDLESS)
        assert stream.started.wait(PATIENCE_S)
        ask(worker, "long", prompt=(1,) * 60_000, max_tokens=1)
        wait_until(lambda: worker.snapshot.scheduler.prefill_batches >= 4)
        before = worker.snapshot
        wait_until(lambda: worker.snapshot.scheduler.prefill_batches >= before.scheduler.prefill_batches + 2)
        after = worker.snapshot
        worker.cancel("long")
        worker.cancel("stream")
        stream.ending()

    assert after.scheduler.prefilling == 1
    assert after.scheduler.decode_batches - before.scheduler.decode_batches >= 3
    assert after.membership_epoch == before.membership_epoch


def test_the_status_tells_who_runs_and_what_was_done(dense):
    with running(dense, max_streams=2) as worker:
        streams = [ask(worker, name, prompt=(number,) * 100, max_tokens=ENDLESS) for number, name in enumerate("abc")]
        for stream in streams[:2]:
            assert stream.started.wait(PATIENCE_S)
        wait_until(lambda: worker.snapshot.scheduler.decode_batches_by_width.get("b2", 0) > 20)
        status = worker.snapshot
        for name in "abc":
            worker.cancel(name)
        for stream in streams:
            stream.ending()
        wait_until(lambda: worker.snapshot.request_counts.cancelled == 3)
        end = worker.snapshot

    assert (status.state, status.ready, status.concurrency) == ("ready", True, 2)
    assert (status.layout.kind, status.model.id) == ("rows", "tiny")
    assert [(r.id, r.phase) for r in status.requests] == [("a", "decode"), ("b", "decode"), ("c", "queued")]
    assert status.requests[0].tokens_per_second > 0
    assert (status.admission.waiting, status.admission.waiting_concurrency, status.admission.waiting_memory) == (
        1,
        1,
        0,
    )
    assert status.membership_epoch == 2
    assert status.scheduler.prefill_rows == 2 * 99
    assert status.memory_actual.kv_bytes > 0
    assert status.steps == status.scheduler.prefill_batches + status.scheduler.decode_batches
    assert end.request_counts.submitted == 3
    assert end.requests == ()


def test_what_can_never_fit_fails_with_numbers_and_what_does_not_fit_now_waits(dense):
    with running(dense, plan=memory_plan(pool_bytes=300)) as worker:
        never = ask(worker, "never", prompt=(1,) * 400, max_tokens=1).ending()
        first = ask(worker, "first", prompt=(1, 2), max_tokens=190)
        assert first.started.wait(PATIENCE_S)
        second = ask(worker, "second", prompt=(1, 2), max_tokens=200)
        wait_until(lambda: worker.snapshot.admission.waiting_memory == 1 or first.ended.is_set())
        seen = worker.snapshot.scheduler.decode_batches_by_width
        first.ending()
        second.ending()
        widths = worker.snapshot.scheduler.decode_batches_by_width

    assert (never.code, never.retryable) == ("out_of_memory", False)
    assert "401" in never.message and "300" in never.message
    assert len(first.tokens) == 190 and len(second.tokens) == 200
    assert set(seen) == set(widths) == {"b1"}


def test_alone_a_request_may_say_all_that_the_pool_holds(dense):
    with running(dense, plan=memory_plan(pool_bytes=300)) as worker:
        client = ask(worker, prompt=(1,) * 250, max_tokens=ENDLESS)
        failed = client.ending()
        fits = ask(worker, "fits", prompt=(1,) * 200, max_tokens=100).ending()

    assert (failed.code, failed.retryable) == ("out_of_memory", False)
    assert failed.message == "Out of memory: the request would need 301 bytes of a pool of 300."
    assert failed.usage.completion == 50
    assert fits.usage.completion == 100


def test_rows_never_hold_more_than_the_pool_and_use_nearly_all_of_it(dense):
    caches = new_caches(dense, room_len=100)
    prefill_slice(dense, caches, [1] * 50)
    bytes_per_token = held_bytes(caches) // 100
    pool_bytes = bytes_per_token * 900
    held = []

    class Watching(NumberedOutput):
        def push(self, token):
            held.append(worker._execution.kv_bytes)
            return super().push(token)

    with running(dense, plan=memory_plan(pool_bytes=pool_bytes, kv_bytes_per_token=bytes_per_token)) as worker:
        clients = [ask(worker, str(i), prompt=(1,) * 30, max_tokens=600, output=Watching()) for i in range(3)]
        endings = [client.ending() for client in clients]

    assert 0.9 * pool_bytes < max(held) <= pool_bytes
    assert endings[0].usage.completion == 600
    assert all(ending.usage.completion == 600 or ending.retryable for ending in endings)


def test_memory_is_given_back_when_requests_end(dense, monkeypatch):
    monkeypatch.setattr(engine.buffers, "IDLE_S", 0.0)
    with running(dense) as worker:
        ask(worker, "warm", prompt=(1,) * 100, max_tokens=4).ending()
        wait_until(lambda: worker.snapshot.requests == ())
        gc.collect()
        before = mx.get_active_memory()
        clients = [ask(worker, str(i), prompt=(1,) * 800, max_tokens=20) for i in range(3)]
        for client in clients:
            client.ending()
        wait_until(lambda: worker.snapshot.memory_actual.kv_bytes == 0 and mx.get_cache_memory() == 0)

        gc.collect()
        assert mx.get_active_memory() - worker.snapshot.cache.used_bytes <= before + 200_000
