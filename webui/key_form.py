"""The forms of a key as a person filled them in: read into an order, or into what is wrong with which field.

It shows nothing (`webui.views.clients`) and sends nothing. Whether a name is taken is for control to say.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from control.wire import KeyChange, KeyLimits, NewKey, RequestClass
from webui.typed_numbers import plain_digits

Form = Mapping[str, str]

# Source: control.keys and control.wire_keys, which refuse what lies beyond them.
NAME_LIMIT: Final = 64
LIMITS: Final = KeyLimits.__struct_fields__
MOST: Final = 10**15
_WHOLE: Final = re.compile("[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class FilledNew:
    """`order` None: nothing is ordered, and `wrong` has the key of a sentence for each field that can't be used."""

    order: NewKey | None
    wrong: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FilledChange:
    """The same for a key that is there: all that the form has is set, and an empty limit is taken away."""

    order: KeyChange | None
    wrong: Mapping[str, str]


def read_new(form: Form) -> FilledNew:
    limits, wrong = _limits(form)
    name = form.get("name", "").strip()
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        wrong["name"] = "keys.name_wrong"
    if wrong:
        return FilledNew(None, wrong)
    return FilledNew(NewKey(name=name, request_class=_class(form), limits=KeyLimits(**limits)), {})


def read_change(form: Form) -> FilledChange:
    limits, wrong = _limits(form)
    return FilledChange(None if wrong else KeyChange(request_class=_class(form), **limits), wrong)


def _class(form: Form) -> RequestClass:
    return "batch" if form.get("request_class") == "batch" else "interactive"


def _limits(form: Form) -> tuple[dict[str, int | None], dict[str, str]]:
    """The limits, and the sentences about those that can't be read. Empty: no such limit."""
    limits: dict[str, int | None] = {}
    wrong: dict[str, str] = {}
    for name in LIMITS:
        digits = plain_digits(form.get(name, ""))
        if not digits:
            limits[name] = None
        elif _WHOLE.fullmatch(digits) and 1 <= int(digits) <= MOST:
            limits[name] = int(digits)
        else:
            wrong[name] = "keys.limit_wrong"
    return limits, wrong
