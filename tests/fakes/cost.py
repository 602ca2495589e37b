"""Cost reports as control gives them: tokens of some days, keys and models, at any prices. It asks no database."""

from datetime import date, timedelta

from control.prices import Tariff, Tokens
from control.wire import CostLine, CostReport, Price, PriceList, Range

LAST_DAY = date(2026, 11, 29)
MODELS = ("Qwen3.8-27B-4bit", "demo")
KEYS = ("claude", "codex", "nightly-batch")
TWO_CURRENCIES = PriceList(models={"demo": Price(currency="USD", miss=0.27, hit=0.07, output=1.1)})
NOTHING = Tokens()


def line(label: str, used: dict[str, Tokens], tariff: Tariff) -> CostLine:
    tokens = sum(used.values(), NOTHING)
    return CostLine(label, tokens.requests, tokens.prompt, tokens.cached, tokens.completion, tariff.cost(used))


def report(
    prices: PriceList | None = None, *, chosen: Range = "month", num_days: int = 30, scale: int = 1
) -> CostReport:
    """Each day has its own weight; no request ran on every seventh."""
    tariff = Tariff(prices or PriceList())
    by_day = {
        (LAST_DAY - timedelta(days=back)).isoformat(): _of_a_day(1 + back * 5 % 9, scale)
        for back in reversed(range(num_days))
        if back % 7 != 3
    }
    by_month: dict[str, dict[str, Tokens]] = {}
    for day, used in by_day.items():
        month = by_month.setdefault(day[:7], {})
        for model, tokens in used.items():
            month[model] = month.get(model, NOTHING) + tokens
    total = {model: sum((used[model] for used in by_day.values()), NOTHING) for model in MODELS if by_day}
    shares = dict(zip(KEYS, (6, 3, 1), strict=True))
    return CostReport(
        range=chosen,
        prices=tariff.prices,
        total=tariff.cost(total),
        first_day=(LAST_DAY - timedelta(days=max(num_days, 30) - 1)).isoformat(),
        last_day=LAST_DAY.isoformat(),
        days=tuple(line(day, used, tariff) for day, used in by_day.items()),
        months=tuple(line(month, used, tariff) for month, used in by_month.items()),
        keys=tuple(
            line(key, {model: _times(tokens, share, 10) for model, tokens in total.items()}, tariff)
            for key, share in shares.items()
            if total
        ),
        models=tuple(line(model, {model: tokens}, tariff) for model, tokens in total.items()),
    )


def empty() -> CostReport:
    """Before the first request."""
    return report(num_days=0)


def _of_a_day(weight: int, scale: int) -> dict[str, Tokens]:
    large = Tokens(100 * weight, 4_000_000 * weight * scale, 3_724_000 * weight * scale, 31_000 * weight * scale)
    return {MODELS[0]: large, MODELS[1]: _times(large, 1, 10)}


def _times(tokens: Tokens, share: int, of: int) -> Tokens:
    parts = (tokens.requests, tokens.prompt, tokens.cached, tokens.completion)
    return Tokens(*(part * share // of for part in parts))
