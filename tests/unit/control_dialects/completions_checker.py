"""What every stream of /v1/completions must look like, as a state machine, and the answer that it amounts to.

It knows nothing of how the stream was made.
"""

from dataclasses import dataclass, field

import msgspec

from tests.unit.control_dialects.chat_checker import checked_usage

CHUNK_KEYS = {"id", "object", "created", "model", "system_fingerprint", "choices"}
CHOICE_KEYS = {"text", "index", "logprobs", "finish_reason"}
LOGPROB_KEYS = {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
REASONS = {"stop", "length", "content_filter"}


@dataclass
class CheckedCompletion:
    text: str = ""
    logprobs: dict[str, list] = field(default_factory=lambda: {key: [] for key in LOGPROB_KEYS})
    finish_reason: str | None = None
    usage: dict | None = None
    error: dict | None = None
    num_heartbeats: int = 0


def check_completion_stream(stream: bytes, *, has_usage_chunk: bool) -> CheckedCompletion:
    """Raises AssertionError for a stream that some client would trip over. States: text → (usage) → end → done."""
    answer, state, same = CheckedCompletion(), "text", None
    assert stream.endswith(b"\n\n")
    for frame in stream.decode().removesuffix("\n\n").split("\n\n"):
        assert state not in ("done", "failed"), f"a frame behind the end: {frame}"
        assert "\n" not in frame
        if frame.startswith(":"):
            answer.num_heartbeats += 1
            continue
        data = frame.removeprefix("data: ")
        assert data != frame
        if data == "[DONE]":
            assert state == "end"
            state = "done"
            continue
        chunk = msgspec.json.decode(data)
        if "error" in chunk:
            assert set(chunk) == {"error"}
            answer.error, state = chunk["error"], "failed"
            continue
        assert chunk["object"] == "text_completion" and chunk["id"] and chunk["model"]
        assert same in (None, (chunk["id"], chunk["created"], chunk["model"]))
        same = (chunk["id"], chunk["created"], chunk["model"])
        if state == "usage":
            assert chunk["choices"] == [] and set(chunk) == CHUNK_KEYS | {"usage"}
            answer.usage, state = checked_usage(chunk["usage"]), "end"
            continue
        assert state == "text" and set(chunk) == CHUNK_KEYS
        [choice] = chunk["choices"]
        _add(choice, answer)
        if choice["finish_reason"] is not None:
            state = "usage" if has_usage_chunk else "end"
    assert state in ("done", "failed"), f"the stream stops in the state {state}"
    return answer


def check_completion_body(body: bytes) -> CheckedCompletion:
    """The same of an answer that is no stream."""
    written = msgspec.json.decode(body)
    assert written["object"] == "text_completion" and set(written) == CHUNK_KEYS | {"usage"}
    [choice] = written["choices"]
    answer = CheckedCompletion(usage=checked_usage(written["usage"]))
    _add(choice, answer)
    assert answer.finish_reason is not None
    return answer


def _add(choice: dict, answer: CheckedCompletion) -> None:
    assert set(choice) == CHOICE_KEYS and choice["index"] == 0 and isinstance(choice["text"], str)
    assert choice["finish_reason"] in REASONS | {None}
    answer.text += choice["text"]
    answer.finish_reason = choice["finish_reason"]
    if choice["logprobs"] is None:
        return
    assert set(choice["logprobs"]) == LOGPROB_KEYS
    assert len({len(values) for values in choice["logprobs"].values()}) == 1, "all lists are as long as the tokens"
    for key, values in choice["logprobs"].items():
        answer.logprobs[key] += values
    assert answer.logprobs["text_offset"] == sorted(answer.logprobs["text_offset"])
