"""Compiles what an answer must look like (JSON, a JSON schema, a regular expression, a call) for one tokenizer.

It follows no answer (`engine.text.constraint` does), and knows no model's call format (`engine.text.tool_grammar`).

The library is llguidance (`docs/adr/0006-grammar-library.md`). It refuses every keyword that it does not enforce, but
for those that JSON schema calls annotations and for unknown ones, which the standard calls that too.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from engine.errors import ConstraintFailed, InvalidRequest
from engine.text.choices import with_exclusive_choices
from engine.text.compiling import LONGEST_S, Compilations, Deadline, TookTooLong
from engine.text.decoder import TokenDecoder
from engine.text.grammar_cost import check_cost
from engine.text.tokenizer import TextModel
from engine.wire import Grammar

# With those of `engine.text.grammar_cost`, what llguidance's own limits leave unbounded or slow: a compilation stays
# below about 3 s on a slow core.
MOST_GRAMMAR_BYTES: Final = 256 * 1024
# Of 1 to 2 KiB each, kept with the grammar as answers reach them.
MOST_LEXER_STATES: Final = 50_000
# Compiled ones are some MiB each at worst; a client uses a few, again and again.
MOST_KEPT: Final = 32
_LONGEST_REASON: Final = 300
_DEAD_ENDS: Final = ("NoExtension", "NoExtensionBias")
_OVERLAPPING: Final = (
    "two choices of a oneOf may be satisfied by one value: use anyOf, or give each choice the type object and a "
    "required property with another const"
)
# Where the reason is in a text that the client never saw.
_PLACE: Final = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")

# Forcing would ask for a canonical tokenisation on the worker's thread; the model finds one by itself.
_OPTIONS: Final = '%llguidance {"no_forcing": true}\n'
# A space, or a line's end and its indentation: a model that is lost would write whitespace for ever.
_JSON_OPTIONS: Final = {"x-guidance": {"whitespace_pattern": r"\r?\n[ \t]{0,64}|[ \t]"}}
# Sets of tokens that are looked at as one where a grammar takes all of them: texts of JSON, and of XML.
_SLICES: Final = [*LLTokenizer.json_slices(), "[^<]+"]
_ANY_OBJECT: Final[dict[str, Any]] = {"type": "object"}


class Grammars:
    """What was compiled for one model, the most recently used kept. The text thread owns it."""

    def __init__(self, model: TextModel) -> None:
        """Takes a second for a large vocabulary, and holds the interpreter for it: so it is done at load."""
        end_tokens = sorted(token for token in model.end_tokens if token < model.vocabulary_size)
        vocabulary = _Vocabulary(model, end_tokens)
        self.newlines = vocabulary.newlines
        self._tokenizer = (
            LLTokenizer(TokenizerWrapper(vocabulary), eos_token=end_tokens, slices=_SLICES) if end_tokens else None
        )
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()
        self.compilations = Compilations()

    def answer(self, grammar: Grammar) -> LLMatcher:
        """At the beginning of an answer. Raises InvalidRequest with the reason when it can't be compiled."""
        if grammar.kind == "regex":
            return self.compile(f"start: {regex_rule(grammar.pattern or '')}", param="grammar")
        schema = _ANY_OBJECT if grammar.kind == "json_object" else grammar.schema
        return self.compile(
            f"start: {json_rule(_ANY_OBJECT if schema is None else schema, param='grammar')}", param="grammar"
        )

    def compile(self, rules: str, *, param: str, deadline: Deadline | None = None) -> LLMatcher:
        """`rules` in llguidance's variant of Lark. The matcher is the caller's own. Raises InvalidRequest.

        `deadline` None: it has as long as a request may take that compiles nothing else.
        """
        if self._tokenizer is None:
            raise InvalidRequest("this model has no end-of-text token, so nothing could end the answer", param=param)
        kept = self._kept.get(rules)
        if kept is None:
            kept = self._kept[rules] = self._compiled(rules, self._tokenizer, param, deadline or Deadline())
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(rules)
        return kept.deep_copy()

    def _compiled(self, rules: str, tokenizer: LLTokenizer, param: str, deadline: Deadline) -> LLMatcher:
        if len(rules) > MOST_GRAMMAR_BYTES:
            raise InvalidRequest(f"the grammar is larger than {MOST_GRAMMAR_BYTES} bytes", param=param)
        try:
            matcher = self.compilations.run(lambda: _compiled(rules, tokenizer), deadline)
        except TookTooLong as error:
            raise InvalidRequest(f"the grammar takes longer than {LONGEST_S:.0f} s to compile", param=param) from error
        if matcher.is_error():
            raise InvalidRequest(f"the grammar cannot be compiled: {reason_of(matcher)}", param=param)
        return matcher

    def tokens_of(self, text: str) -> list[int]:
        """Tokens that make the text, not as the model would choose them."""
        return [] if self._tokenizer is None else self._tokenizer.greedy_tokenize(text)


