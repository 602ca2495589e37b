"""Orders to the engine, as the pages *Now* and *Model* give them; each leads back to the page that it was given on.

It decides nothing about the engine: each order is one question to control.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control.wire import NUM_SLOTS
from webui.errors import BadForm
from webui.pages.edge import Form, console_of, order, see_other, whole_number
from webui.views.engine import cleared_notice


def _orders(address: str, *, page: str) -> tuple[Route, ...]:
    """The same orders at `address`, for the forms of `page`."""

    async def unload(request: Request, _: Form) -> Response:
        await console_of(request).control.unload(force=False)
        return see_other(page)

    async def force_stop(request: Request, _: Form) -> Response:
        await console_of(request).control.unload(force=True)
        return see_other(page)

    async def restart(request: Request, _: Form) -> Response:
        await console_of(request).control.restart()
        return see_other(page)

    async def clear_cache(request: Request, _: Form) -> Response:
        """What was freed is seen nowhere on the page, so it is said."""
        console = console_of(request)
        cleared = await console.control.clear_cache()
        response = see_other(page)
        console.sessions.leave_notice(response, cleared_notice(cleared, console.text_for(request)), is_good=True)
        return response

    async def set_concurrency(request: Request, form: Form) -> Response:
        concurrency = whole_number(form, "concurrency")
        if concurrency is None or not 1 <= concurrency <= NUM_SLOTS:
            raise BadForm("concurrency")
        await console_of(request).control.set_concurrency(concurrency)
        return see_other(page)

    return (
        Route(f"{address}/unload", order(unload, back=page), methods=["POST"]),
        Route(f"{address}/stop", order(force_stop, back=page), methods=["POST"]),
        Route(f"{address}/restart", order(restart, back=page), methods=["POST"]),
        Route(f"{address}/cache/clear", order(clear_cache, back=page), methods=["POST"]),
        Route(f"{address}/concurrency", order(set_concurrency, back=page), methods=["POST"]),
    )


ROUTES: Final = (*_orders("/engine", page="/"), *_orders("/model/engine", page="/model"))
