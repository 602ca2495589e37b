"""A misspelt field of an order is refused with its name, and does not count as one that was left out."""

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from control import wire
from control.admin.edge import HANDLERS, body_of, json_answer
from control.wire import PlaygroundMessage, Price

ORDERS = {
    wire.LoadRequest: {"model": "demo"},
    wire.UnloadRequest: {"force": True},
    wire.QuitRequest: {"force": True},
    wire.ConcurrencyRequest: {"concurrency": 2},
    wire.NewKey: {"name": "laptop"},
    wire.KeyChange: {"max_in_flight": 1},
    wire.AliasList: {"aliases": []},
    wire.HeartbeatModes: {"modes": {}},
    wire.PlanRequest: {"model": "demo"},
    wire.BackupRequest: {"name": "x.db"},
    wire.NewLoginLink: {"valid_s": 5},
    wire.Redeem: {"token": "t"},
}


async def sent(kind: type[msgspec.Struct], body: object) -> httpx.Response:
    async def take(request):
        return json_answer(await body_of(request, kind))

    app = Starlette(routes=[Route("/", take, methods=["POST"])], exception_handlers=HANDLERS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        return await client.post("/", json=body)


@pytest.mark.parametrize("kind", ORDERS, ids=lambda kind: kind.__name__)
async def test_an_order_with_a_field_that_it_does_not_have_is_refused_with_its_name(kind):
    right, wrong = await sent(kind, ORDERS[kind]), await sent(kind, {**ORDERS[kind], "contxt": 1})

    assert right.status_code == 200
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_request")
    assert wrong.json()["message"] == "Object contains unknown field `contxt`."


@pytest.mark.parametrize(
    ("kind", "body", "named"),
    [
        (wire.NewKey, {"name": "laptop", "limits": {"per_day": 1}}, "`per_day` - at `$.limits`"),
        (wire.AliasList, {"aliases": [{"name": "x", "class": "batch"}]}, "`class` - at `$.aliases[0]`"),
    ],
)
async def test_so_is_one_further_inside(kind, body, named):
    answer = await sent(kind, body)

    assert answer.status_code == 400
    assert answer.json()["message"] == f"Object contains unknown field {named}."


@pytest.mark.parametrize("kind", [wire.PlaygroundRequest, PlaygroundMessage, Price])
def test_what_is_read_elsewhere_takes_no_others_either(kind):
    assert kind.__struct_config__.forbid_unknown_fields
