"""Turns token ids into text, and their log-probabilities into wire form.

It looks for nothing in the text. Of mlx-lm's streaming detokenizers it takes the tables, which say what bytes a token
stands for, and leaves the streaming: they write byte 0 as another character, drop a leading space, fail on ids outside
the table, and decode everything again with each token of a run of bytes that is no character.
"""

import codecs
from typing import Any, Final

from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, NaiveStreamingDetokenizer

from engine.request import SampledToken
from engine.text.marked import Mark, MarkedText
from engine.wire import Alternative, TokenLogprob

_WORD_BEGIN: Final = "\u2581".encode()  # sentencepiece's mark for a space


class TokenDecoder:
    """The decoder of one request. A character whose bytes lie in several tokens comes out with the last of them.

    `continues_text`: the prompt ends in running text: a leading space belongs to the output. Sentencepiece tokenizers
    write one before the first word of every turn, which their own decoders cut off.
    """

    def __init__(self, tokenizer: Any, *, continues_text: bool) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer
        self._is_byte_level = isinstance(self._detokenizer, BPEStreamingDetokenizer)
        # The kinds without a table decode through the tokenizer; mlx-lm's way is the only one there.
        self._has_table = not isinstance(self._detokenizer, NaiveStreamingDetokenizer)
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._cut_space = not continues_text and getattr(self._detokenizer, "trim_space", False)
        self._undecoded: list[TokenLogprob] = []

    def push(self, token: SampledToken) -> MarkedText:
        if token.logprob is not None:
            self._undecoded.append(self._logprob(token, token.logprob))
        if self._has_table:
            return self._marked(self._characters.decode(self.bytes_of(token.token)))
        self._detokenizer.add_token(token.token)
        return self._marked(self._detokenizer.last_segment)

    def flush(self) -> MarkedText:
        """The end: a character that was never completed comes out as U+FFFD."""
        if self._has_table:
            return self._marked(self._characters.decode(b"", final=True))
        self._detokenizer.finalize()
        return self._marked(self._detokenizer.last_segment)

    def _marked(self, text: str) -> MarkedText:
        if not text:
            return MarkedText()
        if self._cut_space:
            text = text.removeprefix(" ")
            self._cut_space = False
        marks = [Mark(len(text), logprob) for logprob in self._undecoded]
        self._undecoded = []
        return MarkedText(text, marks)

    def bytes_of(self, token: int) -> bytes:
        """What the token stands for, alone. Nothing for an id that the tokenizer has not: a model may be padded."""
        if not self._has_table:
            return str(self._tokenizer.decode([token])).encode()
        table = self._detokenizer.tokenmap
        entry = table[token] if 0 <= token < len(table) else None
        if entry is None:
            return b""
        return _byte_level(entry) if self._is_byte_level else bytes(entry).replace(_WORD_BEGIN, b" ")

    def _logprob(self, token: SampledToken, logprob: float) -> TokenLogprob:
        data = self.bytes_of(token.token)
        return TokenLogprob(
            token=data.decode("utf-8", "replace"),
            bytes=tuple(data),
            logprob=logprob,
            top=tuple(
                Alternative(token=self.bytes_of(other).decode("utf-8", "replace"), logprob=value)
                for other, value in token.top
            ),
        )


def _byte_level(entry: str) -> bytes:
    """A token whose characters do not all stand for bytes is an added one, written as it is."""
    values = [_BYTE_OF_CHARACTER.get(character) for character in entry]
    return bytes(value for value in values if value is not None) if None not in values else entry.encode()


def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes bytes as characters: printable ones as themselves, the others from U+0100 on.

    Source: GPT-2's `bytes_to_unicode`.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + position): byte for position, byte in enumerate(others)})
    return table


_BYTE_OF_CHARACTER: Final = _byte_of_character()
