"""Makes a request of a body: decode, check, render, tokenise, limit. All of it runs on the one text thread.

It submits nothing and streams nothing (`engine.door.server`). What it needs of the model is its text side only, so that
it works while the weights load.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.blocks import TokenBlocks
from engine.door.bodies import decode
from engine.door.checks import check_id, check_request
from engine.errors import ContextTooLong
from engine.request import Constraint, PromptMarks, SamplingParameters
from engine.text.constraint import constraint_of
from engine.text.decoder import TokenDecoder
from engine.text.grammar import Grammars
from engine.text.markup import NO_MARKUP
from engine.text.output import TokenOutput, ToolUse
from engine.text.pieces import Pieces, pieces_of
from engine.text.template import Rendered, render
from engine.text.tokenizer import TextModel
from engine.wire import CountAnswer, CountRequest, GenerateRequest, Prompt

# Renderings that a /count leaves for its /generate: many more than run at once, within a bound on memory.
MOST_KEPT: Final = 64
MOST_KEPT_TOKENS: Final = 2_000_000


class _PromptBytes(msgspec.Struct):
    prompt: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Admitted:
    """A checked /generate: everything that the worker's Request needs but its connection."""

    asked: GenerateRequest
    prompt: tuple[int, ...]
    blocks: TokenBlocks
    marks: PromptMarks
    sampling: SamplingParameters
    max_tokens: int
    output: TokenOutput
    constraint: Constraint | None


class Intake:
    """Loads the text side of the model when it is first needed. Not thread-safe: the text thread owns it."""

    def __init__(self, load: Callable[[], TextModel], maximum_context_tokens: int) -> None:
        self._load = load
        self._loaded: TextModel | None = None
        self._grammars: Grammars | None = None
        self._pieces: Pieces | None = None
        self._maximum_context_tokens = maximum_context_tokens
        self._kept: OrderedDict[str, tuple[bytes, Rendered]] = OrderedDict()
        self._num_kept_tokens = 0

    def load(self) -> TextModel:
        if self._loaded is None:
            self._loaded = loaded = self._load()
            self._grammars = Grammars(loaded)
            self._pieces = pieces_of(
                loaded.tokenizer, loaded.habits.openings, has_positions=loaded.habits.has_positions
            )
        return self._loaded

    @property
    def given_up_s(self) -> float:
        """How long a grammar that took too long has been compiling, 0 when there is none. For any thread."""
        return 0.0 if self._grammars is None else self._grammars.compilations.longest_s()

    def count(self, body: bytes) -> CountAnswer:
        """Raises InvalidRequest. A prompt longer than the context is counted too, unless it is beyond all hope."""
        asked = decode(body, CountRequest)
        if asked.id is not None:
            check_id(asked.id)
        rendered = self._render(asked.prompt)
        if asked.id is not None:
            self._keep(asked.id, _fingerprint(body), rendered)
        return CountAnswer(prompt_tokens=len(rendered.tokens), maximum_context_tokens=self._maximum_context_tokens)

    def admit(self, body: bytes) -> Admitted:
        """Raises InvalidRequest, and ContextTooLong when no room is left for a single token."""
        asked = decode(body, GenerateRequest)
        model = self.load()
        check_request(asked, model.vocabulary_size)
        rendered = self._take_kept(asked.id, _fingerprint(body)) or self._render(asked.prompt)
        room = self._maximum_context_tokens - len(rendered.tokens)
        if room < 1:
            raise ContextTooLong(
                prompt_tokens=len(rendered.tokens), maximum_context_tokens=self._maximum_context_tokens
            )
        return Admitted(
            asked=asked,
            prompt=rendered.tokens,
            blocks=TokenBlocks(rendered.tokens),
            marks=rendered.marks,
            sampling=model.defaults.resolve(asked.sampling),
            max_tokens=room if asked.max_tokens is None else min(asked.max_tokens, room),
            output=_output(asked, rendered, model),
            constraint=self._constraint(asked, rendered),
        )

    def forget(self) -> None:
        """Keep nothing of earlier prompts. What was counted and is not admitted yet is rendered again."""
        self._kept.clear()
        self._num_kept_tokens = 0
        if self._pieces is not None:
            self._pieces.clear()

    def _constraint(self, asked: GenerateRequest, rendered: Rendered) -> Constraint | None:
        model = self.load()
        assert self._grammars is not None, "made with the model"
        return constraint_of(asked, rendered, model, self._grammars)

    def _render(self, prompt: Prompt) -> Rendered:
        model = self.load()
        return render(prompt, model, maximum_context_tokens=self._maximum_context_tokens, pieces=self._pieces)

    def _keep(self, request_id: str, fingerprint: bytes, rendered: Rendered) -> None:
        self._take_kept(request_id, fingerprint)
        self._kept[request_id] = (fingerprint, rendered)
        self._num_kept_tokens += len(rendered.tokens)
        while len(self._kept) > MOST_KEPT or self._num_kept_tokens > MOST_KEPT_TOKENS:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._num_kept_tokens -= len(oldest.tokens)

    def _take_kept(self, request_id: str, fingerprint: bytes) -> Rendered | None:
        """The rendering kept under this id, if it is of the same prompt; it is used once."""
        kept = self._kept.pop(request_id, None)
        if kept is None:
            return None
        self._num_kept_tokens -= len(kept[1].tokens)
        return kept[1] if kept[0] == fingerprint else None


def _output(asked: GenerateRequest, rendered: Rendered, model: TextModel) -> TokenOutput:
    parser = model.tokenizer.tool_parser
    uses_tools = bool(rendered.tools) and parser is not None
    return TokenOutput(
        decoder=TokenDecoder(model.tokenizer, continues_text=rendered.continues_text),
        markup=model.markup if rendered.has_markup else NO_MARKUP,
        state=rendered.state,
        end_tokens=model.end_tokens,
        ignore_end=asked.ignore_eos,
        stops=asked.stop,
        tool_use=ToolUse(parser, rendered.tools, asked.prompt.tool_choice.parallel) if uses_tools else None,
    )


def _fingerprint(body: bytes) -> bytes:
    """Of the prompt as it was written: a client that sends the same prompt twice writes the same bytes."""
    return hashlib.blake2b(msgspec.json.decode(body, type=_PromptBytes).prompt, digest_size=16).digest()
