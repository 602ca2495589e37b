"""Follows one answer by its grammar: what the next token may be. The `engine.request.Constraint` of every request.

It compiles nothing (`engine.text.grammar` does), and cuts nothing: what is text and what is a call is the output's.

What stands before the answer is free: a thought, a message header, and the newlines behind them. Where the model may
still open a thought, it may do so instead of beginning the answer; where tools are offered and none is required, it may
begin a call instead, and what follows a call is free. The calls of strict tools are `engine.text.strict_calls`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from llguidance import LLMatcher

from engine.errors import ConstraintFailed
from engine.request import Constraint, SampledToken
from engine.text.decoder import TokenDecoder
from engine.text.grammar import Grammars, mask_of, reason_of
from engine.text.markup import ANSWER_STATES, CALL, CALL_STATES, NO_MARKUP, Markup, Splitter
from engine.text.prompts import callable_tools
from engine.text.strict_calls import StrictCalls
from engine.text.template import Rendered
from engine.text.tokenizer import TextModel
from engine.text.tool_grammar import call_of, calls_of, has_call_grammar
from engine.wire import GenerateRequest, Prompt

# A generation prompt that closes the thought itself ends in that marker, and perhaps a few newlines.
_TAIL_TOKENS: Final = 8
# Behind the marker of a thought; the output takes them for a part of it.
MOST_NEWLINES: Final = 2

# Free, at the answer's first token, or behind it.
Phase = Literal["free", "beginning", "following"]


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Tokens that may stand where the answer begins, and are not of the grammar. `newlines`: how many each is."""

    thought: tuple[int, ...]
    call: tuple[int, ...]
    newlines: Mapping[int, int]


def constraint_of(
    asked: GenerateRequest, rendered: Rendered, model: TextModel, grammars: Grammars
) -> Constraint | None:
    """What the answer of this request must follow; a call that is required goes before the answer's own grammar.

    Where the manner in which the model writes calls has no grammar, requiring one stays a wish, and so does strictness.
    Raises InvalidRequest, with the reason, when a grammar can't be compiled.
    """
    choice, parser = asked.prompt.tool_choice, model.tokenizer.tool_parser
    has_tools = bool(rendered.tools) and parser is not None
    must_call = has_tools and choice.mode in ("required", "named") and has_call_grammar(model)
    may_call = has_tools and not must_call
    if must_call:
        matcher = calls_of(callable_tools(asked.prompt), model, grammars, parallel=choice.parallel)
    elif asked.grammar is not None:
        matcher = grammars.answer(asked.grammar)
    else:
        return _strict_calls(asked.prompt, rendered, model, grammars, state=rendered.state) if may_call else None
    markup = model.markup if rendered.has_markup else NO_MARKUP
    return GrammarConstraint(
        matcher,
        grammars=grammars,
        decoder=TokenDecoder(model.tokenizer, continues_text=rendered.continues_text),
        markup=markup if has_tools else markup.without_calls(),
        state=rendered.state,
        beginnings=Beginnings(
            thought=_tokens_of(markup.think_start, model) if _may_think(asked.prompt, rendered, model) else (),
            call=_tokens_of(markup.call_start, model) if may_call else (),
            newlines=grammars.newlines,
        ),
        calls=_strict_calls(asked.prompt, rendered, model, grammars, state=CALL) if may_call else None,
    )


def _strict_calls(
    prompt: Prompt, rendered: Rendered, model: TextModel, grammars: Grammars, *, state: str
) -> StrictCalls | None:
    tools = callable_tools(prompt)
    if not any(tool.strict for tool in tools) or not rendered.has_markup or not has_call_grammar(model):
        return None
    return StrictCalls(
        call_of(tools, model, grammars),
        grammars=grammars,
        decoder=TokenDecoder(model.tokenizer, continues_text=rendered.continues_text),
        markup=model.markup,
        state=state,
    )


def _tokens_of(marker: str | None, model: TextModel) -> tuple[int, ...]:
    return tuple(model.tokenizer.encode(marker, add_special_tokens=False)) if marker else ()


