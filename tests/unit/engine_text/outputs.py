"""What the output tests share: a decoder whose tokens are the pieces of a text, and one way to run a whole output."""

import json
from itertools import count, pairwise

from engine.request import SampledToken
from engine.text.marked import Mark, MarkedText
from engine.text.markup import ANSWER, ANSWER_AFTER_CALL, CALL, CALL_IN_THOUGHT, THOUGHT, Marker, Markup
from engine.text.output import TokenOutput, ToolUse
from engine.wire import ReasoningDelta, TextDelta, TokenLogprob, ToolCallBegin, ToolCallDelta

END = 10**6

MARKUP = Markup(
    markers={
        ANSWER: (Marker("<think>", THOUGHT), Marker("<tool_call>", CALL)),
        THOUGHT: (Marker("</think>", ANSWER), Marker("<tool_call>", CALL_IN_THOUGHT)),
        CALL: (Marker("</tool_call>", ANSWER),),
        CALL_IN_THOUGHT: (Marker("</tool_call>", ANSWER_AFTER_CALL), Marker("</think>", ANSWER)),
        ANSWER_AFTER_CALL: (
            Marker("<think>", THOUGHT),
            Marker("<tool_call>", CALL_IN_THOUGHT),
            Marker("</think>", ANSWER),
        ),
    },
    think_start="<think>",
    think_end="</think>",
    call_start="<tool_call>",
    call_end="</tool_call>",
)

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "", "parameters": {}}}]


def parse_json_call(text, tools):
    return json.loads(text)


class PieceDecoder:
    """Token n is the n-th piece of a text. An empty piece is a part of a character whose rest is in the next piece."""

    def __init__(self, pieces):
        self._pieces = pieces
        self._undecoded = []

    def push(self, token):
        if token.logprob is not None:
            piece = self._pieces[token.token]
            self._undecoded.append(TokenLogprob(token=piece, bytes=tuple(piece.encode()), logprob=token.logprob))
        text = self._pieces[token.token]
        if not text:
            return MarkedText()
        marks, self._undecoded = [Mark(len(text), logprob) for logprob in self._undecoded], []
        return MarkedText(text, marks)

    def flush(self):
        return MarkedText()


def make_output(pieces, *, state=ANSWER, stops=(), tools=TOOLS, parallel=True, markup=MARKUP, parser=parse_json_call):
    ids = count()
    return TokenOutput(
        decoder=PieceDecoder(pieces),
        markup=markup,
        state=state,
        end_tokens={END},
        stops=stops,
        tool_use=ToolUse(parser=parser, tools=tools, parallel=parallel) if tools else None,
        call_id=lambda: f"call_{next(ids)}",
    )


class Played:
    """The events of a whole output and what they add up to. `ends_by_itself`: the model sampled its end token."""

    def __init__(self, pieces, *, ends_by_itself=True, reason="length", logprobs=False, **how):
        self.output = make_output(pieces, **how)
        self.events = []
        self.num_pushed = 0
        for token in range(len(pieces)):
            self.events.extend(self.output.push(SampledToken(token, -float(token) if logprobs else None)))
            self.num_pushed += 1
            if self.output.finish is not None:
                break
        if self.output.finish is None and ends_by_itself:
            self.events.extend(self.output.push(SampledToken(END)))
        ending = self.output.finish.reason if self.output.finish else reason
        rest, self.finish = self.output.close(ending)
        self.events.extend(rest)

    @property
    def text(self):
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def thought(self):
        return "".join(event.text for event in self.events if isinstance(event, ReasoningDelta))

    @property
    def calls(self):
        calls = {event.index: [event.id, event.name, ""] for event in self.events if isinstance(event, ToolCallBegin)}
        for event in self.events:
            if isinstance(event, ToolCallDelta):
                calls[event.index][2] += event.arguments
        return [tuple(call) for _, call in sorted(calls.items())]

    @property
    def order(self):
        """The kinds of the events, neighbours of one kind as one: what does not depend on how the text was cut."""
        kinds = [type(event).__name__ for event in self.events]
        return [kind for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]]


def cut(text, places):
    """`text` in pieces, cut at `places`."""
    edges = [0, *sorted({place for place in places if 0 < place < len(text)}), len(text)]
    return [text[a:b] for a, b in pairwise(edges) if a < b]