def json_rule(schema: Mapping[str, Any] | bool, *, param: str) -> str:
    """The part of a rule that stands for JSON of this schema. Raises InvalidRequest for one that is too costly."""
    if schema is False:
        raise InvalidRequest("nothing satisfies the schema false", param=param)
    described = {} if schema is True else dict(schema)
    check_cost(described, param)
    return f"%json {json.dumps(with_exclusive_choices(described) | _JSON_OPTIONS)}"


def text_rule(text: str) -> str:
    """The part of a rule that stands for this text."""
    return json.dumps(text, ensure_ascii=False)


def regex_rule(pattern: str) -> str:
    """The part of a rule that stands for a text that the pattern matches as a whole."""
    lark: str = json.loads(LLMatcher.grammar_from_regex(pattern))["grammars"][0]["lark_grammar"]
    return lark.removeprefix("start: ")


class _Vocabulary:
    """Tokens as bytes, in the form that LLTokenizer takes. Special ones and markers are no text: no grammar holds them.

    Format: what llguidance's `TokenizerWrapper` takes.
    """

    bos_token_id = None

    def __init__(self, model: TextModel, end_tokens: list[int]) -> None:
        decoder = TokenDecoder(model.tokenizer, continues_text=True)
        self.tokens = [_bytes_of(decoder, token) for token in range(model.vocabulary_size)]
        self.eos_token_id = end_tokens[0] if end_tokens else None
        markers = {marker.text for of_state in model.markup.markers.values() for marker in of_state}
        added: Mapping[int, Any] = model.tokenizer.added_tokens_decoder
        special = (token for token, entry in added.items() if entry.special or entry.content in markers)
        self.special_token_ids = sorted({*special, *end_tokens} & set(range(model.vocabulary_size)))
        self.newlines = {token: len(data) for token, data in enumerate(self.tokens) if data and not data.strip(b"\n")}

    def __call__(self, text: str | bytes) -> list[int]:
        """Asked for canonical tokens, which nothing here needs."""
        return []


def _bytes_of(decoder: TokenDecoder, token: int) -> bytes:
    """Without a table of bytes, part of a character comes out as U+FFFD, which is not what the token stands for."""
    data = decoder.bytes_of(token)
    return b"" if "\ufffd".encode() in data else data


def _compiled(rules: str, tokenizer: LLTokenizer) -> LLMatcher:
    """In a state of error when it can't be."""
    limits = LLParserLimits(max_lexer_states=MOST_LEXER_STATES, verbose_errors=False)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(_OPTIONS + rules), log_level=0, limits=limits)
    if not matcher.is_error():
        # Some find out only now that nothing satisfies them, or that they are too large.
        matcher.compute_bitmask()
    return matcher


def mask_of(matcher: LLMatcher) -> bytes:
    """What may come next. Raises ConstraintFailed when that is nothing, or too complex to tell."""
    mask = matcher.compute_bitmask()
    if matcher.is_error():
        raise ConstraintFailed(reason_of(matcher))
    if mask.count(0) == len(mask):
        raise ConstraintFailed("no token of the model continues the answer")
    return mask


def reason_of(matcher: LLMatcher) -> str:
    """One line of the library's message: it repeats the grammar in the others."""
    lines = [line.strip() for line in matcher.get_error().splitlines() if line.strip()] or ["unknown"]
    said = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    if "oneOf constraints are not supported" in said:
        return _OVERLAPPING
    return "nothing satisfies it" if said in _DEAD_ENDS else _PLACE.sub("", said)[:_LONGEST_REASON]
