"""The two ways to write an answer of /v1/completions: as chunks, or as one body. Format: OpenAI text_completion.

It reads no request, and never sees a failure. A raw prompt has no template, so that thought and answer are one text.
"""

import codecs
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from control.dialects.chat_answer import usage_of
from control.dialects.collected import Collected, Words
from control.dialects.error_answers import openai_error
from control.dialects.sse import COMMENT, DONE, unnamed
from control.errors import ApiError
from engine import wire


class CompletionStreamEncoder:
    """Each piece of text becomes a chunk, the same id, time and model on all; the finish reason comes last."""

    def __init__(self, answer_id: str, created: int, *, echo: str, has_usage_chunk: bool) -> None:
        self._frame = _frame(answer_id, created)
        self._echo = echo
        self._has_usage_chunk = has_usage_chunk
        self._offsets = _Offsets()

    def expect(self, *, model: str, prompt_tokens: int | None) -> None:
        self._frame["model"] = model

    def heartbeat(self, *, is_yielded: bool) -> bytes:
        return COMMENT

    def error(self, error: ApiError) -> bytes:
        return unnamed(openai_error(error))

    def encode(self, events: Sequence[wire.AnyEvent]) -> bytes:
        return b"".join(frame for event in events for frame in self._frames(event))

    def _frames(self, event: wire.AnyEvent) -> Iterator[bytes]:
        match event:
            case wire.TextDelta() | wire.ReasoningDelta():
                yield from self._echoed()
                yield self._chunk(_choice(event.text, _logprobs(event.logprobs, self._offsets), None))
            case wire.Finished():
                yield from self._echoed()
                yield self._chunk(_choice("", None, event.reason))
                if self._has_usage_chunk:
                    yield unnamed({**self._frame, "choices": [], "usage": usage_of(event.usage)})
                yield DONE

    def _echoed(self) -> Iterator[bytes]:
        if self._echo:
            echo, self._echo = self._echo, ""
            yield self._chunk(_choice(echo, None, None))

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return unnamed({**self._frame, "choices": [choice]})


def completion_body(answer_id: str, created: int, echo: str, answer: Collected) -> bytes:
    words = [part for part in answer.parts if isinstance(part, Words)]
    logprobs = [each for part in words for each in part.logprobs]
    text = echo + "".join(part.text for part in words)
    return msgspec.json.encode(
        {
            **_frame(answer_id, created),
            "model": answer.model,
            "choices": [_choice(text, _logprobs(logprobs, _Offsets()), answer.finished.reason)],
            "usage": usage_of(answer.finished.usage),
        }
    )


class _Offsets:
    """Where each token's text begins, in characters of the answer. The parts of a character begin where it does."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_characters = 0

    def next(self, token: bytes) -> int:
        offset = self._num_characters
        self._num_characters += len(self._decoder.decode(token))
        return offset


def _frame(answer_id: str, created: int) -> dict[str, Any]:
    return {
        "id": answer_id,
        "object": "text_completion",
        "created": created,
        "model": "",
        "system_fingerprint": None,
    }


def _choice(text: str, logprobs: dict[str, Any] | None, reason: wire.FinishReason | None) -> dict[str, Any]:
    # Without tools nothing can be called; a client of this path knows no such reason.
    return {
        "text": text,
        "index": 0,
        "logprobs": logprobs,
        "finish_reason": "stop" if reason == "tool_calls" else reason,
    }


def _logprobs(tokens: Sequence[wire.TokenLogprob], offsets: _Offsets) -> dict[str, Any] | None:
    if not tokens:
        return None
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_likeliest(token) for token in tokens],
        "text_offset": [offsets.next(bytes(token.bytes)) for token in tokens],
    }


def _likeliest(token: wire.TokenLogprob) -> dict[str, float]:
    """The token itself is among them. Of those with one text, such as parts of characters, the likeliest counts."""
    likeliest: dict[str, float] = {}
    for text, logprob in [*((each.token, each.logprob) for each in token.top), (token.token, token.logprob)]:
        likeliest.setdefault(text, logprob)
    return likeliest
