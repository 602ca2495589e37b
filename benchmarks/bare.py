"""mlx-lm alone on a model that the engine serves too: one stream, a batch, and a batch that prefills meanwhile.

It measures nothing itself. What the engine replaced in the model's modules is put back for as long as mlx-lm runs.
"""

import copy
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, generate_step

from engine.gated_delta.install import UPDATE_NAME, uninstall_gated_delta
from engine.layout import Caches, new_caches
from engine.rows import ATTENTION_NAME
from engine.step import prefill_slice

PREFILL_TOKENS = 512  # a prompt that a benchmark only needs as context is prefilled in slices of this size


@contextmanager
def as_mlx_lm_made_it(model: Any) -> Iterator[None]:
    """The model's modules with mlx-lm's own attention and gated delta rule. No worker may run the model meanwhile."""
    modules = {sys.modules[type(part).__module__] for part in model.modules()}
    names = (ATTENTION_NAME, UPDATE_NAME)
    replaced = {(module, name): vars(module)[name] for module in modules for name in names if name in vars(module)}
    uninstall_gated_delta(model)
    for (module, name), function in replaced.items():
        if name == ATTENTION_NAME:
            setattr(module, name, getattr(function, "__wrapped__", function))
    try:
        yield
    finally:
        for (module, name), function in replaced.items():
            setattr(module, name, function)


def prefilled(model: Any, prompt: Sequence[int]) -> Caches:
    """Caches that hold all of the prompt but its last token, computed with whatever is in the model's modules now."""
    caches = new_caches(model, room_len=len(prompt) + 256)
    for start in range(0, len(prompt) - 1, PREFILL_TOKENS):
        prefill_slice(model, caches, prompt[start : min(start + PREFILL_TOKENS, len(prompt) - 1)])
    mx.clear_cache()
    return caches


def copied(caches: Caches) -> Caches:
    """A deep copy that grows as mlx-lm's own caches do."""
    copies = copy.deepcopy(caches)
    for cache in copies:
        vars(cache).pop("step", None)
    return copies


def one_stream(model: Any, prompt: Sequence[int], caches: Caches, num_tokens: int) -> list[float]:
    """Times at which `generate_step` gave its tokens; it goes on from a copy of `caches`."""
    steps = generate_step(mx.array(prompt[-1:]), model, max_tokens=num_tokens, prompt_cache=copied(caches))
    return [time.perf_counter() for _ in steps]


class Batch:
    """mlx-lm's BatchGenerator over sequences whose caches are given. `close` it."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], caches: Sequence[Caches]) -> None:
        self._generator = BatchGenerator(model, max_tokens=1 << 20)
        self.uids: list[int] = self._generator.insert(
            [list(prompt[-1:]) for prompt in prompts], caches=[copied(each) for each in caches]
        )

    def add(self, prompt: Sequence[int]) -> int:
        """A cold prompt; returns its uid."""
        uids: list[int] = self._generator.insert([list(prompt)])
        return uids[0]

    def advance(self) -> set[int]:
        """One call of `next`; returns whose tokens came."""
        _, generated = self._generator.next()
        return {response.uid for response in generated}

    def close(self) -> None:
        self._generator.close()


def batch_times(model: Any, prompts: Sequence[Sequence[int]], caches: Sequence[Caches], num_steps: int) -> list[float]:
    """Times at which steps that gave every sequence a token were done."""
    batch = Batch(model, prompts, caches)
    times: list[float] = []
    while len(times) < num_steps:
        if len(batch.advance()) == len(prompts):
            times.append(time.perf_counter())
    batch.close()
    return times
