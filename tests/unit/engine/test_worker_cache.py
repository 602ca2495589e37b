"""The worker with its prefix cache: what is served from it, and that it changes nothing but the time."""

import threading

import pytest

from engine.blocks import floor_to_block
from engine.kinds import is_growing
from engine.layout import new_caches, parts_of
from engine.prefix import cache
from engine.request import PromptMarks
from engine.step import prefill_slice
from engine.wire import Failed, Finished
from tests.unit.engine.conversations import PATIENCE_S
from tests.unit.engine.models import KINDS, VOCABULARY, build
from tests.unit.engine.workers import ENDLESS, ForgetfulGrammar, ask, memory_plan, running, wait_until

GENERATION_LEN = 3


def a_prompt(length: int, *, seed: int = 0) -> tuple[int, ...]:
    return tuple((i * 37 + (i * i) % 101 + seed * 17) % (VOCABULARY - 1) for i in range(length))


def marks(*message_starts: int, shared_len: int = 0) -> PromptMarks:
    return PromptMarks(shared_len=shared_len, message_starts=message_starts, generation_len=GENERATION_LEN)


def test_the_same_prompt_again_is_served_from_the_cache_and_says_the_same(tiny):
    prompt = a_prompt(300)
    with running(tiny.model) as worker:
        first = ask(worker, "first", prompt=prompt, max_tokens=20, marks=marks())
        first.ending()

        second = ask(worker, "second", prompt=prompt, max_tokens=20, marks=marks())

        assert first.ending().usage.cached == 0
        assert second.ending().usage.cached == floor_to_block(300 - GENERATION_LEN)
        assert second.tokens == first.tokens


def test_the_next_turn_is_served_with_what_was_generated(tiny):
    prompt = a_prompt(150)
    with running(tiny.model) as worker:
        first = ask(worker, "first", prompt=prompt, max_tokens=80, marks=marks())
        first.ending()
        conversation = (*prompt, *first.tokens, *a_prompt(20, seed=9))

        warm = ask(worker, "warm", prompt=conversation, max_tokens=20, marks=marks())

        warm_ending = warm.ending()
    with running(tiny.model) as worker:
        cold = ask(worker, "cold", prompt=conversation, max_tokens=20, marks=marks())
        cold.ending()
    assert warm_ending.usage.cached == floor_to_block(150 + 80 - 1)
    assert warm.tokens == cold.tokens


@pytest.mark.parametrize("num_tokens", [9, 10, 41, 42])
def test_what_a_request_leaves_whose_grammar_failed_is_served_and_changes_nothing(tiny, num_tokens):
    """Its caches are a token further than what is known of it: just beyond the end of a block, or exactly there."""
    prompt = a_prompt(150)
    with running(tiny.model) as worker:
        failed = ask(worker, "failed", prompt=prompt, constraint=ForgetfulGrammar(num_tokens), max_tokens=80)
        failed.ending()
        conversation = (*prompt, *failed.tokens, *a_prompt(20, seed=9))

        warm = ask(worker, "warm", prompt=conversation, max_tokens=20, marks=marks())

        warm_ending = warm.ending()
    with running(tiny.model) as worker:
        cold = ask(worker, "cold", prompt=conversation, max_tokens=20, marks=marks())
        cold.ending()
    assert len(failed.tokens) == num_tokens
    assert warm_ending.usage.cached in (128, floor_to_block(150 + num_tokens))
    assert warm.tokens == cold.tokens


def test_a_row_that_is_moved_into_the_cache_is_served_as_one_that_was_copied(tiny, monkeypatch):
    monkeypatch.setattr(cache, "LARGEST_COPY_BYTES", 0)
    prompt = a_prompt(150)
    with running(tiny.model) as worker:
        first = ask(worker, "first", prompt=prompt, max_tokens=80, marks=marks())
        first.ending()

        again = ask(worker, "again", prompt=(*prompt, *first.tokens[:79], 1), max_tokens=1, marks=marks())

        assert again.ending().usage.cached == floor_to_block(150 + 79)


def test_a_tag_that_moves_costs_one_block(tiny):
    """The trap of the report: the common prefix ends a few tokens before the only snapshot there is."""
    history, tag, question = a_prompt(412), a_prompt(40, seed=1), a_prompt(30, seed=2)
    with running(tiny.model) as worker:
        ask(
            worker, "a", prompt=(*history, *tag, *question), max_tokens=2, marks=marks(len(history), len(history) + 40)
        ).ending()

        b = ask(worker, "b", prompt=(*history, *question, *a_prompt(60, seed=3)), max_tokens=2, marks=marks())

        assert b.ending().usage.cached == floor_to_block(412)


def test_a_cancelled_prompt_leaves_what_it_reached(dense):
    prompt = a_prompt(30_000)
    with running(dense) as worker:
        cancelled = ask(worker, "cancelled", prompt=prompt, marks=marks())
        wait_until(lambda: worker.snapshot.requests and worker.snapshot.requests[0].prefilled_tokens > 500)
        worker.cancel("cancelled")
        cancelled.ending()

        again = ask(worker, "again", prompt=prompt, max_tokens=1, marks=marks())

        wait_until(lambda: worker.snapshot.requests and worker.snapshot.requests[0].phase == "prefill")
        worker.cancel("again")
        assert again.ending().usage.cached >= 480


