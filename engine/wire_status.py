"""The answer of GET /status, field by field: a part of the engine's door, which `engine.wire` passes on.

It holds no behaviour: it imports the standard library and msgspec only. Clients import `engine.wire`.
"""

from typing import Literal

import msgspec

EngineState = Literal["loading", "ready", "stopping", "failed"]
RequestClass = Literal["interactive", "batch"]
Phase = Literal["queued", "prefill", "decode"]
SnapshotKind = Literal[
    "shared_end", "message_start", "prompt_end", "junction", "sibling", "rolling", "decoded", "suspended"
]
TraceEnd = Literal["stopped", "full", "broken", "ended"]
MissCause = Literal["cold", "differs", "never_taken", "evicted"]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value on the wire. Absent and default are the same; unknown fields are ignored, so that old and new talk."""


class ModelStatus(Frozen, frozen=True, omit_defaults=False):
    """The loaded model. `is_demo` says that its weights are random."""

    id: str
    path: str
    architecture: str
    quantization: str | None
    is_demo: bool
    maximum_context_tokens: int
    native_context_tokens: int
    has_thinking: bool
    has_tools: bool


class LayoutStatus(Frozen, frozen=True, omit_defaults=False):
    """How the KV of the running streams lies: per-sequence rows, or padded to the longest; and why.

    `kv_bits` None: keys and values as the model computes them.
    """

    kind: Literal["rows", "padded"]
    reason: str
    kv_bits: int | None = None


class SelfTest(Frozen, frozen=True, omit_defaults=False):
    """One check of the loaded model at start. `error` is the largest difference seen, against `tolerance`.

    It is of logits; of outputs and state, relative, for "gated_delta". `is_supported` False: it did not pass because a
    model of this kind has no such thing, and nothing is wrong.
    """

    name: str
    passed: bool
    error: float | None
    tolerance: float | None
    detail: str = ""
    is_supported: bool = True


class LoadProgress(Frozen, frozen=True, omit_defaults=False):
    """Weights read so far. `seconds` grows until the model is ready, then stands.

    `read_seconds` is the part of it that weights were read in: bytes_read / read_seconds is the speed of the disk.
    """

    bytes_read: int = 0
    bytes_total: int = 0
    seconds: float = 0.0
    read_seconds: float = 0.0


class Admission(Frozen, frozen=True, omit_defaults=False):
    waiting: int = 0
    waiting_memory: int = 0
    waiting_concurrency: int = 0
    waiting_prefix: int = 0
    suspended: int = 0
    oldest_wait_ms: float = 0.0
    draining: bool = False


class SchedulerStatus(Frozen, frozen=True, omit_defaults=False):
    """Cumulative counters, but for the first three. `decode_steps_by_width["b2"]` counts steps with two streams."""

    queued: int = 0
    prefilling: int = 0
    decoding: int = 0
    prefill_batches: int = 0
    prefill_rows: int = 0
    prefill_wall_ms: float = 0.0
    decode_batches: int = 0
    decode_batches_by_width: dict[str, int] = {}
    decode_tokens_by_width: dict[str, int] = {}
    decode_wall_ms: float = 0.0
    overtakes: int = 0
    suspensions: int = 0
    resumptions: int = 0
    prefix_waits: int = 0


class PromiseStatus(Frozen, frozen=True, omit_defaults=False):
    """What running streams are promised while a prompt is prefilled, and how often it was not kept.

    A stream waits `max_gap_ms` for its next token at most, and has `decode_share` of the time.
    """

    max_gap_ms: float
    decode_share: float
    largest_gap_ms: float = 0.0
    gap_violations: int = 0
    share_violations: int = 0
    gaps: int = 0
    windows: int = 0


class MissExplanation(Frozen, frozen=True, omit_defaults=False):
    """Why a prompt was not served from the cache as far as one could wish. Positions and lengths in tokens.

    The prompt equals an earlier one up to `first_difference`, which is its first differing token; None: no earlier one
    begins alike. `restored_tokens` were restored; `distance_tokens` more are whole blocks of what is equal, and were
    computed again. `matched_tokens`: as far as blocks are still stored.

    `cause`: cold, nothing was restored, and no whole block is equal to anything that was known; differs, all that is
    equal was restored, in whole blocks; never_taken, no snapshot was ever taken further on; evicted, what would have
    been restored had made room.
    """

    id: str
    sampled_at_s: float
    cause: MissCause
    prompt_tokens: int
    restored_tokens: int
    matched_tokens: int
    first_difference: int | None
    distance_tokens: int


class CacheStatus(Frozen, frozen=True, omit_defaults=False):
    """The prefix cache. Bytes and entries are of now, the rest is cumulative since the start; `misses`: the last 100.

    `reason` says why it is off. A lookup is a request that began to prefill; `hit_rate` is
    reused_tokens / lookup_tokens.
    """

    is_on: bool
    reason: str = ""
    budget_bytes: int = 0
    used_bytes: int = 0
    block_bytes: int = 0
    snapshot_bytes: int = 0
    blocks: int = 0
    extents: int = 0
    snapshots: int = 0
    lookups: int = 0
    hits: int = 0
    cold_misses: int = 0
    lookup_tokens: int = 0
    reused_tokens: int = 0
    matched_tokens: int = 0
    hit_rate: float = 0.0
    blocks_published: int = 0
    snapshots_published: int = 0
    blocks_evicted: int = 0
    snapshots_evicted: int = 0
    snapshots_retired: int = 0
    junctions: int = 0
    missed_boundaries: int = 0
    restore_ms: float = 0.0
    publish_ms: float = 0.0
    clears: int = 0
    misses: tuple[MissExplanation, ...] = ()


class RequestCounts(Frozen, frozen=True, omit_defaults=False):
    submitted: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0


class MemoryPlan(Frozen, frozen=True, omit_defaults=False):
    """Bytes, computed from the headers of the weights before anything was loaded.

    need(context, sequences) = weights + fixed + sequences * (2 * state_bytes_per_sequence + context *
    kv_bytes_per_token): a running sequence keeps its state twice, one live and one to resume from.
    A session that stays warm in the prefix cache takes `warm_session_bytes(context)` = context * kv_bytes_per_token +
    snapshots_per_session * state_bytes_per_sequence. A pool below `smallest_pool_bytes` can't run a short request.
    `is_known` False: not all layers are, so contexts are counted as large as can be, or not at all.
    """

    weights_bytes: int
    fixed_bytes: int
    kv_bytes_per_token: int
    state_bytes_per_sequence: int
    pool_bytes: int
    limit_bytes: int
    maximum_context_tokens: int
    fits: bool
    verdict: str
    reserve_bytes: int = 0
    kv_bits: int | None = None
    snapshots_per_session: int = 0
    longest_context_tokens: int = 0
    warm_session_tokens: int = 0
    warm_sessions: int = 0
    smallest_pool_bytes: int = 0
    is_known: bool = True


class SlidingWindow(Frozen, frozen=True, omit_defaults=False):
    """Layers that attend to the newest `tokens` only; all those of one size together."""

    tokens: int
    bytes_per_token: int


class Roofline(Frozen, frozen=True, omit_defaults=False):
    """What a decode step reads from memory, and how fast memory is: together they bound the speed. Bytes.

    A step with `width` streams reads `shared_bytes` once; the union of the experts that its tokens chose, each of
    `expert_bytes` in all layers together; and of each stream state_bytes + context * kv_bytes_per_token +
    min(context, window) * bytes_per_token for every window. No experts: `num_experts` is 0.
    `bandwidth_bytes_per_s` was measured when the model was loaded, reads and writes counted alike.
    """

    bandwidth_bytes_per_s: float
    shared_bytes: int
    kv_bytes_per_token: int
    state_bytes: int = 0
    windows: tuple[SlidingWindow, ...] = ()
    expert_bytes: int = 0
    num_experts: int = 0
    experts_per_token: int = 0


class GovernorStatus(Frozen, frozen=True, omit_defaults=False):
    """The pool as the machine allows it now. `pool_bytes` is below the plan's while other programs take memory."""

    pool_bytes: int = 0
    planned_pool_bytes: int = 0
    available_bytes: int = 0
    observed_bytes: int = 0
    planned_bytes: int = 0
    shrinks: int = 0
    is_pressed: bool = False


