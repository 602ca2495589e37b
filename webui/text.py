"""The console's words: one flat table of sentences per language, from a file per page; language and time zone chosen.

It formats no numbers (`webui.numbers`) and knows no page.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo, available_timezones

Language = Literal["en", "zh"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)

FOLDER: Final = Path(__file__).resolve().parent.parent / "frontend" / "text"
HTML_LANGUAGE: Final[Mapping[Language, str]] = {"en": "en", "zh": "zh-Hans"}


@dataclass(frozen=True, slots=True)
class Text:
    """Sentences in one language. An unknown key is a KeyError: a missing sentence must not reach a page."""

    language: Language
    sentences: Mapping[str, str]
    zone: ZoneInfo | None = None
    """Of the person who looks; None: that of this machine."""

    def __call__(self, key: str, /, **values: object) -> str:
        sentence = self.sentences[key]
        return sentence.format(**values) if values else sentence

    def count(self, key: str, n: int, /, **values: object) -> str:
        """The sentence `key.one` for exactly one, else `key.many`; `{n}` is the number."""
        return self(f"{key}.one" if n == 1 else f"{key}.many", n=f"{n:,}", **values)

    def join(self, *sentences: str) -> str:
        """One paragraph of those that are not empty. Chinese sentences stand side by side, without a space."""
        return ("" if self.language == "zh" else " ").join(sentence for sentence in sentences if sentence)

    def local(self, unix_s: float) -> datetime:
        """That moment in the time zone of the person who looks."""
        return datetime.fromtimestamp(unix_s, self.zone).astimezone(self.zone)

    @property
    def html_language(self) -> str:
        return HTML_LANGUAGE[self.language]


def load_texts() -> dict[Language, Text]:
    return {language: Text(language, _sentences(language)) for language in LANGUAGES}


def choose_zone(name: str | None) -> ZoneInfo | None:
    """None for a name that this machine does not know: whoever looks has sent it."""
    if not name or name not in _known_zones():
        return None
    return ZoneInfo(name)


def choose_language(*, chosen: str | None, accept_language: str) -> Language:
    """What the person chose; else Chinese when the browser's first language is any Chinese; else English."""
    for language in LANGUAGES:
        if language == chosen:
            return language
    return "zh" if _first_language(accept_language).startswith("zh") else "en"


def _first_language(accept_language: str) -> str:
    """The tag with the highest weight; the earliest of equals. Format: RFC 9110 section 12.5.4."""
    best, best_weight = "", 0.0
    for item in accept_language.split(","):
        tag, _, weight_text = item.partition(";q=")
        try:
            weight = float(weight_text) if weight_text else 1.0
        except ValueError:
            continue
        if weight > best_weight:
            best, best_weight = tag.strip().lower(), weight
    return best


@cache
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _sentences(language: Language) -> dict[str, str]:
    """Of all files of the folder. A key stands in one file only."""
    sentences: dict[str, str] = {}
    for path in sorted((FOLDER / language).glob("*.json")):
        page = json.loads(path.read_text("utf-8"))
        assert not page.keys() & sentences.keys(), f"{path} says again what another file says"
        sentences |= page
    return sentences
