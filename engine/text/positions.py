"""Tokenises a text and remembers which token each character is in, where the tokenizer can tell.

It knows nothing of messages or templates.
"""

from dataclasses import dataclass
from typing import Any, Final

# Words of several scripts, and whitespace that some tokenizers strip from the places that they report.
SAMPLE: Final = " Hello world,\n\n  caf\u00e9 \u4f60\u597d \U0001f999\n"
# Whitespace that belongs to a token without being counted to it; runs of it are short in a template.
_LONGEST_GAP: Final = 64


@dataclass(frozen=True, slots=True)
class Encoded:
    """`encoding` is the Encoding of Hugging Face's tokenizers, or finds characters as it does; None: it is unknown."""

    tokens: tuple[int, ...]
    length: int  # of the text, in characters
    encoding: Any = None

    def token_at(self, position: int) -> int | None:
        """How many tokens lie wholly before this character; None when unknown."""
        if self.encoding is None:
            return None
        for place in range(position, min(position + _LONGEST_GAP, self.length)):
            token = self.encoding.char_to_token(place)
            if token is not None:
                return int(token)
        return len(self.tokens) if position + _LONGEST_GAP >= self.length else None


def encode(tokenizer: Any, text: str, *, with_positions: bool) -> Encoded:
    """`tokenizer` is mlx-lm's wrapper. No special tokens are added: those of the template are in the text."""
    if not with_positions:
        return Encoded(tuple(tokenizer.encode(text, add_special_tokens=False)), len(text))
    encoding = _encoding(tokenizer, text)
    return Encoded(tuple(encoding.ids), len(text), encoding)


def has_positions(tokenizer: Any) -> bool:
    """Not with tokenizers of another library, nor with those that rewrite the text first."""
    if not getattr(tokenizer, "is_fast", False):
        return False
    encoding = _encoding(tokenizer, SAMPLE)
    return encoding is not None and encoding.ids == tokenizer.encode(SAMPLE, add_special_tokens=False)


def _encoding(tokenizer: Any, text: str) -> Any:
    """What `encode` makes of the text too, and throws away."""
    made = tokenizer._tokenizer(text, add_special_tokens=False)  # what mlx-lm's wrapper wraps: it is not callable
    return made.encodings[0] if made.encodings else None
