"""A running worker around a tiny model, and what tests ask of it."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from engine.wire import MemoryPlan, ModelStatus
from engine.worker import Worker
from tests.unit.engine.conversations import PATIENCE_S, Client, a_request
from tests.unit.engine.models import VOCABULARY

ENDLESS = 100_000
BROKEN_TOKEN = VOCABULARY - 1


def described(loaded) -> ModelStatus:
    return ModelStatus(
        id="tiny",
        path="-",
        architecture="-",
        quantization=None,
        is_demo=True,
        maximum_context_tokens=1,
        native_context_tokens=1,
        has_thinking=False,
        has_tools=False,
    )


def memory_plan(**bytes_of) -> MemoryPlan:
    figures = {
        "weights_bytes": 0,
        "fixed_bytes": 0,
        "kv_bytes_per_token": 1,
        "state_bytes_per_sequence": 0,
        "pool_bytes": 1 << 30,
        "limit_bytes": 1 << 30,
        "maximum_context_tokens": 1000,
    }
    return MemoryPlan(**(figures | bytes_of), fits=True, verdict="")


@contextmanager
def running(model, *, max_streams: int = 4, plan: MemoryPlan | None = None):
    fatal = []
    worker = Worker(
        lambda on_progress: SimpleNamespace(model=model),
        describe=described,
        memory_plan=plan,
        on_fatal=fatal.append,
        max_streams=max_streams,
    )
    worker.start()
    try:
        wait_until(lambda: worker.snapshot.state != "loading")
        yield worker
    finally:
        worker.stop()
        assert worker.join(PATIENCE_S)
    assert fatal == []


def wait_until(is_true) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def ask(worker: Worker, request_id: str = "r", **asked) -> Client:
    client = Client()
    worker.submit(a_request(request_id, client=client, arrived_at=time.monotonic(), **asked))
    return client


class ForgetfulGrammar:
    """Allows everything, and fails at the token behind the first `num_tokens`."""

    def __init__(self, num_tokens: int):
        self._num_left = num_tokens

    def allowed(self):
        return None

    def accept(self, token):
        self._num_left -= 1
        if self._num_left < 0:
            raise ValueError("lost the thread")


class Wrapped(nn.Module):
    """A model whose forward can be made to misbehave."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.fault = None

    @property
    def layers(self):
        return self.inner.layers

    def make_cache(self):
        return make_prompt_cache(self.inner)

    def __call__(self, tokens, cache=None):
        if self.fault is not None:
            raise self.fault
        logits = self.inner(tokens, cache=cache)
        return mx.where(tokens[..., None] == BROKEN_TOKEN, float("nan"), logits)