@pytest.mark.parametrize("kind", KINDS)
def test_four_that_begin_alike_at_once_are_one_prompts_work(kind):
    shared = a_prompt(2000)
    with running(build(KINDS[kind])) as worker:
        clients = [
            ask(worker, f"r{i}", prompt=(*shared, *a_prompt(30, seed=i + 1)), max_tokens=2, marks=marks(2000))
            for i in range(4)
        ]
        endings = [client.ending() for client in clients]

        computed = sum(ending.usage.prompt - ending.usage.cached for ending in endings)

    assert computed <= 1.15 * 2030


def test_clearing_the_cache_frees_it_and_leaves_who_runs(dense):
    with running(dense) as worker:
        ask(worker, "first", prompt=a_prompt(300), max_tokens=2).ending()
        runs_on = ask(worker, "runs on", prompt=a_prompt(50, seed=5), max_tokens=ENDLESS)
        assert runs_on.started.wait(PATIENCE_S)
        answers, told = [], threading.Event()

        worker.order(lambda execution: (answers.append(execution.clear_cache()), told.set()))

        assert told.wait(PATIENCE_S)
        assert answers[0].blocks >= 9 and answers[0].freed_bytes > 0
        wait_until(lambda: worker.snapshot.cache.clears == 1)
        again = ask(worker, "again", prompt=a_prompt(300), max_tokens=2)
        assert again.ending().usage.cached == 0
        worker.cancel("runs on")
        assert runs_on.ending().reason == "cancelled"


def test_a_miss_is_explained(tiny):
    prompt = a_prompt(300)
    with running(tiny.model) as worker:
        ask(worker, "first", prompt=prompt, max_tokens=2, marks=marks()).ending()

        ask(worker, "other", prompt=(*prompt[:100], *a_prompt(100, seed=4)), max_tokens=2, marks=marks()).ending()

        wait_until(lambda: worker.snapshot.cache.lookups == 2)
        told = worker.snapshot.cache.misses[-1]
    assert told.id == "other"
    assert told.first_difference == 100
    assert told.matched_tokens == 96
    assert told.distance_tokens == told.matched_tokens - told.restored_tokens


def test_requests_that_outgrow_the_pool_take_turns_and_say_what_they_say_alone(tiny):
    """Two streams that fit at the start and not at the end: the younger gives its memory back, and goes on later."""
    prompts = [a_prompt(200, seed=seed) for seed in (1, 2)]
    bytes_per_token, state_bytes = _costs(tiny.model)
    plan = memory_plan(
        kv_bytes_per_token=bytes_per_token,
        state_bytes_per_sequence=state_bytes,
        pool_bytes=4 * state_bytes + 1200 * bytes_per_token,
    )
    with running(tiny.model) as worker:
        alone = [ask(worker, f"alone {i}", prompt=prompt, max_tokens=700) for i, prompt in enumerate(prompts)]
        for client in alone:
            client.ending()

    with running(tiny.model, plan=plan) as worker:
        together = [ask(worker, f"r{i}", prompt=prompt, max_tokens=700) for i, prompt in enumerate(prompts)]
        endings = [client.ending() for client in together]
        status = worker.snapshot

    assert [type(ending) for ending in endings] == [Finished, Finished]
    assert status.scheduler.suspensions >= 1
    assert status.scheduler.resumptions == status.scheduler.suspensions
    assert [client.tokens for client in together] == [client.tokens for client in alone]


def test_the_cache_and_the_rows_together_stay_within_the_pool(dense):
    bytes_per_token, _ = _costs(dense)
    pool_bytes = 3000 * bytes_per_token
    plan = memory_plan(kv_bytes_per_token=bytes_per_token, pool_bytes=pool_bytes)
    seen = []
    with running(dense, plan=plan) as worker:
        for i in range(12):
            client = ask(worker, f"r{i}", prompt=a_prompt(700, seed=i % 5), max_tokens=4)
            assert not isinstance(client.ending(), Failed)
            wait_until(lambda: not worker.snapshot.requests)
            seen.append(worker.snapshot)

    assert all(status.cache.used_bytes <= pool_bytes for status in seen)
    assert all(status.cache.used_bytes <= status.cache.budget_bytes for status in seen)
    assert any(status.cache.used_bytes > 0.5 * pool_bytes for status in seen)
    assert seen[-1].cache.blocks_evicted > 0


def _costs(model) -> tuple[int, int]:
    """Bytes per token of the growing layers, and of the fixed state."""
    caches = new_caches(model, room_len=64)
    prefill_slice(model, caches, list(a_prompt(64)))
    growing = sum(part.nbytes for part in parts_of(caches) if is_growing(part))
    fixed = sum(part.nbytes for part in parts_of(caches) if not is_growing(part))
    return growing // 64, fixed
