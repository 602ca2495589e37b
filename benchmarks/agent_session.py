"""Thirty turns of a coding agent on a hybrid model, two other clients between them: how much comes from the cache.

A tag is rewritten before the newest user message each turn, and some turns are followed by a request that summarises
the conversation. Tokens are random; only their equality matters. It measures tokens, not time.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from benchmarks import models
from benchmarks.report import Goal, Measurement
from benchmarks.streams import PATIENCE_S, ask, bytes_of_layers, memory_plan, running, wait_until
from benchmarks.workload import Workload, run_workload, say
from engine.blocks import BLOCK_TOKENS, floor_to_block
from engine.request import PromptMarks
from engine.worker import Worker

NUM_TURNS = 30
NUM_OTHERS = 2
COMPACTED_AFTER = (10, 20)
TARGETS = {"whole": 0.93, "half": 0.90}

TAG_LEN = 14
GENERATION_LEN = 6  # what the template adds for the model to answer; not there in the next turn's history
MARKED_MESSAGES = 3
INSTRUCTION_LEN = 180

Tokens = tuple[int, ...]


@dataclass
class Conversation:
    """A client: what is in its history for good, and where messages start in it."""

    name: str
    system: Tokens
    history: list[Tokens] = field(default_factory=list)

    def prompt(self, newest: Tokens, tag: Tokens, generation: Tokens) -> tuple[Tokens, PromptMarks]:
        parts = [self.system, *self.history]
        starts = [sum(map(len, parts[: index + 1])) for index in range(len(parts))]  # after the system message
        prompt = tuple(token for part in (*parts, tag, newest, generation) for token in part)
        marks = PromptMarks(
            shared_len=len(self.system),
            message_starts=tuple(starts[-MARKED_MESSAGES:]),
            generation_len=len(generation),
        )
        return prompt, marks


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `best` is the longest prefix, in whole blocks, that any earlier sequence shares with it."""

    client: str
    prompt_tokens: int
    cached: int
    best: int

    @property
    def is_best(self) -> bool:
        return self.best - self.cached <= BLOCK_TOKENS


class Seen:
    """All sequences that the engine computed so far."""

    def __init__(self) -> None:
        self._sequences: list[np.ndarray] = []
        self.distinct_tokens = 0

    def best(self, prompt: Tokens) -> int:
        longest = max((common_prefix(np.array(prompt), other) for other in self._sequences), default=0)
        return floor_to_block(min(longest, len(prompt) - 1))

    def add(self, prompt: Tokens, output: Tokens) -> None:
        self.distinct_tokens += len(prompt) + len(output) - self.best(prompt)
        self._sequences.append(np.array(prompt + output))


def common_prefix(one: np.ndarray, other: np.ndarray) -> int:
    length = min(len(one), len(other))
    differs = np.nonzero(one[:length] != other[:length])[0]
    return int(differs[0]) if len(differs) else length


class Session:
    """Plays the same conversation on a worker; the seed of everything is its place in the conversation."""

    def __init__(self, workload: Workload, worker: Worker) -> None:
        self._workload = workload
        self._worker = worker
        self._num_drawn = 0
        self.seen = Seen()
        self.turns: list[Turn] = []

    def play(self) -> None:
        on = self._workload.on
        main = Conversation("agent", self._draw(on(cpu=8192, gpu=24576)))
        others = [Conversation(f"other{n}", self._draw(on(cpu=768, gpu=2048))) for n in range(NUM_OTHERS)]
        for turn in range(NUM_TURNS):
            self._turn(main, on(cpu=110, gpu=400), on(cpu=32, gpu=64))
            for other in others:
                self._turn(other, on(cpu=48, gpu=150), on(cpu=16, gpu=32))
            if turn + 1 in COMPACTED_AFTER:
                compaction = main.prompt(self._draw(INSTRUCTION_LEN), (), self._generation)
                self._ask("compaction", *compaction, on(cpu=48, gpu=96))
            if turn % 10 == 9:
                say(f"turn {turn + 1}: {share_cached(self.turns):.4f} of all prompt tokens from the cache")

    @property
    def _generation(self) -> Tokens:
        return self._workload.prompt("hybrid", GENERATION_LEN, seed=7)

    def _turn(self, client: Conversation, newest_len: int, output_len: int) -> None:
        newest = self._draw(newest_len)
        tag = self._draw(TAG_LEN)
        output = self._ask(client.name, *client.prompt(newest, tag, self._generation), output_len)
        client.history += [newest, output]

    def _ask(self, name: str, prompt: Tokens, marks: PromptMarks, output_len: int) -> Tokens:
        client = ask(self._worker, f"{name}-{len(self.turns)}", prompt, max_tokens=output_len, marks=marks)
        cached = client.cached_tokens
        wait_until(lambda: not self._worker.snapshot.requests, patience_s=PATIENCE_S)
        self.turns.append(Turn(name, len(prompt), cached, self.seen.best(prompt)))
        self.seen.add(prompt, client.output)
        return client.output

    def _draw(self, length: int) -> Tokens:
        self._num_drawn += 1
        return self._workload.prompt("hybrid", length, seed=1000 + self._num_drawn)


