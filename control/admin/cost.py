"""Cost and prices as routes of the admin API.

It reckons nothing: `control.prices` does, and `control.metrics.cost_questions` knows what was used.
"""

from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import body_of, json_answer, require_known_parameters
from control.admin.errors import OrderInvalid
from control.metrics.cost_questions import CostQuestions
from control.metrics.ranges import range_of
from control.metrics.settings import Settings
from control.prices import MODEL_ID_LIMIT, PRICES_SETTING, Prices, checked
from engine.wire import Frozen

# Where msgspec says what it could not take.
_AT: Final = " - at `$"
_CURRENCY: Final = ".currency"
_NO_PRICE: Final = msgspec.Raw(b"{}")


class _Sent(Frozen, frozen=True, forbid_unknown_fields=True):
    """A PriceList whose prices are read one by one, so that an error can name its model."""

    default: msgspec.Raw = _NO_PRICE
    models: dict[str, msgspec.Raw] = {}  # noqa: RUF012  # msgspec copies it


@dataclass(frozen=True, slots=True)
class CostApi:
    settings: Settings
    prices: Prices
    questions: CostQuestions

    def routes(self) -> list[Route]:
        return [
            Route(wire.COST, self._cost, methods=["GET"]),
            Route(wire.PRICES, self._list_prices, methods=["GET"]),
            Route(wire.PRICES, self._set_prices, methods=["PUT"]),
        ]

    async def _cost(self, request: Request) -> Response:
        require_known_parameters(request, ("range",))
        return json_answer(await self.questions.report(range_of(request.query_params.get("range", "month"))))

    async def _list_prices(self, request: Request) -> Response:
        return json_answer(self.prices.tariff.prices)

    async def _set_prices(self, request: Request) -> Response:
        sent = await body_of(request, _Sent)
        models = {model: _price(price, f"models.{model[:MODEL_ID_LIMIT]!r}") for model, price in sent.models.items()}
        prices = checked(wire.PriceList(default=_price(sent.default, "default"), models=models))
        await self.settings.change(PRICES_SETTING, lambda: prices, in_force=self.prices.replace)
        return json_answer(self.prices.tariff.prices)


def _price(sent: msgspec.Raw, name: str) -> wire.Price:
    """Raises OrderInvalid with the field that is wrong: default.miss, models.'demo'.currency."""
    try:
        price = msgspec.json.decode(sent, type=wire.Price)
    except msgspec.DecodeError as error:
        reason, _, place = str(error).partition(_AT)
        field = place.rstrip("`")
        if field == _CURRENCY:
            reason = "must be three capital letters, such as CNY"
        raise OrderInvalid(f"{name}{field}: {reason}.") from error
    # JSON knows -0.0; it is free of charge like 0.
    return wire.Price(price.currency, price.miss + 0.0, price.hit + 0.0, price.output + 0.0)
