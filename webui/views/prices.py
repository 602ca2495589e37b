"""The prices on the page *Cost*: the list that is in force, and a form for each price with what is wrong in it.

It judges nothing: `webui.price_form` reads what comes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlencode

from control.wire import Price, PriceList, Range
from webui import numbers
from webui.price_form import MOST, NUMBERS, Form
from webui.text import Text

# Others are typed.
CURRENCIES: Final = ("CNY", "USD", "EUR", "GBP", "JPY", "KRW", "INR", "HKD", "TWD", "SGD", "AUD", "CAD", "CHF")

# default: for all models without a price of their own; model: one that has a price; new: another one.
Whose = Literal["default", "model", "new"]

_LABELS: Final = {"miss": "prices.miss", "hit": "prices.hit", "output": "prices.output"}
_HINTS: Final = {"miss": "prices.miss_hint", "hit": "prices.hit_hint", "output": "prices.output_hint"}


@dataclass(frozen=True, slots=True)
class Refused:
    """A form as it came, with a sentence's key by field; `reason`: why control did not take it, when it did not."""

    form: Form
    wrong: Mapping[str, str]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PriceField:
    name: str
    label: str
    value: str
    error: str


@dataclass(frozen=True, slots=True)
class PriceSheet:
    """A form in its panel. `first_wrong` None: it does not come back with anything wrong."""

    id: str
    whose: Whose
    title: str
    model: PriceField
    currency: str
    currencies: tuple[str, ...]
    other_currency: PriceField
    numbers: tuple[PriceField, ...]
    reason: str
    first_wrong: str | None

    @property
    def is_refused(self) -> bool:
        return self.first_wrong is not None or bool(self.reason)


@dataclass(frozen=True, slots=True)
class PriceRow:
    """`model` None: all others. `remove_path` None: this one can't be removed."""

    model: str | None
    currency: str
    numbers: tuple[str, ...]
    change_label: str
    sheet: PriceSheet
    remove_label: str
    remove_effect: str
    remove_path: str | None
    warning: str


@dataclass(frozen=True, slots=True)
class PricePanel:
    """`known_models`: ids that the field for a new price offers."""

    headings: tuple[tuple[str, str], ...]
    rows: tuple[PriceRow, ...]
    new: PriceSheet
    known_models: tuple[str, ...]
    action: str

    @property
    def is_refused(self) -> bool:
        return self.new.is_refused or any(row.sheet.is_refused for row in self.rows)


def price_panel(
    prices: PriceList, text: Text, chosen: Range, known_models: tuple[str, ...], refused: Refused | None
) -> PricePanel:
    own = tuple(
        _row(text, chosen, model, price, _sheet(text, f"price-{number}", "model", price, model, refused))
        for number, (model, price) in enumerate(prices.models.items(), start=1)
    )
    others = _sheet(text, "price-default", "default", prices.default, "", refused)
    return PricePanel(
        headings=tuple((text(_LABELS[name]), text(_HINTS[name])) for name in NUMBERS),
        rows=(_row(text, chosen, None, prices.default, others), *own),
        new=_sheet(text, "price-new", "new", prices.default, "", refused),
        known_models=tuple(model for model in known_models if model not in prices.models),
        action=f"/cost/prices?{urlencode({'range': chosen})}",
    )


def plain(per_million: float) -> str:
    """As a person would write it: 1, 0.1, 0.27."""
    return f"{per_million:.12f}".rstrip("0").rstrip(".")


def in_words(price: Price, text: Text) -> str:
    return text(
        "prices.in_words",
        miss=numbers.money(text, price.miss, price.currency),
        hit=numbers.money(text, price.hit, price.currency),
        output=numbers.money(text, price.output, price.currency),
    )


def _row(text: Text, chosen: Range, model: str | None, price: Price, sheet: PriceSheet) -> PriceRow:
    name = text("prices.all_others") if model is None else model
    is_odd = price.hit > price.miss
    return PriceRow(
        warning=text("prices.cache_is_dearer", model=name) if is_odd else "",
        model=model,
        currency=price.currency,
        numbers=tuple(plain(getattr(price, each)) for each in NUMBERS),
        change_label=text("prices.change_label", model=name),
        sheet=sheet,
        remove_label=text("prices.remove_label", model=name),
        remove_effect=text("prices.remove_effect", model=name),
        remove_path=None if model is None else f"/cost/prices/remove?{urlencode({'model': model, 'range': chosen})}",
    )


def _sheet(text: Text, id_: str, whose: Whose, price: Price, model: str, refused: Refused | None) -> PriceSheet:
    """With what is in force; a new one with nothing, but for the usual currency; or as it came back."""
    back = refused if refused is not None and _is_of(refused.form, whose, model) else None
    shown = {} if whose == "new" else {name: plain(getattr(price, name)) for name in NUMBERS}
    values = back.form if back is not None else {"model": model, "currency": price.currency, **shown}
    wrong = back.wrong if back is not None else {}

    def field(name: str, label: str) -> PriceField:
        error = text(wrong[name], most=f"{MOST:,}") if name in wrong else ""
        return PriceField(name, text(label), values.get(name, ""), error)

    selected = values.get("currency", "") or price.currency
    listed = CURRENCIES if selected in CURRENCIES else (*CURRENCIES, selected)
    titles = {
        "default": text("prices.default_title"),
        "model": text("prices.model_title", model=model),
        "new": text("prices.new_title"),
    }
    return PriceSheet(
        id=id_,
        whose=whose,
        title=titles[whose],
        model=field("model", "prices.model"),
        currency=selected,
        currencies=listed,
        other_currency=field("other_currency", "prices.other_currency"),
        numbers=tuple(field(name, _LABELS[name]) for name in NUMBERS),
        reason=back.reason if back is not None else "",
        first_wrong=next(iter(wrong), None),
    )


def _is_of(form: Form, whose: Whose, model: str) -> bool:
    return form.get("whose") == whose and (whose != "model" or form.get("model") == model)
