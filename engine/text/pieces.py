"""Tokenises a prompt message by message and keeps the tokens: an agent's turn repeats all messages but the newest.

It knows nothing of messages: a piece is a text that begins with an added token with which the template opens messages.

Why the tokens of the pieces are those of the whole: Hugging Face's tokenizers cut a text at its added tokens before
they look at anything else, and normalise, split and tokenise what lies between by itself. So a text may be cut before
an added token wherever that token is certain to be found: no other one overlaps its beginning or contains it. The token
stays in front of its piece, so that rules for the first word of a text (sentencepiece's space) apply to no other word.
A sample is tokenised in both ways at load all the same; where the outcomes differ, prompts are tokenised whole.
"""

import logging
import re
import sys
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, Final

from engine.text.positions import SAMPLE, Encoded, encode

logger = logging.getLogger(__name__)

# Texts and tokens of some forty prompts of 60,000 tokens, if they had nothing in common.
MOST_KEPT_BYTES: Final = 64 * 1024 * 1024
_BYTES_OF_OBJECTS: Final = 600  # of a piece, beside its text and numbers
# What may go wrong where pieces meet: spaces, line ends, a character that composes, parts of markers.
_EDGES: Final = ("", " ", "\n", "\n\n", "\u0301", "\u2581", "<", "a", "  b", "\tc \n", SAMPLE)


@dataclass(slots=True)
class Piece:
    """`places`: where the characters of each token begin and end, once somebody asked."""

    text: str
    tokens: "array[int]"
    places: "tuple[array[int], array[int]] | None" = None

    @property
    def num_bytes(self) -> int:
        """With its places, which may yet come."""
        return _BYTES_OF_OBJECTS + sys.getsizeof(self.text) + 3 * self.tokens.itemsize * len(self.tokens)


class Joined:
    """Finds the token of a character in pieces that follow one another, as Hugging Face's Encoding does."""

    def __init__(self, pieces: Sequence[Piece], backend: Any) -> None:
        self._pieces = pieces
        self._backend = backend
        self._begins = list(accumulate((len(piece.text) for piece in pieces), initial=0))
        self._num_before = list(accumulate((len(piece.tokens) for piece in pieces), initial=0))

    def char_to_token(self, place: int) -> int | None:
        at = bisect_right(self._begins, place) - 1
        if not 0 <= at < len(self._pieces):
            return None
        place -= self._begins[at]
        if at and place == 0:
            return self._num_before[at]  # the added token that it begins with
        starts, ends = self._places(self._pieces[at])
        token = bisect_right(ends, place)
        return self._num_before[at] + token if token < len(ends) and starts[token] <= place else None

    def _places(self, piece: Piece) -> "tuple[array[int], array[int]]":
        """Seldom asked for, where messages begin with added tokens: so they are not kept from the beginning."""
        if piece.places is None:
            (encoding,) = _encodings(self._backend, [piece.text])
            offsets = encoding.offsets
            piece.places = array("I", [start for start, _ in offsets]), array("I", [end for _, end in offsets])
        return piece.places


class Pieces:
    """The pieces that were used last, within a bound on memory. Not thread-safe: the text thread owns it."""

    def __init__(self, backend: Any, openers: Collection[str], *, most_bytes: int = MOST_KEPT_BYTES) -> None:
        """`backend` is a Tokenizer of Hugging Face's tokenizers. `openers`: what `safe_openers` names."""
        self._backend = backend
        self._opener = re.compile("|".join(map(re.escape, openers)))
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, Piece] = OrderedDict()
        self.kept_bytes = 0

    def encode(self, text: str) -> Encoded:
        """No special tokens are added: those of the template are in the text."""
        texts = self._cut(text)
        found: dict[str, Piece] = {}
        for part in texts:
            piece = self._kept.get(part)
            if piece is not None:
                self._kept.move_to_end(part)
                found[part] = piece
        missing = [part for part in dict.fromkeys(texts) if part not in found]
        for part, encoding in zip(missing, _encodings(self._backend, missing), strict=True):
            found[part] = Piece(part, array("I", encoding.ids))
            self._keep(found[part])
        pieces = [found[part] for part in texts]
        tokens = tuple(chain.from_iterable(piece.tokens for piece in pieces))
        return Encoded(tokens, len(text), Joined(pieces, self._backend))

    def clear(self) -> None:
        self._kept.clear()
        self.kept_bytes = 0

    def _cut(self, text: str) -> list[str]:
        starts = [match.start() for match in self._opener.finditer(text)]
        cuts = [0, *(start for start in starts if start), len(text)]
        return [text[begin:end] for begin, end in pairwise(cuts) if begin < end]

    def _keep(self, piece: Piece) -> None:
        self._kept[piece.text] = piece
        self.kept_bytes += piece.num_bytes
        while self.kept_bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.kept_bytes -= oldest.num_bytes


def pieces_of(tokenizer: Any, openings: Sequence[str], *, has_positions: bool) -> Pieces | None:
    """None where prompts must be tokenised whole. `tokenizer` is mlx-lm's wrapper; the rest: `TemplateHabits`."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not has_positions:
        logger.info("prompts are tokenised whole reason=%s", "the tokenizer has no positions")
        return None
    openers = safe_openers(backend, openings)
    if not openers:
        logger.info("prompts are tokenised whole reason=%s", "no added token opens messages")
        return None
    sample = "".join(before + opener + behind for opener in openers for before in _EDGES for behind in _EDGES)
    whole, joined = encode(tokenizer, sample, with_positions=True), Pieces(backend, openers).encode(sample)
    if whole.tokens != joined.tokens or any(
        whole.encoding.char_to_token(place) != joined.encoding.char_to_token(place) for place in range(len(sample))
    ):
        logger.warning("prompts are tokenised whole reason=%s", "the tokens of pieces are others")
        return None
    return Pieces(backend, openers)


def safe_openers(backend: Any, openings: Sequence[str]) -> tuple[str, ...]:
    """The added tokens in `openings` before which a text may be cut."""
    # Those that are looked for in the normalised text are looked for later, in what the others have left.
    added = [token for token in backend.get_added_tokens_decoder().values() if token.content and not token.normalized]
    is_plain = backend.truncation is None and backend.padding is None and not backend.encode_special_tokens
    if not is_plain or any(token.single_word for token in added):
        return ()
    names = [token.content for token in added]
    return tuple(
        token.content
        for token in added
        if any(token.content in opening for opening in openings)
        and not token.lstrip
        and token.content == token.content.strip()
        and not any(_hides(name, token.content) for name in names)
    )


def _hides(name: str, opener: str) -> bool:
    """Whether `name` could begin before `opener` and reach into it, or contain it."""
    if name != opener and opener in name:
        return True
    return any(name.endswith(opener[:length]) for length in range(1, min(len(opener), len(name))))


def _encodings(backend: Any, texts: list[str]) -> Sequence[Any]:
    made: Sequence[Any] = backend.encode_batch(texts, add_special_tokens=False) if texts else ()
    return made
