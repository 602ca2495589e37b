"""The answer of GET /status, field by field: a part of the engine's door, which `engine.wire` passes on.

It holds no behaviour: it imports the standard library and msgspec only. Clients import `engine.wire`.
"""

from typing import Literal

import msgspec

EngineState = Literal["loading", "ready", "stopping", "failed"]
RequestClass = Literal["interactive", "batch"]
Phase = Literal["queued", "prefill", "decode"]


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
    """How the KV of the running streams lies: per-sequence rows, or padded to the longest; and why."""

    kind: Literal["rows", "padded"]
    reason: str


class SelfTest(Frozen, frozen=True, omit_defaults=False):
    """One check of the loaded model at start. `error` is the largest difference in logits seen, against `tolerance`."""

    name: str
    passed: bool
    error: float | None
    tolerance: float | None
    detail: str = ""


class LoadProgress(Frozen, frozen=True, omit_defaults=False):
    """Weights read so far. `seconds` grows until the model is ready, then stands."""

    bytes_read: int = 0
    bytes_total: int = 0
    seconds: float = 0.0


class Admission(Frozen, frozen=True, omit_defaults=False):
    waiting: int = 0
    waiting_memory: int = 0
    waiting_concurrency: int = 0
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


class RequestCounts(Frozen, frozen=True, omit_defaults=False):
    submitted: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0


class MemoryPlan(Frozen, frozen=True, omit_defaults=False):
    """Bytes, computed from the headers of the weights before anything was loaded.

    need(context, sequences) = weights + fixed + sequences * (state_bytes_per_sequence + context * kv_bytes_per_token).
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


class MemoryActual(Frozen, frozen=True, omit_defaults=False):
    """Bytes as MLX and the operating system report them."""

    active_bytes: int = 0
    peak_bytes: int = 0
    cache_bytes: int = 0
    kv_bytes: int = 0
    process_bytes: int = 0


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


class Status(Frozen, frozen=True, omit_defaults=False):
    """GET /status: a snapshot that the worker published at `sampled_at_s` (Unix time).

    `sampled_monotonic_s` is for differences. `membership_epoch` grows whenever a request joins or leaves the decoding
    streams, `steps` whenever the device did a step.
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
