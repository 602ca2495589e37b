"""The stream of an answer of /v1/responses. Format: OpenAI's typed stream events, each with `event:` and `data:`.

It reads no request. A stream is: created, in_progress, the items, and exactly one of completed, incomplete and failed.
"""

from collections.abc import Sequence
from typing import Any

from control.dialects.exchange import HeartbeatMode
from control.dialects.responses_body import Asked, Status, final_status
from control.dialects.responses_output import OutputItems
from control.dialects.sse import COMMENT, named
from control.errors import ApiError
from engine import wire


class ResponsesStreamEncoder:
    """An `Encoder`. `created` comes before every other event: OpenAI's SDKs give up a stream that begins otherwise.

    Codex counts events and not comments, so that only the mode `typed` keeps it alive beyond five minutes in the midst
    of an answer; OpenAI's own service sends this event.
    """

    def __init__(self, asked: Asked, *, heartbeat: HeartbeatMode) -> None:
        self._asked = asked
        self._heartbeat = heartbeat
        self._output = OutputItems(asked.request_id, asked.tools)
        self._model = ""
        self._num_events = 0

    def expect(self, *, model: str, prompt_tokens: int | None) -> None:
        self._model = model

    def encode(self, events: Sequence[wire.AnyEvent]) -> bytes:
        return b"".join(self._frames(event) for event in events)

    def heartbeat(self, *, is_yielded: bool) -> bytes:
        """The first one begins the stream, whatever the mode."""
        if not self._num_events:
            return self._begin()
        if self._heartbeat == "typed":
            return self._frame({"type": "keepalive"})
        # OpenAI's SDK for Node fails on an in_progress without the items that were added.
        if self._heartbeat == "in_progress" and not self._output.has_begun:
            return self._lifecycle("response.in_progress", "in_progress")
        return COMMENT

    def error(self, error: ApiError) -> bytes:
        response = self._asked.response(self._model, "failed", output=self._output.whole, error=error)
        return self._begin() + self._frame({"type": "response.failed", "response": response})

    def _frames(self, event: wire.AnyEvent) -> bytes:
        # Before the stream begins: what breaks off without more than heartbeats is run again.
        told = self._output.add(event)
        if not told and not isinstance(event, wire.Finished):
            return b""
        frames = self._begin() + b"".join(map(self._frame, told))
        if isinstance(event, wire.Finished):
            self._asked.remember(self._output)
            status = final_status(event)
            frames += self._lifecycle(f"response.{status}", status, finished=event)
        return frames

    def _begin(self) -> bytes:
        if self._num_events:
            return b""
        return self._lifecycle("response.created", "in_progress") + self._lifecycle(
            "response.in_progress", "in_progress"
        )

    def _lifecycle(self, event_type: str, status: Status, *, finished: wire.Finished | None = None) -> bytes:
        response = self._asked.response(self._model, status, output=self._output.whole, finished=finished)
        return self._frame({"type": event_type, "response": response})

    def _frame(self, event: dict[str, Any]) -> bytes:
        self._num_events += 1
        return named({"type": event["type"], "sequence_number": self._num_events - 1, **event})
