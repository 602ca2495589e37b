"""The engine's door: every path, request, event and answer of the HTTP API that the engine process serves.

It holds no behaviour: it imports the standard library and msgspec only, so that a client carries nothing else of the engine.
"""

from typing import Any, Final, Literal

import msgspec

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

EngineState = Literal["loading", "ready", "stopping", "failed"]
RequestClass = Literal["interactive", "batch"]
Phase = Literal["queued", "prefill", "decode"]
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


class Frozen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value on the wire. Absent and default are the same thing; unknown fields are ignored, so that old and new talk."""


# --- What a client sends -------------------------------------------------------------------------------------------


class TextPart(Frozen, tag_field="type", tag="text"):
    text: str


class ImagePart(Frozen, tag_field="type", tag="image"):
    """An image by identity. `data` is base64 of the file, sent once; `sha256` is hex over the decoded bytes."""

    sha256: str
    media_type: str
    data: str | None = None


Part = TextPart | ImagePart


class ToolCall(Frozen):
    """A call that the model made earlier. `arguments_raw` is what it wrote; `arguments` is that text parsed, if it parses."""

    id: str
    name: str
    arguments_raw: str
    arguments: dict[str, Any] | None = None


class Message(Frozen):
    """One turn, in the order and the role in which the client sent it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[Part, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


class Tool(Frozen):
    """A function that the model may call. `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False


class ToolChoice(Frozen):
    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool = True


class Sampling(Frozen):
    """How the next token is chosen. `None` means the model's own default (generation_config.json), else the usual neutral value.

    `temperature` 0 is greedy. `logprobs` is how many alternatives to report per token (0–20); None reports nothing.
    The same seed, prompt and parameters give the same tokens, whatever else runs in the batch.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    logprobs: int | None = None


class Prompt(Frozen):
    """What is rendered and tokenised: exactly one of `messages`, `text` (no template) and `tokens`."""

    messages: tuple[Message, ...] | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_arguments: dict[str, Any] = {}
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    continue_last: bool = False


class GenerateRequest(Frozen):
    """Body of POST /generate. `max_tokens` None means up to the end of the context."""

    id: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    request_class: RequestClass = "interactive"


class CountRequest(Frozen):
    """Body of POST /count. With an `id`, the rendering is kept for the /generate of that id, which need not repeat the work."""

    prompt: Prompt
    id: str | None = None


class CountAnswer(Frozen):
    prompt_tokens: int
    maximum_context_tokens: int


# --- The events of POST /generate: NDJSON, one object a line -------------------------------------------------------


class Event(Frozen, tag_field="type"):
    """Base of all events. Exactly one of Finished and Failed ends a stream."""


class Accepted(Event, tag="accepted"):
    id: str
    prompt_tokens: int


class Prefill(Event, tag="prefill"):
    """Progress in tokens: `cached` <= `processed` <= `total`, never falling, at most 4 a second, none after the first token."""

    processed: int
    cached: int
    total: int


class Alternative(Frozen):
    token: str
    logprob: float


class TokenLogprob(Frozen):
    """The token's text (a lone part of a character shows as U+FFFD), its bytes, its natural-log probability, and the most likely ones."""

    token: str
    bytes: tuple[int, ...]
    logprob: float
    top: tuple[Alternative, ...] = ()


class ReasoningDelta(Event, tag="reasoning_delta"):
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class TextDelta(Event, tag="text_delta"):
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class ToolCallBegin(Event, tag="tool_call_begin"):
    index: int
    id: str
    name: str


class ToolCallDelta(Event, tag="tool_call_delta"):
    """A piece of the arguments; all pieces of an index joined are valid JSON when the call ended by itself."""

    index: int
    arguments: str


class ToolCallEnd(Event, tag="tool_call_end"):
    index: int


class Usage(Frozen):
    """Tokens. `cached` is part of `prompt`; `reasoning` is part of `completion`."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    drafted: int = 0
    accepted: int = 0


class Timings(Frozen):
    """Wall clock in ms. `first_emission_tokens` came together as the first: they belong to the TTFT, not to the decode speed."""

    wait_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    first_emission_tokens: int = 0


class Finished(Event, tag="finished"):
    reason: FinishReason
    stop_sequence: str | None = None
    usage: Usage = Usage()
    timings: Timings = Timings()


class Failed(Event, tag="failed"):
    code: ErrorCode
    message: str
    retryable: bool = False
    usage: Usage = Usage()
    timings: Timings = Timings()


AnyEvent = (
    Accepted
    | Prefill
    | ReasoningDelta
    | TextDelta
    | ToolCallBegin
    | ToolCallDelta
    | ToolCallEnd
    | Finished
    | Failed
)


# --- Answers -------------------------------------------------------------------------------------------------------


class ErrorAnswer(Frozen):
    """Body of every answer that is not 200. `param` names the field of the request; the numbers are there when they explain it."""

    code: ErrorCode
    message: str
    retryable: bool = False
    param: str | None = None
    prompt_tokens: int | None = None
    maximum_context_tokens: int | None = None


class Health(Frozen, omit_defaults=False):
    """GET /healthz, the one path without a secret: identity of the process, and nothing about its work."""

    pid: int
    nonce: str
    state: EngineState
    wire_version: int = WIRE_VERSION
    error: str | None = None


class CancelAnswer(Frozen, omit_defaults=False):
    id: str
    found: bool


class ModelStatus(Frozen, omit_defaults=False):
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


class LayoutStatus(Frozen, omit_defaults=False):
    """How the KV of the running streams lies: per-sequence rows, or padded to the longest; and why."""

    kind: Literal["rows", "padded"]
    reason: str


class SelfTest(Frozen, omit_defaults=False):
    """One check of the loaded model at start. `error` is the largest difference in logits that was seen, against `tolerance`."""

    name: str
    passed: bool
    error: float | None
    tolerance: float | None
    detail: str = ""


class LoadProgress(Frozen, omit_defaults=False):
    """Weights read so far. `seconds` grows until the model is ready, then stands."""

    bytes_read: int = 0
    bytes_total: int = 0
    seconds: float = 0.0


class Admission(Frozen, omit_defaults=False):
    waiting: int = 0
    waiting_memory: int = 0
    waiting_concurrency: int = 0
    oldest_wait_ms: float = 0.0
    draining: bool = False


class SchedulerStatus(Frozen, omit_defaults=False):
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


class RequestCounts(Frozen, omit_defaults=False):
    submitted: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0


class MemoryPlan(Frozen, omit_defaults=False):
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


class MemoryActual(Frozen, omit_defaults=False):
    """Bytes as MLX and the operating system report them."""

    active_bytes: int = 0
    peak_bytes: int = 0
    cache_bytes: int = 0
    kv_bytes: int = 0
    process_bytes: int = 0


class RequestStatus(Frozen, omit_defaults=False):
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


class Status(Frozen, omit_defaults=False):
    """GET /status: a snapshot that the worker published at `sampled_at_s` (Unix time; `sampled_monotonic_s` for differences).

    `membership_epoch` grows whenever a request joins or leaves the decoding streams; `steps` whenever the device did a step.
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


# --- The launch file: what control writes (0600) before it spawns the engine ---------------------------------------


class Launch(Frozen, omit_defaults=False):
    """`SPLASH_HOME/secrets/engine.json`. The secret is the bearer token of every path but /healthz."""

    secret: str
    nonce: str
    port: int
    model: str
    concurrency: int = 4
    context: int | None = None
    budget_bytes: int | None = None


class ProcessRecord(Frozen, omit_defaults=False):
    """`SPLASH_HOME/run/NAME.json`: who a process is. `created_at_s` is the kernel's start time of the pid (psutil create_time)."""

    name: Literal["engine", "control", "webui"]
    pid: int
    created_at_s: float
    nonce: str
    port: int
    manager: Literal["detached", "launchd", "control", "foreground"]
    started_at_s: float
    version: str
    ports: dict[str, int] = {}
