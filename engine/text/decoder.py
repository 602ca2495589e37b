"""Turns token ids into text through mlx-lm's streaming detokenizers, and their log-probabilities into wire form.

It corrects three things of theirs (a leading space that they drop, ids outside their table, a text that grows with
every token) and looks for nothing in the text.
"""

from typing import Any, Final

from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, NaiveStreamingDetokenizer

from engine.request import SampledToken
from engine.text.marked import Mark, MarkedText
from engine.wire import Alternative, TokenLogprob

# Stands for "text before this": the detokenizers cut a space only at the very beginning of their text.
_EARLIER_TEXT: Final = "."


class TokenDecoder:
    """The decoder of one request. A character whose bytes lie in several tokens comes out with the last of them.

    `continues_text`: the prompt ends in running text, so a leading space belongs to the output. Byte-level tokenizers
    always keep it; sentencepiece ones write one before the first word of every turn, which mlx-lm cuts off there.
    """

    def __init__(self, tokenizer: Any, *, continues_text: bool) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer
        self._has_table = not isinstance(self._detokenizer, NaiveStreamingDetokenizer)
        self._undecoded: list[TokenLogprob] = []
        if self._has_table and (continues_text or isinstance(self._detokenizer, BPEStreamingDetokenizer)):
            self._forget_text()

    def push(self, token: SampledToken) -> MarkedText:
        if token.logprob is not None:
            self._undecoded.append(self._logprob(token))
        if self._is_known(token.token):
            self._detokenizer.add_token(token.token)
        return self._segment()

    def flush(self) -> MarkedText:
        """The end: a character that was never completed comes out as U+FFFD."""
        self._detokenizer.finalize()
        return self._segment()

    def _segment(self) -> MarkedText:
        text = self._detokenizer.last_segment
        if not text:
            return MarkedText()
        if self._has_table:
            self._forget_text()
        marks = [Mark(len(text), logprob) for logprob in self._undecoded]
        self._undecoded = []
        return MarkedText(text, marks)

    def _forget_text(self) -> None:
        """Keep the text short: appending to a long one copies all of it, for every token."""
        self._detokenizer.text = _EARLIER_TEXT
        self._detokenizer.offset = len(_EARLIER_TEXT)

    def _is_known(self, token: int) -> bool:
        """A model's vocabulary may be padded beyond the tokenizer's, and the tokenizer's may have holes."""
        if not self._has_table:
            return True
        table = self._detokenizer.tokenmap
        return 0 <= token < len(table) and table[token] is not None

    def _logprob(self, token: SampledToken) -> TokenLogprob:
        assert token.logprob is not None
        data = self._bytes(token.token)
        return TokenLogprob(
            token=data.decode("utf-8", "replace"),
            bytes=tuple(data),
            logprob=token.logprob,
            top=tuple(
                Alternative(token=self._bytes(other).decode("utf-8", "replace"), logprob=logprob)
                for other, logprob in token.top
            ),
        )

    def _bytes(self, token: int) -> bytes:
        """The bytes that the token stands for, alone."""
        if not self._is_known(token):
            return b""
        return token_bytes(self._detokenizer, token, self._tokenizer)


def token_bytes(detokenizer: Any, token: int, tokenizer: Any) -> bytes:
    """From the detokenizer's table where it has one: decoding a lone token would lose its space or half a character."""
    if isinstance(detokenizer, NaiveStreamingDetokenizer):
        return str(tokenizer.decode([token])).encode()
    entry = detokenizer.tokenmap[token]
    if isinstance(detokenizer, BPEStreamingDetokenizer):
        return b"".join(_BYTE_OF_CHARACTER.get(character) or character.encode() for character in entry)
    return bytes(entry).replace("\u2581".encode(), b" ")


def _byte_of_character() -> dict[str, bytes]:
    """Byte-level BPE writes bytes as characters: printable ones as themselves, the others from U+0100 on.

    Source: GPT-2's `bytes_to_unicode`.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): bytes([byte]) for byte in printable}
    table.update({chr(0x100 + position): bytes([byte]) for position, byte in enumerate(others)})
    return table


_BYTE_OF_CHARACTER: Final = _byte_of_character()
