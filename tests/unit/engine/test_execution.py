"""What the execution notes of a request while it brings it to the device and back."""

from mlx_lm.models.cache import make_prompt_cache

from engine.execution import Execution
from engine.layout import new_caches
from engine.preparation import cache_of
from engine.request import Stage
from engine.rows import RowsLayout
from engine.status import tokens_per_second
from tests.unit.engine.conversations import a_request


def an_execution(model, clock) -> Execution:
    prefix = cache_of(new_caches(model, room_len=0))
    prefix.set_budget(1 << 30)
    return Execution(
        model, layout=RowsLayout(model, make_prompt_cache(model)), kv_bits=None, prefix=prefix, clock=clock
    )


def start(execution, request) -> None:
    request.phase, request.room_len = "prefill", 200
    execution.start(request, cache_bytes=1 << 30)


def prefill(execution, request, num_tokens) -> None:
    execution.prefill(request, num_tokens)
    request.prefilled_len += num_tokens


def test_who_goes_on_with_less_of_its_prefix_than_it_began_with_is_measured_from_there(dense):
    now = 10.0
    execution = an_execution(dense, lambda: now)
    earlier, request = a_request("earlier", prompt=(5,) * 100), a_request(prompt=(5,) * 150)
    start(execution, earlier)
    prefill(execution, earlier, 99)
    execution.release(earlier)
    start(execution, request)
    execution.release(request)
    request.was_suspended, yielded = True, request.stage
    execution.clear_cache()
    now = 20.0

    start(execution, request)
    prefill(execution, request, 32)

    assert (request.cached_len, yielded) == (96, None)
    assert tokens_per_second(request, now=22.0) == 16.0


def test_who_goes_on_decoding_is_measured_from_the_tokens_that_it_had(dense):
    execution = an_execution(dense, lambda: 30.0)
    request = a_request(prompt=(5,) * 40)
    request.tokens.extend([7] * 3)
    start(execution, request)
    prefill(execution, request, 42)

    execution.join(request)

    assert request.stage == Stage(3, 30.0)
