"""The Response object: what a stream begins and ends with, and the whole answer for a client that wants no stream.

Format: OpenAI response. It writes no item (`responses_output`) and no event (`responses_answer`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from control.dialects.collected import Collected, Words
from control.dialects.error_answers import openai_error
from control.dialects.response_history import Conversation, OwnHistory, Turn, turn
from control.dialects.responses_output import OutputItems
from control.dialects.responses_tools import NeutralTools
from control.errors import ApiError, ContextTooLong
from engine import wire

Status = Literal["in_progress", "completed", "incomplete", "failed"]

# Codex sends a failed request again unless it knows the code as final: this one it does.
FINAL_CODE: Final = "invalid_prompt"


@dataclass(frozen=True, slots=True)
class Remembering:
    """Where the conversation goes when the answer is whole: what came before it, and what this request added."""

    history: OwnHistory
    before: Conversation
    asked: Turn


@dataclass(frozen=True, slots=True)
class Asked:
    """What an answer needs of its request. `echo` is what the Response object repeats of it, encoded.

    `remembering` is None for a request that is not to be stored.
    """

    request_id: str
    created_at: int
    tools: NeutralTools
    echo: dict[str, msgspec.Raw] = field(default_factory=dict)
    remembering: Remembering | None = None

    @property
    def response_id(self) -> str:
        return f"resp_{self.request_id}"

    def response(
        self,
        model: str,
        status: Status,
        *,
        output: Sequence[dict[str, Any]] = (),
        finished: wire.Finished | None = None,
        error: ApiError | None = None,
    ) -> dict[str, Any]:
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None if error is None else response_error(error),
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": model,
            "output": output,
            "usage": None if finished is None else _usage(finished.usage),
            **self.echo,
        }

    def remember(self, output: OutputItems) -> None:
        """Once, at the end of an answer that has not failed."""
        if self.remembering is None:
            return
        answer = turn(output.whole, is_answer=True)
        conversation = (*self.remembering.before, self.remembering.asked, answer)
        self.remembering.history.put(self.response_id, conversation)


def final_status(finished: wire.Finished) -> Status:
    return "incomplete" if finished.reason == "length" else "completed"


def response_body(asked: Asked, answer: Collected) -> bytes:
    """The items are those that the stream would have had."""
    output = OutputItems(asked.request_id, asked.tools)
    for event in _events(answer):
        output.add(event)
    asked.remember(output)
    status = final_status(answer.finished)
    return msgspec.json.encode(asked.response(answer.model, status, output=output.whole, finished=answer.finished))


def response_error(error: ApiError) -> dict[str, Any]:
    """Whatever Codex should not send again has a code that it does not retry; it retries all that it doesn't know."""
    is_final = error.status < 500 and not error.retryable and not isinstance(error, ContextTooLong)
    details = openai_error(error)["error"]
    return {**details, "code": FINAL_CODE if is_final else error.code}


def _events(answer: Collected) -> list[wire.AnyEvent]:
    events: list[wire.AnyEvent] = []
    for index, part in enumerate(answer.parts):
        if isinstance(part, Words):
            kind = wire.TextDelta if part.kind == "text" else wire.ReasoningDelta
            events.append(kind(text=part.text, logprobs=tuple(part.logprobs)))
            continue
        events += [
            wire.ToolCallBegin(index=index, id=part.begin.id, name=part.begin.name),
            wire.ToolCallDelta(index=index, arguments=part.arguments),
            wire.ToolCallEnd(index=index),
        ]
    return [*events, answer.finished]


def _usage(usage: wire.Usage) -> dict[str, Any]:
    """Cached tokens are part of the input's, reasoning tokens of the output's; both details are always there."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
