"""Prices per million tokens, and what tokens cost at them: whole numbers all the way, rounded once, in `Money`.

It asks no database and keeps no old prices: those in force now hold for all tokens, also for those of last year.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from control.admin.errors import OrderInvalid
from control.metrics.settings import Settings
from control.wire import Money, Price, PriceList

logger = logging.getLogger(__name__)

PRICES_SETTING: Final = "prices"
MODELS_LIMIT: Final = 100
MODEL_ID_LIMIT: Final = 200
_PER: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a number of requests used. `cached` is part of `prompt`, as OpenAI counts and as all dialects are stored."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.requests + other.requests,
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.completion + other.completion,
        )


@dataclass(frozen=True, slots=True)
class _WholePrice:
    """A price per token as whole numbers: `units` of them are one of the currency."""

    currency: str
    units: int
    miss: int
    hit: int
    output: int


@dataclass(slots=True)
class _Sum:
    """Of one currency, in its units."""

    units: int
    miss: int = 0
    hit: int = 0
    output: int = 0
    cache_saving: int = 0

    def add(self, price: _WholePrice, tokens: Tokens) -> None:
        cached = min(max(tokens.cached, 0), tokens.prompt)
        self.miss += (tokens.prompt - cached) * price.miss
        self.hit += cached * price.hit
        self.output += tokens.completion * price.output
        self.cache_saving += cached * (price.miss - price.hit)

    def money(self, currency: str) -> Money:
        """The nearest float to each exact amount: the only rounding before somebody reads it."""
        return Money(
            currency=currency,
            miss=self.miss / self.units,
            hit=self.hit / self.units,
            output=self.output / self.units,
            total=(self.miss + self.hit + self.output) / self.units,
            cache_saving=self.cache_saving / self.units,
        )


class Tariff:
    """A price list that can be reckoned with. It never changes, so any thread may."""

    def __init__(self, prices: PriceList) -> None:
        self.prices: Final = prices
        units = _units(prices)
        self._default = _whole(prices.default, units)
        self._models = {model: _whole(price, units) for model, price in prices.models.items()}

    def price_of(self, model: str) -> Price:
        return self.prices.models.get(model, self.prices.default)

    def cost(self, used: Mapping[str, Tokens]) -> tuple[Money, ...]:
        """Of tokens by model: an amount for each currency, sorted by its code. Currencies are never added."""
        sums: dict[str, _Sum] = {}
        for model, tokens in used.items():
            price = self._models.get(model, self._default)
            sums.setdefault(price.currency, _Sum(price.units)).add(price, tokens)
        return tuple(sums[currency].money(currency) for currency in sorted(sums))


class Prices:
    """The tariff in force. Replaced on the event loop only."""

    def __init__(self, prices: PriceList | None = None) -> None:
        self._tariff = Tariff(prices or PriceList())

    @property
    def tariff(self) -> Tariff:
        return self._tariff

    def replace(self, prices: PriceList) -> None:
        """The caller has them from `checked`."""
        self._tariff = Tariff(prices)


def checked(prices: PriceList) -> PriceList:
    """As they were given. Raises OrderInvalid with the model that can't be; numbers and currencies are the wire's."""
    if len(prices.models) > MODELS_LIMIT:
        raise OrderInvalid(f"models: there can be prices of {MODELS_LIMIT} models, not of {len(prices.models)}.")
    for model in prices.models:
        if not model or len(model) > MODEL_ID_LIMIT or not model.isprintable() or model != model.strip():
            shown = model[:MODEL_ID_LIMIT]
            raise OrderInvalid(f"models: {shown!r} can't be a model's id: 1 to {MODEL_ID_LIMIT} characters of text.")
    return prices


def stored_prices(settings: Settings) -> PriceList:
    """As they were chosen; the default when they never were, and, with a warning, when what is there is impossible."""
    stored = settings.get(PRICES_SETTING, PriceList)
    try:
        return PriceList() if stored is None else checked(stored)
    except OrderInvalid as error:
        logger.warning("setting ignored name=%s reason=%s", PRICES_SETTING, error)
        return PriceList()


def _units(prices: PriceList) -> dict[str, int]:
    """By currency: the number of parts into which it is divided so that each of its prices per token is whole."""
    units: dict[str, int] = {}
    for price in (prices.default, *prices.models.values()):
        for per_million in (price.miss, price.hit, price.output):
            units[price.currency] = math.lcm(units.get(price.currency, 1), _per_token(per_million).denominator)
    return units


def _whole(price: Price, units: Mapping[str, int]) -> _WholePrice:
    parts = units[price.currency]
    miss, hit, output = (int(_per_token(each) * parts) for each in (price.miss, price.hit, price.output))
    return _WholePrice(price.currency, parts, miss, hit, output)


def _per_token(per_million: float) -> Fraction:
    """By way of the decimal that a person wrote: 0.1 is a tenth, and not the float beside it."""
    return Fraction(repr(per_million)) / _PER
