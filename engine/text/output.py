"""Turns the tokens of one request into text, thought and tool-call events: the `engine.request.Output` of every model.

It chooses no tokens and knows no tokenizer (`engine.text.decoder` does); it runs on the worker thread, without MLX.

Rules that a client can rely on
- Stop strings end the answer's text only. Thoughts and tool calls may contain them.
- Newlines that touch a marker of a thought or a call are part of the marker; whitespace alone between two markers, or
  between a marker and the end, is nothing.
- A call is one only if tools were offered, and then as `engine.text.call_reader` says; all else is given out as text.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.request import Finish, SampledToken
from engine.text.call_families import new_reader
from engine.text.call_reader import CallBegins, CallEnds, CallPiece, CallReader
from engine.text.marked import MarkedText
from engine.text.markup import ANSWER, ANSWER_STATES, CALL_STATES, THOUGHT, Markup, Span, Splitter
from engine.text.stops import StopStrings
from engine.text.tool_calls import ToolParser, new_call_id
from engine.wire import Event, FinishReason, ReasoningDelta, TextDelta, ToolCallBegin, ToolCallDelta, ToolCallEnd


class Decoder(Protocol):
    """Turns tokens into text, as soon as whole characters are known."""

    def push(self, token: SampledToken) -> MarkedText: ...

    def flush(self) -> MarkedText: ...


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools that were offered (OpenAI function form), and how this model writes calls to them."""

    parser: ToolParser
    tools: Sequence[dict[str, Any]]
    parallel: bool = True


class TokenOutput:
    """One request's output. `state` is where the rendered prompt leaves the model: in a thought, or in the answer."""

    def __init__(
        self,
        *,
        decoder: Decoder,
        markup: Markup,
        state: str,
        end_tokens: Collection[int],
        ignore_end: bool = False,
        stops: Sequence[str] = (),
        tool_use: ToolUse | None = None,
        call_id: Callable[[], str] = new_call_id,
    ) -> None:
        self.finish: Finish | None = None
        self.reasoning_tokens = 0
        self._decoder = decoder
        self._markup = markup if tool_use is not None else markup.without_calls()
        self._splitter = Splitter(self._markup, state)
        self._stops = StopStrings(stops)
        self._end_tokens = end_tokens
        self._ignore_end = ignore_end
        self._tool_use = tool_use
        self._call_id = call_id
        self._num_calls = 0
        self._passage = _Passage(state=state, after_marker=state == THOUGHT)
        self._call: _OpenCall | None = None

    def push(self, token: SampledToken) -> Sequence[Event]:
        """Take one sampled token; return the events that are certain now. Sets `finish` when the output is complete."""
        if self.finish is not None:
            return ()
        if token.token in self._end_tokens:
            if not self._ignore_end:
                self.finish = Finish("stop")
            return ()
        was_thinking = self._is_thinking
        events = self._read(self._decoder.push(token))
        if was_thinking or self._is_thinking:
            self.reasoning_tokens += 1
        return events

    def close(self, reason: FinishReason) -> tuple[Sequence[Event], Finish]:
        """The request ends for `reason`, or for what `push` found. Return what was held back, and what to report."""
        events: list[Event] = []
        if self.finish is None or self.finish == Finish("stop"):
            # A model that ends by itself may leave its last call open; one that was cut off has not finished it.
            ended_by_itself = self.finish is not None or reason == "stop"
            events = self._read_rest(call_is_whole=ended_by_itself or self._markup.call_end is None)
        finish = self.finish or Finish(reason)
        if finish == Finish("stop") and self._num_calls:
            finish = Finish("tool_calls")
        self.finish = finish
        return events, finish

    @property
    def _is_thinking(self) -> bool:
        return self._passage.state == THOUGHT and self._call is None

    def _read(self, piece: MarkedText) -> list[Event]:
        events: list[Event] = []
        self._splitter.push(piece)
        while self.finish is None or self.finish == Finish("stop"):
            span = self._splitter.next()
            if span is None:
                break
            self._take(span, events)
        return _joined(events)

    def _read_rest(self, *, call_is_whole: bool) -> list[Event]:
        events = self._read(self._decoder.flush())
        rest = self._splitter.rest()
        if self._call is None:
            self._show(self._passage.push(rest), events)
        else:
            self._read_call(self._call, rest, events)
        if self._call is not None:
            self._end_call(self._call, MarkedText(), ANSWER, events, is_whole=call_is_whole)
        self._show(self._passage.end(at_marker=False), events)
        events.extend(self._stops.flush())
        return _joined(events)

    def _take(self, span: Span, events: list[Event]) -> None:
        if self._call is not None:
            self._take_of_call(self._call, span, events)
            return
        self._show(self._passage.push(span.piece), events)
        if span.ended_by is None:
            return
        if span.ended_by.next_state in CALL_STATES:
            # The passage stays open: it goes on if this turns out to be no call.
            assert self._tool_use is not None, "call markers are looked for only where tools were offered"
            # A thought may be about calls: there, one must be whole before it counts.
            reader_of = CallReader if self._passage.state == THOUGHT else new_reader
            reader = reader_of(self._tool_use.parser, self._tool_use.tools)
            self._call = _OpenCall(reader=reader, begin=span.marker_piece)
        else:
            self._move_on(span.ended_by.next_state, events)

    def _move_on(self, state: str, events: list[Event]) -> None:
        self._show(self._passage.end(at_marker=True), events)
        self._passage = _Passage(state=state, after_marker=True)

    def _take_of_call(self, call: "_OpenCall", span: Span, events: list[Event]) -> None:
        self._read_call(call, span.piece, events)
        if span.ended_by is None or self._call is None:
            return
        if call.reader.in_value:
            self._splitter.go_back(span.state)
            self._read_call(call, span.marker_piece, events)
            return
        is_whole = span.ended_by.text == self._markup.call_end
        self._end_call(call, span.marker_piece, span.ended_by.next_state, events, is_whole=is_whole)

    def _read_call(self, call: "_OpenCall", piece: MarkedText, events: list[Event]) -> None:
        pieces = call.reader.push(piece.text)
        if not call.reader.has_begun:
            call.body.append(piece)
        self._emit(pieces, events)

    def _end_call(
        self, call: "_OpenCall", end_piece: MarkedText, next_state: str, events: list[Event], *, is_whole: bool
    ) -> None:
        self._call = None
        pieces = call.reader.end(call.body.text, is_whole=is_whole)
        if call.reader.has_begun:
            self._move_on(next_state, events)
            self._emit(pieces, events)
            return
        if self._passage.state not in (THOUGHT, *ANSWER_STATES):
            # The call began where text is not shown (a message header); as text it belongs to the answer.
            self._move_on(ANSWER, events)
        ends_thought = end_piece.text == self._markup.think_end
        for piece in (call.begin, call.body) if ends_thought else (call.begin, call.body, end_piece):
            self._show(self._passage.push(piece), events)
        if ends_thought:
            self._move_on(next_state, events)
        else:
            self._splitter.go_back(self._passage.state)

    def _emit(self, pieces: Sequence[CallPiece], events: list[Event]) -> None:
        assert self._tool_use is not None
        for piece in pieces:
            index = self._num_calls - 1
            if isinstance(piece, CallBegins):
                self._num_calls += 1
                event: Event = ToolCallBegin(index=index + 1, id=self._call_id(), name=piece.name)
            elif isinstance(piece, CallEnds):
                event = ToolCallEnd(index=index)
            else:
                event = ToolCallDelta(index=index, arguments=piece.text)
            events.extend(self._stops.event(event))
            if isinstance(piece, CallEnds) and not self._tool_use.parallel:
                self._call = None
                self._move_on(ANSWER, events)
                events.extend(self._stops.flush())
                self.finish = Finish("tool_calls")
                return

    def _show(self, piece: MarkedText, events: list[Event]) -> None:
        if not piece.text:
            return
        if self._passage.state == THOUGHT:
            events.extend(self._stops.event(ReasoningDelta(text=piece.text, logprobs=piece.logprobs)))
        elif self._passage.state in ANSWER_STATES:
            events.extend(self._stops.text(piece))
            if self._stops.found is not None:
                self.finish = Finish("stop", self._stops.found)