def share_cached(turns: Sequence[Turn]) -> float:
    return sum(turn.cached for turn in turns) / sum(turn.prompt_tokens for turn in turns)


def measure(workload: Workload) -> Measurement:
    model = models.build("hybrid", workload.size, say=say)
    kv_bytes, state_bytes = bytes_of_layers(model)
    row_bytes = workload.on(cpu=16_384, gpu=49_152) * kv_bytes + 4 * state_bytes  # for the request that runs
    # More than it can need: its distinct tokens, and some snapshots a request. Half is half of what it then holds.
    num_requests = NUM_TURNS * (1 + NUM_OTHERS) + len(COMPACTED_AFTER)
    cache_bytes = workload.on(cpu=48_000, gpu=150_000) * kv_bytes + 8 * num_requests * state_bytes
    goals: list[Goal] = []
    detail: dict[str, object] = {"state_bytes": state_bytes, "kv_bytes_per_token": kv_bytes}
    for name in TARGETS:
        with running(model, plan=memory_plan(model, pool_bytes=row_bytes + cache_bytes)) as worker:
            session = Session(workload, worker)
            session.play()
            cache = worker.snapshot.cache
        gc.collect()
        mx.clear_cache()
        own = [turn for turn in session.turns if turn.client in ("agent", "compaction")]
        short = [turn for turn in session.turns if not turn.is_best]
        goals.append(Goal(f"cached_{name}", share_cached(own), TARGETS[name], "higher"))
        # Where the pool is too small for everything, the best possible is not possible any more.
        goals.append(Goal(f"turns_below_best_{name}", len(short), 0 if name == "whole" else None, "lower"))
        detail[name] = {
            "cache_bytes_beside_a_row": cache_bytes,
            "cached_if_best": round(sum(t.best for t in own) / sum(t.prompt_tokens for t in own), 4),
            "cached_of_others": round(share_cached([turn for turn in session.turns if turn not in own]), 4),
            "distinct_tokens": session.seen.distinct_tokens,
            "largest_shortfall_tokens": max(turn.best - turn.cached for turn in session.turns),
            "short_turns": [(turn.client, turn.prompt_tokens, turn.best, turn.cached) for turn in short[:8]],
            "used_bytes": cache.used_bytes if cache else None,
            "snapshots": cache.snapshots if cache else None,
            "snapshots_evicted": cache.snapshots_evicted if cache else None,
            "blocks_evicted": cache.blocks_evicted if cache else None,
        }
        if cache is not None:
            cache_bytes = cache.used_bytes // 2
        say(f"{name}: {share_cached(own):.4f} from cache, {len(short)} turns below the best; {detail[name]}")
    return Measurement(
        "agent_session", goals[0].value, "of prompt tokens", TARGETS["whole"], "higher", detail, tuple(goals)
    )


if __name__ == "__main__":
    run_workload(measure, __doc__ or "", kinds=("hybrid",))