def _may_think(prompt: Prompt, rendered: Rendered, model: TextModel) -> bool:
    if prompt.effort == "none" or prompt.continue_last or model.markup.think_end is None:
        return False
    tail = str(model.tokenizer.decode(list(rendered.tokens[-_TAIL_TOKENS:])))
    return not tail.rstrip().endswith(model.markup.think_end)


class GrammarConstraint:
    """`state` is where the rendered prompt leaves the model (`engine.text.markup`)."""

    def __init__(
        self,
        matcher: LLMatcher,
        *,
        grammars: Grammars,
        decoder: TokenDecoder,
        markup: Markup,
        state: str,
        beginnings: Beginnings,
        calls: StrictCalls | None = None,
    ) -> None:
        """`calls` takes over behind the marker of a call that stands instead of the answer; without it, all is free."""
        self._matcher = matcher
        self._grammars = grammars
        self._decoder = decoder
        self._splitter = Splitter(markup, state)
        self._beginnings = beginnings
        self._calls = calls
        self._is_in_calls = False
        self._phase: Phase = "beginning" if state in ANSWER_STATES else "free"
        self._is_watched = self._phase == "free"  # does the answer begin later?
        self._may_think = self._phase == "beginning"
        self._newlines_left = 0
        self._forced: tuple[int, ...] = ()  # the rest of a marker of several tokens

    def allowed(self) -> bytes | None:
        """Raises ConstraintFailed when the grammar allows nothing, or is too complex to tell."""
        if self._forced:
            return _with_tokens(bytes(self._forced[0] // 32 * 4 + 4), self._forced[:1])
        if self._phase == "free":
            return self._calls.allowed() if self._calls is not None and self._is_in_calls else None
        if self._phase == "beginning":
            return _with_tokens(mask_of(self._matcher), self._others())
        return mask_of(self._matcher)

    def accept(self, token: int) -> None:
        """Raises ConstraintFailed when the token is not one that was allowed."""
        if self._phase == "free":
            if self._is_in_calls and self._calls is not None and not self._forced:
                self._calls.accept(token)
            self._forced = self._forced[1:]
            if self._is_watched:
                self._watch(token)
        elif self._phase == "beginning" and token in self._others():
            self._begin_otherwise(token)
        else:
            self._phase = "following"
            self._follow([token])

    def _others(self) -> list[int]:
        """Tokens that may come instead of the grammar's first."""
        found = [*self._beginnings.call[:1]]
        if self._may_think:
            found += self._beginnings.thought[:1]
        return found + [token for token, count in self._beginnings.newlines.items() if count <= self._newlines_left]

    def _begin_otherwise(self, token: int) -> None:
        if token in self._beginnings.newlines:
            self._newlines_left -= self._beginnings.newlines[token]
            return
        is_call = self._beginnings.call[:1] == (token,)
        self._forced = (self._beginnings.call if is_call else self._beginnings.thought)[1:]
        self._phase = "free"
        self._is_watched, self._is_in_calls = not is_call, is_call
        if self._is_watched:
            self._watch(token)

    def _watch(self, token: int) -> None:
        """Look for the beginning of the answer, or for a call, in what is free."""
        self._splitter.push(self._decoder.push(SampledToken(token)))
        while self._splitter.next() is not None:
            if self._splitter.state in CALL_STATES:
                self._is_watched = False
                return
            if self._splitter.state in ANSWER_STATES:
                self._phase, self._may_think, self._newlines_left = "beginning", False, MOST_NEWLINES
                rest = self._splitter.rest().text.lstrip("\n")
                if rest:
                    self._phase = "following"
                    self._follow(self._grammars.tokens_of(rest))
                return

    def _follow(self, tokens: Sequence[int]) -> None:
        # Behind its end an answer goes on only where ends are ignored, and then with nothing else.
        if not self._matcher.is_stopped() and not self._matcher.consume_tokens(list(tokens)):
            raise ConstraintFailed(reason_of(self._matcher))


def _with_tokens(mask: bytes, tokens: Iterable[int]) -> bytes:
    changed = bytearray(mask)
    for token in tokens:
        if token // 8 < len(changed):
            changed[token // 8] |= 1 << token % 8
    return bytes(changed)
