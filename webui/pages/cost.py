"""Endpoints of the page *Cost*: the amounts of a range, and the prices that they are reckoned with.

A form that can't be used comes back as it was filled in, with the reason at each field.
"""

from typing import Final, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control.wire import COST, PRICES, CostReport, PriceList, Range
from webui.errors import BadForm, ControlGone, ControlRefused
from webui.pages.edge import Form, console_of, may_be_taken_later, order, see_other, sentence_for
from webui.price_form import read, with_price, without_price
from webui.views.cost import cost_page, cost_unknown
from webui.views.prices import Refused, in_words

_TEMPLATE: Final = "cost.html"
_RANGES: Final[tuple[Range, ...]] = get_args(Range)
_USUAL: Final[Range] = "month"
_UNREADABLE: Final = 422
_NOTHING_NEW: Final = 204


async def show(request: Request) -> Response:
    return await _page(request)


async def show_live(request: Request) -> Response:
    """The amounts. While they can't be had the page keeps those that it shows: they are of the past, and still true."""
    console = console_of(request)
    shell = await console.shell(request, "cost", "cost.title", here="/cost")
    try:
        report = await _report(request)
    except (ControlGone, ControlRefused):
        return Response(status_code=_NOTHING_NEW)
    return console.answer(request, _TEMPLATE, cost_page(shell, report), block="live")


async def set_price(request: Request, form: Form) -> Response:
    console, filled = console_of(request), read(form)
    if filled.price is None:
        return await _page(request, refused=Refused(form, filled.wrong))
    prices = await console.control.ask("GET", PRICES, PriceList)
    try:
        await console.control.ask("PUT", PRICES, PriceList, with_price(prices, filled.model, filled.price))
    except ControlRefused as refusal:
        if may_be_taken_later(refusal):
            raise
        return await _page(request, refused=Refused(form, {}, reason=sentence_for(refusal, console.text_for(request))))
    text = console.text_for(request)
    name = text("prices.all_others") if filled.model is None else filled.model
    return _done(request, text("prices.changed", model=name, price=in_words(filled.price, text)))


async def remove_price(request: Request, _: Form) -> Response:
    console, model = console_of(request), request.query_params.get("model", "")
    prices = await console.control.ask("GET", PRICES, PriceList)
    if model not in prices.models:
        raise BadForm("model")
    await console.control.ask("PUT", PRICES, PriceList, without_price(prices, model))
    return _done(request, console.text_for(request)("prices.removed", model=model))


async def _page(request: Request, *, refused: Refused | None = None) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "cost", "cost.title", here=_here(request))
    try:
        report = await _report(request)
    except (ControlGone, ControlRefused) as error:
        problem = shell.text("cost.unknown") if isinstance(error, ControlGone) else sentence_for(error, shell.text)
        return console.answer(request, _TEMPLATE, cost_unknown(shell, _range(request), problem))
    view = cost_page(shell, report, refused=refused)
    return console.answer(request, _TEMPLATE, view, status=_UNREADABLE if refused is not None else 200)


async def _report(request: Request) -> CostReport:
    return await console_of(request).control.ask("GET", f"{COST}?range={_range(request)}", CostReport)


def _range(request: Request) -> Range:
    chosen = request.query_params.get("range", _USUAL)
    return next((each for each in _RANGES if each == chosen), _USUAL)


def _here(request: Request) -> str:
    return f"/cost?range={_range(request)}"


def _done(request: Request, sentence: str) -> Response:
    response = see_other(_here(request))
    console_of(request).sessions.leave_notice(response, sentence, is_good=True)
    return response


ROUTES: Final = (
    Route("/cost", show),
    Route("/cost/live", show_live),
    Route("/cost/prices", order(set_price, back="/cost", is_typed=True), methods=["POST"]),
    Route("/cost/prices/remove", order(remove_price, back="/cost"), methods=["POST"]),
)
