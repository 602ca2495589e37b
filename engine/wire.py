"""The engine's door: every path, request, event and answer of the HTTP API that the engine process serves.

It holds no behaviour: it imports the standard library and msgspec only, so that a client carries nothing else
of the engine.
"""

from typing import Any, Final, Literal

from engine.wire_status import (
    Admission,
    EngineState,
    Frozen,
    LayoutStatus,
    LoadProgress,
    MemoryActual,
    MemoryPlan,
    ModelStatus,
    Phase,
    RequestClass,
    RequestCounts,
    RequestStatus,
    SchedulerStatus,
    SelfTest,
    Status,
)

__all__ = [
    "Admission",
    "EngineState",
    "Frozen",
    "LayoutStatus",
    "LoadProgress",
    "MemoryActual",
    "MemoryPlan",
    "ModelStatus",
    "Phase",
    "RequestClass",
    "RequestCounts",
    "RequestStatus",
    "SchedulerStatus",
    "SelfTest",
    "Status",
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


# --- What a client sends -------------------------------------------------------------------------------------------


class TextPart(Frozen, frozen=True, tag_field="type", tag="text"):
    text: str


class ImagePart(Frozen, frozen=True, tag_field="type", tag="image"):
    """An image by identity. `data` is base64 of the file, sent once; `sha256` is hex over the decoded bytes."""

    sha256: str
    media_type: str
    data: str | None = None


Part = TextPart | ImagePart


class ToolCall(Frozen, frozen=True):
    """A call that the model made earlier.

    `arguments_raw` is what it wrote; `arguments` is that text parsed, if it parses.
    """

    id: str
    name: str
    arguments_raw: str
    arguments: dict[str, Any] | None = None


class Message(Frozen, frozen=True):
    """One turn, in the order and the role in which the client sent it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[Part, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


class Tool(Frozen, frozen=True):
    """A function that the model may call. `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False


class ToolChoice(Frozen, frozen=True):
    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool = True


class Sampling(Frozen, frozen=True):
    """How the next token is chosen.

    `None` means the model's own default (generation_config.json), else the usual neutral value.

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


class Prompt(Frozen, frozen=True):
    """What is rendered and tokenised: exactly one of `messages`, `text` (no template) and `tokens`."""

    messages: tuple[Message, ...] | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_arguments: dict[str, Any] = {}
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    continue_last: bool = False


class GenerateRequest(Frozen, frozen=True):
    """Body of POST /generate. `max_tokens` None means up to the end of the context."""

    id: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    request_class: RequestClass = "interactive"


class CountRequest(Frozen, frozen=True):
    """Body of POST /count.

    With an `id`, the rendering is kept for the /generate of that id, which need not repeat the work.
    """

    prompt: Prompt
    id: str | None = None


class CountAnswer(Frozen, frozen=True):
    prompt_tokens: int
    maximum_context_tokens: int


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
    """A piece of the arguments; all pieces of an index joined are valid JSON when the call ended by itself."""

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

    `param` names the field of the request; the numbers are there when they explain it.
    """

    code: ErrorCode
    message: str
    retryable: bool = False
    param: str | None = None
    prompt_tokens: int | None = None
    maximum_context_tokens: int | None = None


class Health(Frozen, frozen=True, omit_defaults=False):
    """GET /healthz, the one path without a secret: identity of the process, and nothing about its work."""

    pid: int
    nonce: str
    state: EngineState
    wire_version: int = WIRE_VERSION
    error: str | None = None


class CancelAnswer(Frozen, frozen=True, omit_defaults=False):
    id: str
    found: bool


# --- The launch file: what control writes (0600) before it spawns the engine ---------------------------------------


class Launch(Frozen, frozen=True, omit_defaults=False):
    """`SPLASH_HOME/secrets/engine.json`. The secret is the bearer token of every path but /healthz."""

    secret: str
    nonce: str
    port: int
    model: str
    concurrency: int = 4
    context: int | None = None
    budget_bytes: int | None = None


class ProcessRecord(Frozen, frozen=True, omit_defaults=False):
    """`SPLASH_HOME/run/NAME.json`: who a process is.

    `created_at_s` is the kernel's start time of the pid (psutil create_time).
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
