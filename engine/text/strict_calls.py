"""Follows an answer in which the model may call strict tools: all is free but what stands between a call's markers.

The bond begins with the marker, before the name is known, since a token may hold the end of a name and the beginning of
the arguments. So other tools' calls are bound too, to a name that was offered and any object.

A call within a thought is free: a model that only thinks about calling would be made to call.
"""

from llguidance import LLMatcher

from engine.errors import ConstraintFailed
from engine.request import SampledToken
from engine.text.decoder import TokenDecoder
from engine.text.grammar import Grammars, mask_of, reason_of
from engine.text.markup import ANSWER, ANSWER_AFTER_CALL, CALL, CALL_STATES, THOUGHT, Markup, Splitter


class StrictCalls:
    """`call` is a matcher at the beginning of a call, behind its marker. `state`: where the prompt leaves the model."""

    def __init__(
        self, call: LLMatcher, *, grammars: Grammars, decoder: TokenDecoder, markup: Markup, state: str
    ) -> None:
        self._call = call
        self._grammars = grammars
        self._decoder = decoder
        self._markup = markup
        self._splitter = Splitter(markup, state)
        self._open: LLMatcher | None = None
        if state == CALL:
            self._open = call.deep_copy()

    def allowed(self) -> bytes | None:
        """Raises ConstraintFailed when the schema allows nothing, or is too complex to tell."""
        return None if self._open is None else mask_of(self._open)

    def accept(self, token: int) -> None:
        """Raises ConstraintFailed when the token is not one that was allowed."""
        if self._open is None:
            self._watch(token)
            return
        if not self._open.consume_token(token):
            raise ConstraintFailed(reason_of(self._open))
        if self._open.is_stopped():
            self._open = None
            self._splitter = Splitter(self._markup, ANSWER if self._splitter.state == CALL else ANSWER_AFTER_CALL)

    def _watch(self, token: int) -> None:
        self._splitter.push(self._decoder.push(SampledToken(token)))
        while (span := self._splitter.next()) is not None:
            if self._splitter.state in CALL_STATES and span.state not in (THOUGHT, *CALL_STATES):
                self._begin()
                return

    def _begin(self) -> None:
        """What the marker's last token holds of the call must fit; a call that began otherwise is free."""
        rest = self._splitter.rest()
        tokens = self._grammars.tokens_of(rest.text)
        call = self._call.deep_copy()
        if call.validate_tokens(tokens) == len(tokens) and call.consume_tokens(tokens):
            self._open = call
        else:
            self._splitter.push(rest)
