"""How many tokens a text makes at least, told from its letters in no time: so that absurd texts are never tokenised.

It estimates nothing: where the claim can't be proven for a tokenizer, there is none.

Why it is certain: the 52 letters of ASCII pass the normalisers and splitters listed here one to one, but for one that
a combining character behind it may compose with; each is a token by itself, so none is lost in an unknown token; and
the tokens of BPE and Unigram models cover the text without gaps. So the letters of a text, less its characters beyond
ASCII, are spread over its tokens, and no token, special ones included, stands for more letters than its name has.
Whitespace would prove less: some special tokens swallow any amount of it.
"""

import json
import string
from typing import Any, Final

from tokenizers.models import BPE, Unigram

_LETTERS: Final = frozenset(string.ascii_letters)
_NOT_LETTERS: Final = bytes(byte for byte in range(256) if chr(byte) not in _LETTERS)
# Types of Hugging Face's tokenizers that neither remove nor merge letters; others are looked into, or unknown.
_NORMALISERS: Final = frozenset({"NFC", "NFD", "NFKC", "NFKD", "Prepend", "Strip", "ByteLevel"})
_SPLITTERS: Final = frozenset({"ByteLevel", "Metaspace", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"})


def most_letters_in_token(tokenizer: Any) -> int | None:
    """How many letters a token of this tokenizer (mlx-lm's wrapper) stands for at most; None when that is unknown."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, (BPE, Unigram)):
        return None
    marks = [getattr(backend.model, name, None) for name in ("continuing_subword_prefix", "end_of_word_suffix")]
    vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    parts = (_described(backend.normalizer), _described(backend.pre_tokenizer))
    is_proven = all(map(_keeps_letters, parts)) and vocabulary.keys() >= _LETTERS and not any(marks)
    return max(map(_num_letters, vocabulary)) if is_proven and backend.truncation is None else None


def least_tokens(text: str, most_letters: int | None) -> int:
    """The text makes this many tokens or more."""
    if most_letters is None:
        return 0
    num_beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    return -(-(_num_letters(text) - num_beyond_ascii) // most_letters)


def _num_letters(text: str) -> int:
    return len(text.encode().translate(None, _NOT_LETTERS))


def _described(part: Any) -> dict[str, Any] | None:
    """Format: the part's entry in `tokenizer.json`."""
    return None if part is None else json.loads(part.__getstate__())


def _keeps_letters(part: dict[str, Any] | None) -> bool:
    if part is None or part["type"] in _NORMALISERS | _SPLITTERS:
        return True
    if part["type"] == "Sequence":
        return all(map(_keeps_letters, part.get("normalizers") or part.get("pretokenizers") or ()))
    if part["type"] == "Replace":
        return not _LETTERS & set(part["pattern"].get("String", string.ascii_letters))
    return bool(part["type"] == "Split" and part["behavior"] != "Removed")
