"""What happened between two samples of the engine's counters: pure decode that counts as throughput, or why it doesn't.

It adds nothing up; `control.metrics.throughput` does. A window counts only if all of this is true:

1. The engine is the same process with the same model, and its counters went on (else "restart").
2. Its clocks and ours agree that no sleep and no long silence lies between (else "gap").
3. At its beginning streams were decoding, and had been seen to (else "idle": the first window after a pause has the
   pause in it, and the device's waking up).
4. No prompt was prefilled, restored from the cache or about to be (else "prefill").
5. Nobody joined or left, and everybody has had a first emission before: it belongs to the time to first token, however
   many tokens came with it (else "membership").
"""

from dataclasses import dataclass
from typing import Final, Literal

from control.power.clocks import are_apart
from engine.wire import RequestStatus, Roofline, Status

Reason = Literal["restart", "gap", "idle", "prefill", "membership"]

# Samples come once a second; whoever was away for longer does not know what happened meanwhile.
LONGEST_WINDOW_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A status, and control's clocks when it came: Unix time and monotonic seconds."""

    status: Status
    wall_s: float
    monotonic_s: float


@dataclass(frozen=True, slots=True)
class Window:
    """Pure decode of the streams `members`. `seconds` of the engine's clock; `tokens` of all of them together.

    `context_tokens`: prompt and output of a stream, the mean over the streams and over both ends.
    """

    started_at_s: float
    seconds: float
    tokens: int
    members: frozenset[str]
    context_tokens: float
    model: str
    roofline: Roofline | None


def elapsed_s(before: Sample, after: Sample) -> float:
    """By the engine's clock, which neither the network nor our own loop delays."""
    return after.status.sampled_monotonic_s - before.status.sampled_monotonic_s


def window_of(before: Sample, after: Sample, *, has_decoded: bool) -> Window | Reason | None:
    """None: nothing was decoded, so there is nothing to count. `has_decoded`: streams were seen to decode before."""
    if _has_restarted(before, after):
        return "restart" if before.status.scheduler.decoding or after.status.scheduler.decoding else None
    growth = _growth(before.status, after.status)
    if not (before.status.scheduler.decoding or after.status.scheduler.decoding or growth):
        return None
    members = _members(before.status)
    if _has_gap(before, after):
        return "gap"
    if not members or not has_decoded:
        return "idle"
    if _has_prefilled(before.status, after.status):
        return "prefill"
    width = f"b{len(members)}"
    if not _are_the_same(before.status, after.status) or growth.keys() - {width}:
        return "membership"
    model = after.status.model
    assert model is not None, "streams decode, so a model is loaded"
    return Window(
        started_at_s=before.wall_s,
        seconds=elapsed_s(before, after),
        tokens=growth.get(width, 0),
        members=frozenset(members),
        context_tokens=(_mean_context(members) + _mean_context(_members(after.status))) / 2,
        model=model.id,
        roofline=after.status.roofline,
    )


def has_decoded(before: Sample, after: Sample, *, had_decoded: bool) -> bool:
    """Whether the streams at the end of a window are known to be under way: tokens came since the last pause."""
    if not after.status.scheduler.decoding or _has_restarted(before, after) or _has_gap(before, after):
        return False
    return had_decoded or bool(_growth(before.status, after.status))


def _has_restarted(before: Sample, after: Sample) -> bool:
    old, new = before.status, after.status
    is_same = old.pid == new.pid and old.model == new.model and new.uptime_s >= old.uptime_s
    counts = old.scheduler.decode_tokens_by_width
    has_shrunk = any(new.scheduler.decode_tokens_by_width.get(width, 0) < count for width, count in counts.items())
    return not is_same or has_shrunk or elapsed_s(before, after) < 0


def _has_gap(before: Sample, after: Sample) -> bool:
    # The engine's clocks, too: what it sampled before a sleep may come after it.
    ours = are_apart(after.wall_s - before.wall_s, after.monotonic_s - before.monotonic_s)
    theirs = are_apart(after.status.sampled_at_s - before.status.sampled_at_s, elapsed_s(before, after))
    return ours or theirs or elapsed_s(before, after) > LONGEST_WINDOW_S


def _has_prefilled(old: Status, new: Status) -> bool:
    """A prompt that just started may have had its past restored from the cache, which no counter tells."""
    is_prefilling = bool(old.scheduler.prefilling or new.scheduler.prefilling)
    return is_prefilling or new.scheduler.prefill_batches != old.scheduler.prefill_batches


def _are_the_same(old: Status, new: Status) -> bool:
    members = _members(old)
    return (
        old.membership_epoch == new.membership_epoch
        and members.keys() == _members(new).keys()
        and len(members) == old.scheduler.decoding == new.scheduler.decoding
        and all(member.output_tokens > 0 for member in members.values())
    )


def _members(status: Status) -> dict[str, RequestStatus]:
    return {each.id: each for each in status.requests if each.phase == "decode" and not each.is_suspended}


def _growth(old: Status, new: Status) -> dict[str, int]:
    """Tokens by width, of those widths that had any."""
    before = old.scheduler.decode_tokens_by_width
    grown = {width: count - before.get(width, 0) for width, count in new.scheduler.decode_tokens_by_width.items()}
    return {width: count for width, count in grown.items() if count}


def _mean_context(members: dict[str, RequestStatus]) -> float:
    return sum(each.prompt_tokens + each.output_tokens for each in members.values()) / len(members)
