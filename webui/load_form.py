"""The load form as a person filled it in: read into an order, or into what is wrong with which field.

It shows nothing (`webui.views.load_form`) and sends nothing. Whether a model fits is for control to say.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from control.wire import DEFAULT, LoadRequest
from webui.typed_numbers import plain_digits

Form = Mapping[str, str]

# Source: control.load_settings, which refuses what lies beyond them.
KV_BITS: Final = (8, 4)
LEAST_GAP_MS: Final = 50
MOST_GAP_MS: Final = 10_000
MOST_SHARE_PERCENT: Final = 90
# Source: engine.wire.Launch.
USUAL_GAP_MS: Final = 500
USUAL_SHARE_PERCENT: Final = 50

# A trillion: more than any context has, and far below what Python refuses to read.
_WHOLE: Final = re.compile("[0-9]{1,12}")
_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,12}(\.[0-9]{1,12})?)(?P<unit>[kmgt]?)(ib|b)?")
_UNIT_BYTES: Final = {"k": 2**10, "m": 2**20, "": 2**30, "g": 2**30, "t": 2**40}
# Source: control.load_settings: more than any machine has.
_MOST_BYTES: Final = 2**53

# Typed into a field of numbers, it undoes what the model had last.
AUTOMATIC: Final = ("auto", "自动", DEFAULT)


@dataclass(frozen=True, slots=True)
class Filled:
    """`order` None: nothing is ordered, and `wrong` has the key of a sentence for each field that can't be used."""

    order: LoadRequest | None
    wrong: Mapping[str, str]


def read(form: Form) -> Filled:
    """A setting that is as it was shown is no part of the order, so that each model keeps what it had last."""
    settings: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for name, (understood, sentence) in _SETTINGS.items():
        if not form.get(name, "").strip() or not is_touched(form, name):
            continue
        value = understood(form[name].strip())
        if value is None:
            wrong[name] = sentence
        else:
            settings[name] = value
    return Filled(None if wrong else LoadRequest(model=chosen_model(form) or None, **settings), wrong)


def chosen_model(form: Form) -> str:
    """Empty: none."""
    return form.get("model", "").strip()


def is_touched(form: Form, name: str) -> bool:
    """Whether a person made something else of the field than it showed."""
    return form.get(name, "").strip() != form.get(f"shown_{name}", "")


def _context(text: str) -> int | str | None:
    if text.lower() in AUTOMATIC:
        return DEFAULT
    digits = plain_digits(text)
    return (int(digits) or None) if _WHOLE.fullmatch(digits) else None


def _budget(text: str) -> int | str | None:
    """Bytes, from a size as people write it: without a unit it is in GiB."""
    if text.lower() in AUTOMATIC:
        return DEFAULT
    size = _SIZE.fullmatch(plain_digits(text).lower())
    if size is None:
        return None
    num_bytes = int(float(size["number"]) * _UNIT_BYTES[size["unit"]])
    return num_bytes if 1 <= num_bytes <= _MOST_BYTES else None


def _kv_bits(text: str) -> int | str | None:
    if text == DEFAULT:
        return DEFAULT
    return next((bits for bits in KV_BITS if text == str(bits)), None)


def _max_gap_ms(text: str) -> float | None:
    digits = plain_digits(text).removesuffix("ms").removesuffix("毫秒")
    if not _NUMBER.fullmatch(digits):
        return None
    return float(digits) if LEAST_GAP_MS <= float(digits) <= MOST_GAP_MS else None


def _decode_share(text: str) -> float | None:
    """From per cent. What lies between 0 and 1 was meant as a fraction, as the command line takes it."""
    digits = plain_digits(text).rstrip("%")
    if not _NUMBER.fullmatch(digits):
        return None
    percent = float(digits)
    return percent / 100 if percent == 0 or 1 <= percent <= MOST_SHARE_PERCENT else None


# The fields that are an order each, how they are read, and what is said when that fails.
_SETTINGS: Final[Mapping[str, tuple[Callable[[str], int | float | str | None], str]]] = {
    "context": (_context, "load.context_wrong"),
    "budget_bytes": (_budget, "load.budget_wrong"),
    "kv_bits": (_kv_bits, "load.kv_bits_wrong"),
    "max_gap_ms": (_max_gap_ms, "load.max_gap_wrong"),
    "decode_share": (_decode_share, "load.decode_share_wrong"),
}
