"""How the console writes numbers: tokens, speeds, bytes, durations, shares.

It decides nothing: unknown is a dash, never a zero, and every reader of a number gets its unit with it or beside it.

A duration is written in one of three ways, by what it is:

1. Measured, of one request or of many (`seconds`): seconds with two decimals, however many: 0.01 s, 98.59 s, 168.73 s.
   So all in a column are equally exact. Between two tokens and in promises (`short_milliseconds`): milliseconds.
2. Going on or told in a sentence, like ages and waits (`span`): the two largest units: 12 s, 2 min 49 s, 2 h 5 min.
3. Estimated (`rough_span`): the largest unit: 7 min.
"""

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from webui.text import Language, Text

UNKNOWN: Final = "—"

_KIB: Final = 1024
_MIB: Final = 1024**2
_GIB: Final = 1024**3
_MINUTE_MS: Final = 60_000

# What stands before an amount; a code of its own, and a space, for all others. Source: CLDR, but for the plain ¥.
_CURRENCY_SIGN: Final[Mapping[str, str]] = {
    "CNY": "¥",
    "USD": "$",
    "EUR": "€",
    "GBP": "£",
    "JPY": "JP¥",
    "KRW": "₩",
    "INR": "₹",
    "HKD": "HK$",
    "TWD": "NT$",
}
_OTHER_SIGN: Final[Mapping[Language, Mapping[str, str]]] = {"en": {}, "zh": {"USD": "US$"}}
_WITHOUT_DECIMALS: Final = frozenset({"JPY", "KRW"})
# By the number of decimals: below it they would be less than two digits, or nothing.
_SMALL: Final = {0: Decimal(1), 2: Decimal("0.1")}
_LEAST_IN_A_COLUMN: Final = 0.0001
_TWO_DIGITS: Final = Context(prec=2, rounding=ROUND_HALF_UP)


def tokens(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def tokens_short(count: int) -> str:
    """262144 -> 262k: the usual name of a context length."""
    return f"{count:,}" if count < 10_000 else f"{count // 1000:,}k"


def millions(count: int) -> str:
    """How many millions, in three digits: 1.05, 51.2, 1,204."""
    value = count / 1_000_000
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def speed(tokens_per_second: float | None) -> str:
    """Tokens a second, without its unit. Three digits are what a measurement of a second is worth."""
    if tokens_per_second is None:
        return UNKNOWN
    if tokens_per_second < 1000:
        return f"{tokens_per_second:.1f}"
    return f"{tokens_per_second:,.0f}"


def size(num_bytes: float | None) -> str:
    """Four digits at most: 1,004 MiB are 1.0 GiB."""
    if num_bytes is None:
        return UNKNOWN
    if num_bytes >= 1000 * _MIB:
        return f"{num_bytes / _GIB:,.1f} GiB"
    if num_bytes >= 1000 * _KIB:
        return f"{num_bytes / _MIB:,.1f} MiB"
    return f"{num_bytes / _KIB:,.0f} KiB"


def byte_speed(bytes_per_second: float) -> str:
    return f"{size(bytes_per_second)}/s"


def share(fraction: float | None, digits: int = 1) -> str:
    return UNKNOWN if fraction is None else f"{fraction * 100:.{digits}f}%"


def span(text: Text, duration_s: float) -> str:
    """A duration in words of one or two units: 12 s, 3 min 5 s, 2 h 5 min."""
    total = int(max(duration_s, 0))
    if total < 60:
        return text("span.seconds", s=total)
    if total < 3600:
        return text("span.minutes", m=total // 60, s=total % 60)
    return text("span.hours", h=f"{total // 3600:,}", m=total // 60 % 60)


def rough_span(text: Text, duration_s: float) -> str:
    """An estimate, in one unit: 59 s, 7 min, 2 h."""
    total = int(max(duration_s, 0))
    if total < 60:
        return text("span.seconds", s=total)
    minutes = round(total / 60)
    if minutes < 60:
        return text("span.whole_minutes", m=minutes)
    return text("span.whole_hours", h=f"{round(total / 3600):,}")


def bare_seconds(duration_ms: float | None) -> str:
    """A measured duration, for whoever writes the unit beside it."""
    return UNKNOWN if duration_ms is None else f"{duration_ms / 1000:,.2f}"


def seconds(text: Text, duration_ms: float | None) -> str:
    """A measured duration with its unit."""
    return UNKNOWN if duration_ms is None else text("span.seconds", s=bare_seconds(duration_ms))


def long_seconds(text: Text, duration_ms: float | None) -> str:
    """What a person reads more easily than so many seconds, to stand behind them; empty below a minute."""
    return "" if duration_ms is None or duration_ms < _MINUTE_MS else span(text, duration_ms / 1000)


def short_milliseconds(duration_ms: float, digits: int = 0) -> str:
    """A duration that is named in milliseconds everywhere, as promises are."""
    return f"{duration_ms:,.{digits}f} ms"


def time_of_day(text: Text, unix_s: float) -> str:
    return text.local(unix_s).strftime("%H:%M:%S")


def date_and_time(text: Text, unix_s: float) -> str:
    return text.local(unix_s).strftime("%Y-%m-%d %H:%M")


def money(text: Text, amount: float | None, currency: str) -> str:
    """An amount with its currency: ¥31.20, JP¥1,204, ABC 12.30. A small one keeps two digits: $0.0041.

    Halves are rounded up, as on a bill, from the decimal that the float stands for.
    """
    if amount is None:
        return UNKNOWN
    exact, places = Decimal(repr(abs(amount))), 0 if currency in _WITHOUT_DECIMALS else 2
    if 0 < exact < _SMALL[places]:
        exact = _TWO_DIGITS.plus(exact)
        places = max(places, 1 - exact.adjusted())
    rounded = exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)
    return f"{'−' if amount < 0 else ''}{_currency_sign(text, currency)}{rounded:,f}"


def short_money(text: Text, amount: float | None, currency: str) -> str:
    """For a column of amounts: what is below a ten-thousandth is only said to be less."""
    if amount is None or not 0 < amount < _LEAST_IN_A_COLUMN:
        return money(text, amount, currency)
    return f"<{_currency_sign(text, currency)}{_LEAST_IN_A_COLUMN}"


def _currency_sign(text: Text, currency: str) -> str:
    return _OTHER_SIGN[text.language].get(currency) or _CURRENCY_SIGN.get(currency) or f"{currency} "
