"""Whatever requests do together (slices, cancels, suspensions, cuts of the budget, clears): a replay does it again.

The trace begins at any moment, with requests under way and a cache that is in use.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.replay.replay import replay
from tests.unit.engine_prefix.sessions import Client, Sizes
from tests.unit.engine_trace.living import Living

MODELS = {
    "fixed": Sizes(kv_bytes_per_token=1_000, snapshot_bytes=2_000_000),
    "growing": Sizes(kv_bytes_per_token=1_000, snapshot_bytes=0),
}
STEPS = st.sampled_from(
    ["begin", "begin", "slice", "slice", "slice", "slice", "end", "end", "cancel", "suspend", "budget", "clear"]
)


class Day:
    """Three clients, two of which share their tools; up to four requests at once."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self.source = random.Random(seed)
        tools, others = ([self.source.randrange(1, 9_999) for _ in range(n)] for n in (2_000, 500))
        self.clients = [
            Client("a", tuple(tools), self.source, has_tag=True),
            Client("b", tuple(tools), self.source, has_tag=False),
            Client("c", tuple(others), self.source, has_tag=False),
        ]
        self.living = Living(sizes, budget_bytes=12_000_000)
        self.running: list = []
        self.suspended: list = []

    def do(self, step: str) -> None:
        living = self.living
        if step == "begin" and self.suspended:
            request, answer = self.suspended.pop()
            self.running.append((living.resume(request), answer))
        elif step == "begin" and len(self.running) < 4:
            turn = self.source.choice(self.clients).turn()
            self.running.append((living.begin(turn, row_bytes=1_000 * len(turn.prompt) // 4), turn.answer))
        elif step == "budget":
            living.budget_bytes = self.source.choice([1_000_000, 4_000_000, 12_000_000, 30_000_000])
            living.cache.set_budget(living.budget_bytes)
        elif step == "clear":
            living.cache.clear()
        elif self.running:
            self._move(step, self.source.randrange(len(self.running)))

    def _move(self, step: str, which: int) -> None:
        living = self.living
        request, answer = self.running[which]
        if step == "slice":
            living.slice(request)
            return
        del self.running[which]
        if step == "end":
            while living.slice(request):
                pass
            living.end(request, answer)
        else:
            living.give_up(request)
            if step == "suspend":
                self.suspended.append((request, answer))


@pytest.mark.parametrize("model", MODELS)
@given(seed=st.integers(0, 999), steps=st.lists(STEPS, min_size=20, max_size=90), first=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_every_lookup_of_a_replay_restores_what_it_restored_then(model, seed, steps, first):
    day = Day(MODELS[model], seed)
    for step in steps[:first]:
        day.do(step)
    before = len(day.living.restored)
    day.living.begin_trace()
    for step in steps[first:]:
        day.do(step)

    replayed = replay(day.living.trace())

    assert [each.restored_len for each in replayed.lookups] == day.living.restored[before:]
    assert replayed.used_bytes == day.living.cache.used_bytes
