"""What a client sends to POST /generate and POST /count: a part of the engine's door, which `engine.wire` passes on.

It holds no behaviour: it imports the standard library and msgspec only. Clients import `engine.wire`.
"""

from typing import Any, Literal

from engine.wire_status import Frozen, RequestClass


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


class Grammar(Frozen, frozen=True):
    """What the answer must look like; thinking before it is free.

    json_object: any JSON object · json_schema: `schema` · regex: `pattern`, matched as a whole.
    """

    kind: Literal["json_object", "json_schema", "regex"]
    schema: dict[str, Any] | bool | None = None
    pattern: str | None = None


class GenerateRequest(Frozen, frozen=True):
    """Body of POST /generate. `max_tokens` None means up to the end of the context."""

    id: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    request_class: RequestClass = "interactive"
    grammar: Grammar | None = None


class CountRequest(Frozen, frozen=True):
    """Body of POST /count.

    With an `id`, the rendering is kept for the /generate of that id, which need not repeat the work.
    """

    prompt: Prompt
    id: str | None = None


class CountAnswer(Frozen, frozen=True):
    prompt_tokens: int
    maximum_context_tokens: int
