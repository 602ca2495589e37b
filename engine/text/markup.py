"""Finds the markers in a model's output: which text is a thought, which is a tool call, which is the answer.

It turns text into spans and no further: nothing here parses a call, cuts at stop strings or makes events. mlx-lm names
the markers (`TokenizerWrapper`); its own state machine is not used because it cannot go back: a call that turns out not
to be one must be given out as the text that it is, in the state in which it began.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.text.marked import MarkedText, num_withheld

# States, named as in mlx-lm's response formats. Text in any other state (a message header) is not shown.
ANSWER: Final = "normal"
THOUGHT: Final = "reasoning"
CALL: Final = "tool"
# Some models call a tool without closing the thought. There the end of the thought also ends what only looked like one.
CALL_IN_THOUGHT: Final = "tool in reasoning"
CALL_STATES: Final = (CALL, CALL_IN_THOUGHT)
# The answer after such a call. Other models close the thought behind their calls: that marker is still to come, once.
ANSWER_AFTER_CALL: Final = "normal after a call in reasoning"
ANSWER_STATES: Final = (ANSWER, ANSWER_AFTER_CALL)


@dataclass(frozen=True, slots=True)
class Marker:
    """Text that ends a state and opens `next_state`."""

    text: str
    next_state: str


@dataclass(frozen=True, slots=True)
class Markup:
    """The markers of a model, by the state in which they are looked for. `opens_in` is the state after a prompt."""

    markers: Mapping[str, tuple[Marker, ...]]
    think_start: str | None = None
    think_end: str | None = None
    call_start: str | None = None
    call_end: str | None = None
    opens_in: str = ANSWER

    @classmethod
    def of(cls, tokenizer: Any) -> "Markup":
        """The markers that mlx-lm knows for this model. Source of the edges: its `make_text_state_machine`."""
        edges: dict[str, list[Marker]] = {ANSWER: []}
        transitions: Mapping[str, Sequence[tuple[str, str]]] = tokenizer.response_transitions
        if tokenizer.has_thinking:
            edges[ANSWER].append(Marker(tokenizer.think_start, THOUGHT))
            edges[THOUGHT] = [Marker(tokenizer.think_end, ANSWER)]
        if tokenizer.has_tool_calling:
            # Some models have no end marker: the call lasts until the end of the text.
            edges[CALL] = [Marker(tokenizer.tool_call_end, ANSWER)] if tokenizer.tool_call_end else []
            if not any(state == CALL for pairs in transitions.values() for _, state in pairs):
                edges[ANSWER].append(Marker(tokenizer.tool_call_start, CALL))
            if tokenizer.has_thinking:
                edges[THOUGHT].append(Marker(tokenizer.tool_call_start, CALL_IN_THOUGHT))
                edges[CALL_IN_THOUGHT] = [
                    *[Marker(end.text, ANSWER_AFTER_CALL) for end in edges[CALL]],
                    Marker(tokenizer.think_end, ANSWER),
                ]
        edges[ANSWER].extend(Marker(text, ANSWER) for text in tokenizer.structural_markers)
        for state, pairs in transitions.items():
            edges.setdefault(state, []).extend(Marker(text, next_state) for text, next_state in pairs)
        if CALL_IN_THOUGHT in edges:
            in_thought = {CALL: CALL_IN_THOUGHT, ANSWER: ANSWER_AFTER_CALL}
            as_in_answer = [
                Marker(marker.text, in_thought.get(marker.next_state, marker.next_state)) for marker in edges[ANSWER]
            ]
            edges[ANSWER_AFTER_CALL] = [*as_in_answer, Marker(tokenizer.think_end, ANSWER)]
        return cls(
            markers={state: tuple(markers) for state, markers in edges.items()},
            think_start=tokenizer.think_start,
            think_end=tokenizer.think_end,
            call_start=tokenizer.tool_call_start,
            call_end=tokenizer.tool_call_end or None,
            opens_in=tokenizer.response_initial_state or ANSWER,
        )

    def without_calls(self) -> "Markup":
        """The same markup where no tool was offered: what looks like a call is part of the text around it."""
        markers = {
            state: tuple(marker for marker in of_state if marker.next_state not in CALL_STATES)
            for state, of_state in self.markers.items()
            if state not in CALL_STATES
        }
        return Markup(markers=markers, think_start=self.think_start, think_end=self.think_end, opens_in=self.opens_in)


NO_MARKUP: Final = Markup(markers={})


@dataclass(frozen=True, slots=True)
class Span:
    """Text of one state; then, unless more of it follows, the marker that ended the state, and that marker's text."""

    state: str
    piece: MarkedText
    ended_by: Marker | None = None
    marker_piece: MarkedText = field(default_factory=MarkedText)


class Splitter:
    """Cuts one output into spans. Text that may begin a marker is withheld until that is certain."""

    def __init__(self, markup: Markup, state: str) -> None:
        self._markup = markup
        self._buffer = MarkedText()
        self.state = state

    def push(self, piece: MarkedText) -> None:
        self._buffer.append(piece)

    def go_back(self, state: str) -> None:
        """Read what follows in `state`: the marker that was taken for one was none."""
        self.state = state

    def next(self) -> Span | None:
        """The next span that is certain, None when more text is needed. Moves on to the state that the span ends in."""
        markers = self._markup.markers.get(self.state, ())
        text = self._buffer.text
        found = [(at, marker) for marker in markers if (at := text.find(marker.text)) >= 0]
        state = self.state
        if found:
            # The one that is complete first, however the text was cut into tokens.
            begin, marker = min(found, key=lambda candidate: candidate[0] + len(candidate[1].text))
            piece = self._buffer.take(begin)
            self.state = marker.next_state
            return Span(state, piece, marker, self._buffer.take(len(marker.text)))
        certain = len(text) - num_withheld(text, tuple(marker.text for marker in markers))
        return Span(state, self._buffer.take(certain)) if certain else None

    def rest(self) -> MarkedText:
        """The end: what was withheld is text of the current state."""
        return self._buffer.take(len(self._buffer.text))