class MemoryActual(Frozen, frozen=True, omit_defaults=False):
    """Bytes as MLX and the operating system report them."""

    active_bytes: int = 0
    peak_bytes: int = 0
    cache_bytes: int = 0
    kv_bytes: int = 0
    process_bytes: int = 0


class TraceStatus(Frozen, frozen=True, omit_defaults=False):
    """The trace of the cache's life: the one that is written, or the last. `file`: its name in SPLASH_HOME/traces.

    `ended`: as it was told; because it was as large as may be; because the file failed (`error`); with the engine.
    """

    is_on: bool
    file: str | None = None
    began_at_s: float | None = None
    num_bytes: int = 0
    ended: TraceEnd | None = None
    error: str | None = None


class DeviceStatus(Frozen, frozen=True, omit_defaults=False):
    """What computes. `working_set_bytes`: what a GPU recommended at most when the engine started; None: a CPU."""

    kind: Literal["cpu", "metal", "cuda"]
    working_set_bytes: int | None = None


class RequestStatus(Frozen, frozen=True, omit_defaults=False):
    """A request that is in the engine now. `tokens_per_second` is of the phase it is in; 0 when not known yet."""

    id: str
    phase: Phase
    request_class: RequestClass
    prompt_tokens: int
    cached_tokens: int
    prefilled_tokens: int
    output_tokens: int
    tokens_per_second: float
    age_ms: float
    is_suspended: bool = False


class Status(Frozen, frozen=True, omit_defaults=False):
    """GET /status: a snapshot that the worker published at `sampled_at_s` (Unix time).

    `sampled_monotonic_s` is for differences. `membership_epoch` grows whenever a request joins or leaves the decoding
    streams, `steps` whenever the device did a step. `text_busy_s`: how long what prepares prompts and grammars
    has been at one piece of work, as of the answer; 0 while it has nothing to do.
    """

    sampled_at_s: float
    sampled_monotonic_s: float
    wire_version: int
    state: EngineState
    ready: bool
    pid: int
    uptime_s: float
    membership_epoch: int
    steps: int
    concurrency: int
    model: ModelStatus | None
    layout: LayoutStatus | None
    self_tests: tuple[SelfTest, ...]
    load: LoadProgress
    admission: Admission
    scheduler: SchedulerStatus
    request_counts: RequestCounts
    memory_plan: MemoryPlan | None
    memory_actual: MemoryActual
    requests: tuple[RequestStatus, ...]
    error: str | None = None
    cache: CacheStatus | None = None
    promises: PromiseStatus | None = None
    governor: GovernorStatus | None = None
    roofline: Roofline | None = None
    device: DeviceStatus | None = None
    trace: TraceStatus | None = None
    text_busy_s: float = 0.0
