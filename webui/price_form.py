"""The form of a price as a person filled it in: read into a price, or into what is wrong with which field.

It shows nothing (`webui.views.prices`) and sends nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from control.wire import Price, PriceList
from webui.typed_numbers import half_width

Form = Mapping[str, str]

# Source: control.prices and control.wire_metrics, which refuse what lies beyond them.
MOST: Final = 1_000_000
LONGEST_MODEL_ID: Final = 200
NUMBERS: Final = ("miss", "hit", "output")

_NUMBER: Final = re.compile(r"[0-9]{1,7}|[0-9]{0,7}\.[0-9]{1,12}")
_CURRENCY: Final = re.compile("[A-Z]{3}")


@dataclass(frozen=True, slots=True)
class Filled:
    """`model` None: for all without a price of their own. `price` None: `wrong` has the key of a sentence by field."""

    model: str | None
    price: Price | None
    wrong: Mapping[str, str]


def read(form: Form) -> Filled:
    wrong: dict[str, str] = {}
    model = None
    if form.get("whose") != "default":
        model = form.get("model", "").strip()
        if not (1 <= len(model) <= LONGEST_MODEL_ID and model.isprintable()):
            wrong["model"] = "prices.model_wrong"
    currency = chosen_currency(form)
    if not _CURRENCY.fullmatch(currency):
        wrong["other_currency"] = "prices.currency_wrong"
    per_million = {name: _number(form.get(name, "")) for name in NUMBERS}
    wrong |= {name: "prices.number_wrong" for name, number in per_million.items() if number is None}
    if wrong:
        return Filled(model, None, wrong)
    numbers = {name: number for name, number in per_million.items() if number is not None}
    return Filled(model, Price(currency=currency, **numbers), {})


def chosen_currency(form: Form) -> str:
    """What was typed wins over what is selected: the list always has something selected."""
    return form.get("other_currency", "").strip().upper() or form.get("currency", "")


def with_price(prices: PriceList, model: str | None, price: Price) -> PriceList:
    if model is None:
        return msgspec.structs.replace(prices, default=price)
    return msgspec.structs.replace(prices, models={**prices.models, model: price})


def without_price(prices: PriceList, model: str) -> PriceList:
    others = {name: price for name, price in prices.models.items() if name != model}
    return msgspec.structs.replace(prices, models=others)


def _number(text: str) -> float | None:
    # A comma may be meant as a point: it is refused.
    digits = half_width(text)
    if not _NUMBER.fullmatch(digits):
        return None
    return float(digits) if float(digits) <= MOST else None
