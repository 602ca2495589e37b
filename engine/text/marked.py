"""Text whose tokens' log-probabilities travel along: each is a mark at the character where its token ends.

It only cuts and joins; what a mark is worth to a client is decided by whoever emits the text.
"""

from dataclasses import dataclass, field

from engine.wire import TokenLogprob


@dataclass(frozen=True, slots=True)
class Mark:
    """`end` counts characters from the start of the text that carries the mark."""

    end: int
    logprob: TokenLogprob


@dataclass(slots=True)
class MarkedText:
    """A piece of text that is appended at the end and taken from the front. Marks are in order of `end`."""

    text: str = ""
    marks: list[Mark] = field(default_factory=list)

    def append(self, other: "MarkedText") -> None:
        if other.marks:
            shift = len(self.text)
            self.marks.extend(Mark(shift + mark.end, mark.logprob) for mark in other.marks)
        self.text += other.text

    def take(self, num_chars: int) -> "MarkedText":
        """Cut off and return the first `num_chars` characters, with the marks of the tokens that end in them."""
        if num_chars == len(self.text):
            taken = MarkedText(self.text, self.marks)
            self.text, self.marks = "", []
            return taken
        taken = MarkedText(self.text[:num_chars])
        self.text = self.text[num_chars:]
        if self.marks:
            taken.marks = [mark for mark in self.marks if mark.end <= num_chars]
            self.marks = [Mark(mark.end - num_chars, mark.logprob) for mark in self.marks if mark.end > num_chars]
        return taken

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        return tuple(mark.logprob for mark in self.marks)


def num_withheld(text: str, patterns: tuple[str, ...]) -> int:
    """How many characters at the end of `text` may begin one of `patterns`, which do not occur in it whole."""
    longest = max((len(pattern) for pattern in patterns), default=0)
    for length in range(min(longest - 1, len(text)), 0, -1):
        tail = text[-length:]
        if any(pattern.startswith(tail) for pattern in patterns):
            return length
    return 0
