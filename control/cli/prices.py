"""Prices as `splash settings` writes and reads them: CNY 1/0.1/3, per million tokens computed, from cache, generated.

It asks nobody. Control judges again what is refused here in the words of the command line.
"""

import re
from typing import Final

import msgspec

from control.cli.tables import printable
from control.command_errors import UsageWrong
from control.wire import DEFAULT, Price, PriceList

PRICE: Final = "price."
# Source: control.wire_metrics and control.prices, which refuse what lies beyond them.
MOST_PER_MILLION: Final = 1_000_000
MODEL_ID_LIMIT: Final = 200
_NUMBER: Final = r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*"
_WRITTEN: Final = re.compile(rf"\s*([A-Za-z]{{3}})\s*[ :]{_NUMBER}/{_NUMBER}/{_NUMBER}")
CAN_BE: Final = "CURRENCY COMPUTED/CACHED/GENERATED, per million tokens"


def price_rows(prices: PriceList) -> list[tuple[str, str, str]]:
    """Name, value and what it can be: the default first, then the models that have their own."""
    return [
        (f"{PRICE}{DEFAULT}", price_text(prices.default), CAN_BE),
        *((PRICE + model, price_text(price), f"{CAN_BE}; or {DEFAULT}") for model, price in prices.models.items()),
    ]


def price_text(price: Price) -> str:
    return f"{price.currency} {price.miss:.12g}/{price.hit:.12g}/{price.output:.12g}"


def price_of(text: str, setting: str) -> Price | None:
    """None: as all others are. Raises UsageWrong, which names the setting as it was typed."""
    if text == DEFAULT:
        return None
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise UsageWrong(
            f"{printable(setting)} is written like {price_text(Price())}: {CAN_BE}. Not {printable(text)!r}."
        )
    currency, *per_million = written.groups()
    miss, hit, output = map(float, per_million)
    if max(miss, hit, output) > MOST_PER_MILLION:
        raise UsageWrong(f"{printable(setting)} can be at most {MOST_PER_MILLION:,} per million tokens.")
    return Price(currency=currency.upper(), miss=miss, hit=hit, output=output)


def with_price(prices: PriceList, model: str, price: Price | None) -> PriceList:
    """`model` default: for all models without a price of their own. Raises UsageWrong for one that has none to lose."""
    if model == DEFAULT:
        return msgspec.structs.replace(prices, default=price or Price())
    if not 1 <= len(model) <= MODEL_ID_LIMIT or not model.isprintable() or model != model.strip():
        raise UsageWrong(f"{printable(model)[:MODEL_ID_LIMIT]!r} can't be a model's id.")
    others = {name: each for name, each in prices.models.items() if name != model}
    if price is None and len(others) == len(prices.models):
        raise UsageWrong(f"{printable(model)!r} has no price of its own; `splash settings` lists those that have.")
    return msgspec.structs.replace(prices, models=others if price is None else {**others, model: price})
