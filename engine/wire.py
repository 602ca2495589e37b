"""The engine's door: every path, request, event and answer of the HTTP API that the engine process serves.

It holds no behaviour: it imports the standard library and msgspec only, so that a client carries nothing else
of the engine.
"""

from typing import Final, Literal

from engine.wire_prompt import (
    CountAnswer,
    CountRequest,
    GenerateRequest,
    Grammar,
    ImagePart,
    Message,
    Part,
    Prompt,
    Sampling,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from engine.wire_status import (
    Admission,
    CacheStatus,
    DeviceStatus,
    EngineState,
    Frozen,
    GovernorStatus,
    LayoutStatus,
    LoadProgress,
    MemoryActual,
    MemoryPlan,
    MissCause,
    MissExplanation,
    ModelStatus,
    Phase,
    PromiseStatus,
    RequestClass,
    RequestCounts,
    RequestStatus,
    Roofline,
    SchedulerStatus,
    SelfTest,
    SlidingWindow,
    SnapshotKind,
    Status,
    TraceEnd,
    TraceStatus,
)

__all__ = [
    "Admission",
    "CacheStatus",
    "CountAnswer",
    "CountRequest",
    "DeviceStatus",
    "EngineState",
    "Frozen",
    "GenerateRequest",
    "GovernorStatus",
    "Grammar",
    "ImagePart",
    "LayoutStatus",
    "LoadProgress",
    "MemoryActual",
    "MemoryPlan",
    "Message",
    "MissCause",
    "MissExplanation",
    "ModelStatus",
    "Part",
    "Phase",
    "PromiseStatus",
    "Prompt",
    "RequestClass",
    "RequestCounts",
    "RequestStatus",
    "Roofline",
    "Sampling",
    "SchedulerStatus",
    "SelfTest",
    "SlidingWindow",
    "SnapshotKind",
    "Status",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "TraceEnd",
    "TraceStatus",
]

WIRE_VERSION: Final = 1

GENERATE: Final = "/generate"
COUNT: Final = "/count"
STATUS: Final = "/status"
HEALTHZ: Final = "/healthz"
CANCEL: Final = "/cancel/{id}"
SHUTDOWN: Final = "/shutdown"
CACHE_CLEAR: Final = "/cache/clear"
TRACE_START: Final = "/trace/start"
TRACE_STOP: Final = "/trace/stop"

NDJSON: Final = "application/x-ndjson"

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]
ErrorCode = Literal[
    "invalid_request",
    "unauthorized",
    "not_found",
    "context_length_exceeded",
    "out_of_memory",
    "not_ready",
    "not_implemented",
    "stopping",
    "internal",
]


# --- The events of POST /generate: NDJSON, one object a line -------------------------------------------------------


class Event(Frozen, frozen=True, tag_field="type"):
    """Base of all events. Exactly one of Finished and Failed ends a stream."""


class Accepted(Event, frozen=True, tag="accepted"):
    id: str
    prompt_tokens: int


class Prefill(Event, frozen=True, tag="prefill"):
    """Progress in tokens: `cached` <= `processed` <= `total`, never falling, ≤ 4/s, none after the first token."""

    processed: int
    cached: int
    total: int


class Alternative(Frozen, frozen=True):
    token: str
    logprob: float


class TokenLogprob(Frozen, frozen=True):
    """A token as text (part of a character shows as U+FFFD) and bytes, its natural-log probability, the likeliest."""

    token: str
    bytes: tuple[int, ...]
    logprob: float
    top: tuple[Alternative, ...] = ()


class ReasoningDelta(Event, frozen=True, tag="reasoning_delta"):
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class TextDelta(Event, frozen=True, tag="text_delta"):
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class ToolCallBegin(Event, frozen=True, tag="tool_call_begin"):
    index: int
    id: str
    name: str


class ToolCallDelta(Event, frozen=True, tag="tool_call_delta"):
    """A piece of the arguments; all pieces of an index joined are valid JSON when the call is complete.

    A malformed or cut-off call is ended with the beginning of a JSON text, never with a made-up end.
    """

    index: int
    arguments: str


class ToolCallEnd(Event, frozen=True, tag="tool_call_end"):
    index: int


class Usage(Frozen, frozen=True):
    """Tokens. `cached` is part of `prompt`; `reasoning` is part of `completion`."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    drafted: int = 0
    accepted: int = 0


class Timings(Frozen, frozen=True):
    """Wall clock in ms.

    `first_emission_tokens` came together as the first: they belong to the TTFT, not to the decode speed.
    """

    wait_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    first_emission_tokens: int = 0


class Finished(Event, frozen=True, tag="finished"):
    reason: FinishReason
    stop_sequence: str | None = None
    usage: Usage = Usage()
    timings: Timings = Timings()


class Failed(Event, frozen=True, tag="failed"):
    code: ErrorCode
    message: str
    retryable: bool = False
    usage: Usage = Usage()
    timings: Timings = Timings()


AnyEvent = (
    Accepted | Prefill | ReasoningDelta | TextDelta | ToolCallBegin | ToolCallDelta | ToolCallEnd | Finished | Failed
)


# --- Answers -------------------------------------------------------------------------------------------------------


class ErrorAnswer(Frozen, frozen=True):
    """Body of every answer that is not 200.

    `param` names the field of the request; the numbers are there when they explain it. `reason`: why a model can't be
    loaded, one of `engine.errors.RefusalReason`.
    """

    code: ErrorCode
    message: str
    retryable: bool = False
    param: str | None = None
    prompt_tokens: int | None = None
    maximum_context_tokens: int | None = None
    reason: str | None = None


class Health(Frozen, frozen=True, omit_defaults=False):
    """GET /healthz, the one path without a secret: identity of the process, and nothing about its work."""

    pid: int
    nonce: str
    state: EngineState
    wire_version: int = WIRE_VERSION
    error: str | None = None


class CacheCleared(Frozen, frozen=True, omit_defaults=False):
    """Answer of POST /cache/clear: what the prefix cache gave back."""

    freed_bytes: int
    blocks: int
    snapshots: int


class CancelAnswer(Frozen, frozen=True, omit_defaults=False):
    id: str
    found: bool


# --- The launch file: what control writes (0600) before it spawns the engine ---------------------------------------


class Launch(Frozen, frozen=True, omit_defaults=False):
    """`SPLASH_HOME/secrets/engine.json`. The secret is the bearer token of every path but /healthz.

    `kv_bits` 8 or 4 quantises keys and values. `max_gap_ms` and `decode_share` are what streams are promised while a
    prompt is prefilled.
    """

    secret: str
    nonce: str
    port: int
    model: str
    concurrency: int = 4
    context: int | None = None
    budget_bytes: int | None = None
    kv_bits: int | None = None
    max_gap_ms: float = 500.0
    decode_share: float = 0.5


class ProcessRecord(Frozen, frozen=True, omit_defaults=False):
    """`SPLASH_HOME/run/NAME.json`: who a process is.

    `created_at_s` is the kernel's start time of the pid (psutil create_time); on Linux it moves when the clock is set.
    `created_after_boot_s` does not: seconds from the machine's boot to that start. None where the system has no such.
    """

    name: Literal["engine", "control", "webui"]
    pid: int
    created_at_s: float
    nonce: str
    port: int
    manager: Literal["detached", "launchd", "control", "foreground"]
    started_at_s: float
    version: str
    ports: dict[str, int] = {}
    created_after_boot_s: float | None = None
