"""The names besides its id under which a request may ask for the loaded model; a name may carry a class.

It knows no model: `dialects.models` does. It writes nothing: who changes the aliases stores them, too.
"""

import fnmatch
import logging
import re
from collections.abc import Iterable
from typing import Final

from control.admin.errors import OrderInvalid
from control.metrics.settings import Settings
from control.wire import Alias
from engine.wire import RequestClass

logger = logging.getLogger(__name__)

ALIASES_SETTING: Final = "aliases"
# Clients that insist on a name of their vendor's are served by the model that is loaded.
DEFAULT_ALIASES: Final = tuple(Alias(name=name) for name in ("default", "claude-*", "gpt-*", "codex-*"))

ALIASES_LIMIT: Final = 100
NAME_LIMIT: Final = 200
# Every other character is itself: ids of models hold brackets and question marks.
ANY_TEXT: Final = "*"


class Aliases:
    """Read and changed on the event loop only. Of several patterns that fit, the one that says most decides."""

    def __init__(self, aliases: Iterable[Alias] = DEFAULT_ALIASES) -> None:
        self.replace(aliases)

    def list(self) -> tuple[Alias, ...]:
        """In the order in which they were given."""
        return self._aliases

    def plain_names(self) -> tuple[str, ...]:
        """Those that are no patterns: what a list of models can show."""
        return tuple(alias.name for alias in self._aliases if ANY_TEXT not in alias.name)

    def knows(self, name: str) -> bool:
        return self._match(name) is not None

    def class_of(self, name: str) -> RequestClass | None:
        """None when the name carries no class, or is not an alias."""
        alias = self._match(name)
        return None if alias is None else alias.request_class

    def replace(self, aliases: Iterable[Alias]) -> None:
        """All of them. The caller has checked them with `checked`, or has them from there."""
        self._aliases = tuple(aliases)
        by_what_they_say = sorted(self._aliases, key=_rank)
        self._patterns = [(_pattern(alias.name), alias) for alias in by_what_they_say]

    def _match(self, name: str) -> Alias | None:
        if len(name) > NAME_LIMIT:
            return None
        return next((alias for pattern, alias in self._patterns if pattern.fullmatch(name)), None)


def checked(aliases: Iterable[Alias]) -> tuple[Alias, ...]:
    """As they were given. Raises OrderInvalid with the name that can't be, or is there twice."""
    aliases = tuple(aliases)
    if len(aliases) > ALIASES_LIMIT:
        raise OrderInvalid(f"There can be {ALIASES_LIMIT} aliases, not {len(aliases)}.")
    seen: set[str] = set()
    for alias in aliases:
        name = alias.name
        if not name or len(name) > NAME_LIMIT or not name.isprintable() or name != name.strip():
            raise OrderInvalid(f"aliases: {name[:NAME_LIMIT]!r} can't be a name: 1 to {NAME_LIMIT} characters of text.")
        if name in seen:
            raise OrderInvalid(f"aliases: {name!r} is there twice.")
        seen.add(name)
    return aliases


def stored_aliases(settings: Settings) -> tuple[Alias, ...]:
    """As they were chosen; the default when they never were, and, with a warning, when what is there is impossible."""
    stored = settings.get(ALIASES_SETTING, tuple[Alias, ...])
    try:
        return DEFAULT_ALIASES if stored is None else checked(stored)
    except OrderInvalid as error:
        logger.warning("setting ignored name=%s reason=%s", ALIASES_SETTING, error)
        return DEFAULT_ALIASES


def _rank(alias: Alias) -> tuple[bool, int]:
    """A name before every pattern; then the one with more letters of its own."""
    return ANY_TEXT in alias.name, -len(alias.name.replace(ANY_TEXT, ""))


def _pattern(name: str) -> re.Pattern[str]:
    # `fnmatch` makes patterns that never take exponential time, but gives a meaning to brackets and question marks.
    return re.compile(fnmatch.translate(re.sub(r"([\[?])", r"[\1]", name)))
