"""Model names after a person changed them: one added, removed, or moved up; or what is wrong with the new one.

It shows nothing (`webui.views.settings`) and sends nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from control.wire import Alias, RequestClass

Form = Mapping[str, str]
Aliases = tuple[Alias, ...]

# Source: control.aliases, which refuses what lies beyond them.
NAME_LIMIT: Final = 200
ALIASES_LIMIT: Final = 100
_CLASSES: Final[Mapping[str, RequestClass]] = {"interactive": "interactive", "batch": "batch"}


@dataclass(frozen=True, slots=True)
class Changed:
    """`aliases` None: nothing is ordered, and `wrong` is the key of a sentence for the name."""

    aliases: Aliases | None
    wrong: str = ""


def with_new(aliases: Aliases, form: Form) -> Changed:
    """At the end; a name that is there already gets the new class at its place."""
    name = form.get("name", "").strip()
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        return Changed(None, "settings.alias_wrong")
    alias = Alias(name=name, request_class=_CLASSES.get(form.get("request_class", "")))
    if any(each.name == name for each in aliases):
        return Changed(tuple(alias if each.name == name else each for each in aliases))
    if len(aliases) >= ALIASES_LIMIT:
        return Changed(None, "settings.alias_full")
    return Changed((*aliases, alias))


def without(aliases: Aliases, name: str) -> Aliases:
    return tuple(each for each in aliases if each.name != name)


def moved_up(aliases: Aliases, name: str) -> Aliases:
    """One place; the first stays, and so does the list for a name that is not there."""
    places = [number for number, each in enumerate(aliases) if each.name == name and number]
    if not places:
        return aliases
    above = places[0] - 1
    return (*aliases[:above], aliases[above + 1], aliases[above], *aliases[above + 2 :])
