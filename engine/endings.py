"""The last event of a request, with what it used and how long it took.

It delivers nothing and ends nothing: the worker does.
"""

from engine.errors import EngineError
from engine.request import Finish, Request
from engine.wire import Failed, Finished, Timings, Usage


def finished(request: Request, finish: Finish, *, now: float) -> Finished:
    return Finished(
        reason=finish.reason,
        stop_sequence=finish.stop_sequence,
        usage=usage_of(request),
        timings=timings_of(request, now=now),
    )


def failed(request: Request, error: EngineError, *, now: float) -> Failed:
    return Failed(
        code=error.code,
        message=error.message,
        retryable=error.retryable,
        usage=usage_of(request),
        timings=timings_of(request, now=now),
    )


def usage_of(request: Request) -> Usage:
    return Usage(
        prompt=request.prompt_len,
        cached=request.cached_len,
        completion=len(request.tokens),
        reasoning=request.output.reasoning_tokens,
    )


def timings_of(request: Request, *, now: float) -> Timings:
    """The three times add up to the age of the request; a phase that was not reached took none."""
    prefill_began_at = now if request.prefill_began_at is None else request.prefill_began_at
    first_token_at = now if request.first_token_at is None else request.first_token_at
    return Timings(
        wait_ms=(prefill_began_at - request.arrived_at) * 1000,
        prefill_ms=(first_token_at - prefill_began_at) * 1000,
        decode_ms=(now - first_token_at) * 1000,
        first_emission_tokens=request.first_emission_tokens,
    )