@dataclass(slots=True)
class _OpenCall:
    """`begin` is its marker. `body` is what stands behind it, until it is certain to be a call."""

    reader: CallReader
    begin: MarkedText
    body: MarkedText = field(default_factory=MarkedText)


@dataclass(slots=True)
class _Passage:
    """One run of text between two markers. Holds back the whitespace at its edges until it is known to be text."""

    state: str
    after_marker: bool
    has_text: bool = False
    held: MarkedText = field(default_factory=MarkedText)

    def push(self, piece: MarkedText) -> MarkedText:
        """Return the part that is certain to be text."""
        self.held.append(piece)
        if not self.has_text:
            if not self.after_marker:
                self.has_text = bool(self.held.text)
            elif self.held.text.strip():
                self.has_text = True
                self.held.take(len(self.held.text) - len(self.held.text.lstrip("\n")))
        if not self.has_text:
            return MarkedText()
        text = self.held.text
        # Only a thought hides the newlines at its end; an answer's are shown as they come.
        return self.held.take(len(text.rstrip("\n")) if self.state == THOUGHT else len(text))

    def end(self, *, at_marker: bool) -> MarkedText:
        """The run is over: what is held is part of the marker, or, at the end of a text that had begun, text."""
        held, self.held = self.held, MarkedText()
        return MarkedText() if at_marker or not self.has_text else held


def _joined(events: list[Event]) -> list[Event]:
    """Neighbouring deltas of one kind as one."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            joined[-1] = TextDelta(text=last.text + event.text, logprobs=last.logprobs + event.logprobs)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            joined[-1] = ReasoningDelta(text=last.text + event.text, logprobs=last.logprobs + event.logprobs)
        elif isinstance(event, ToolCallDelta) and isinstance(last, ToolCallDelta):
            joined[-1] = ToolCallDelta(index=event.index, arguments=last.arguments + event.arguments)
        else:
            joined.append(event)
    return joined
