"""Single requests by the admin API: what is asked is understood or refused in words, and a file has every row once."""

import asyncio
import csv
import io
import json
from types import SimpleNamespace

import httpx
import msgspec
import pytest
import uvicorn
from sqlalchemy import insert
from starlette.applications import Starlette

from control import wire
from control.admin.edge import HANDLERS
from control.admin.requests import RequestsApi
from control.metrics.database import open_database, open_for_reading
from control.metrics.questions import Questions
from control.metrics.request_questions import RequestQuestions
from control.metrics.request_questions import listed as listed_row
from control.metrics.request_search import Cursor
from control.metrics.tables import requests as table
from control.prices import Prices, Tariff
from control.relay import Relay
from tests.unit.control_gateway.request_rows import NOON_S, row
from tests.unit.control_lifecycle.scene import Scene

NOW_S = NOON_S + 5_000


@pytest.fixture
async def api(tmp_path):
    """Only these routes, on a real database. `fill` puts rows into it."""
    engine, questions = open_database(tmp_path / "splash.db"), Questions(open_for_reading(tmp_path / "splash.db"))
    scene = Scene()
    relay = Relay(line=scene.line, source=scene.supervisor, record=lambda row: None)
    room = RequestsApi(requests=RequestQuestions(questions, Prices()), relay=relay, wall=lambda: NOW_S)
    app = Starlette(routes=room.routes(), exception_handlers=HANDLERS)

    def fill(*rows):
        with engine.begin() as connection:
            connection.execute(insert(table), [msgspec.structs.asdict(each) for each in rows])

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        yield SimpleNamespace(client=client, fill=fill)
    engine.dispose()
    questions.close()


async def listed(api, query: str) -> wire.RequestPage:
    answer = await api.client.get(f"{wire.REQUESTS}?{query}")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=wire.RequestPage)


def numbers(page: wire.RequestPage) -> list[int]:
    return [each.row.number for each in page.requests]


async def test_the_list_is_the_newest_first_and_goes_on_where_it_ended(api):
    api.fill(*(row(number) for number in range(1, 61)))

    first = await listed(api, "")
    second = await listed(api, f"after={first.next}")

    assert (numbers(first), numbers(second)) == (list(range(60, 10, -1)), list(range(10, 0, -1)))
    assert (first.previous, second.next) == (None, None)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("key=night", [2]),
        ("model=small", [3]),
        ("outcome=failed", [4]),
        ("dialect=messages", [5]),
        ("request_class=batch", [6]),
        ("key=night&outcome=failed", []),
        ("since=1795000005", [6, 5]),
        ("until=1795000003", [2, 1]),
        ("since=1795000002.5&until=1795000004", [3]),
        ("range=hour", []),
        ("range=day&limit=2", [6, 5]),
        ("range=all&sort=decode&direction=desc&limit=1", [1]),
        ("sort=started&direction=asc&limit=2", [1, 2]),
    ],
)
async def test_each_filter_leaves_what_it_names(api, query, expected):
    api.fill(
        row(1, decode_ms=9000.0),
        row(2, key="night"),
        row(3, model="small"),
        row(4, outcome="failed"),
        row(5, dialect="messages"),
        row(6, request_class="batch"),
    )

    assert numbers(await listed(api, query)) == expected


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("sort=size", "sort must be one of started"),
        ("direction=up", "direction must be one of asc, desc"),
        ("outcome=lost", "outcome must be one of completed"),
        ("request_class=fast", "request_class must be one of interactive, batch"),
        ("range=year", "range must be one of hour"),
        ("since=yesterday", "since must be Unix time"),
        ("until=inf", "until must be Unix time"),
        ("since=1&range=day", "Either since or range"),
        ("after=xyz", "after must be"),
        ("after=", "after must be"),
        ("outcom=failed", "There is no parameter 'outcom' here; there are since, until"),
        ("format=csv", "There is no parameter 'format' here"),
    ],
)
async def test_what_is_not_understood_is_refused_with_its_name(api, query, named):
    answer = await api.client.get(f"{wire.REQUESTS}?{query}")
    error = msgspec.json.decode(answer.content, type=wire.AdminError)

    assert (answer.status_code, error.code) == (400, "invalid_request")
    assert named in error.message


async def test_one_request_and_none(api):
    api.fill(row(3))

    found = await api.client.get(wire.REQUEST.format(id=row(3).id))
    unknown = await api.client.get(wire.REQUEST.format(id="nobody"))

    assert msgspec.json.decode(found.content, type=wire.ListedRequest).row == row(3)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "request_not_found")


async def test_choices_are_those_of_the_rows(api):
    api.fill(row(1), row(2, key="night", dialect="messages"))

    answer = await api.client.get(wire.REQUEST_CHOICES)

    assert answer.json() == {"keys": ["claude", "night"], "models": ["big"], "dialects": ["chat", "messages"]}


async def test_a_csv_holds_every_row_once_with_units_in_its_header_and_times_in_utc(api):
    api.fill(*(row(number) for number in range(1, 2_502)))

    answer = await api.client.get(f"{wire.REQUEST_EXPORT}?format=csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))

    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="splash-requests-20261118-123000Z.csv"'
    assert [int(each["number"]) for each in rows] == list(range(2_501, 0, -1))
    assert rows[-1]["started_at_utc"] == "2026-11-18T11:06:41.000Z"
    assert float(rows[-1]["started_at_s"]) == NOON_S + 1
    assert {"queue_ms", "ttft_ms", "largest_gap_ms", "tokens_per_second", "cost", "currency"} <= rows[0].keys()
    assert (rows[0]["error_code"], rows[0]["tokens_per_second"], rows[0]["currency"]) == ("", "100.0", "CNY")


async def test_a_json_file_is_one_list_of_the_same_rows_also_when_there_are_none(api):
    nothing = await api.client.get(f"{wire.REQUEST_EXPORT}?format=json")
    api.fill(*(row(number) for number in range(1, 1_501)))

    everything = await api.client.get(f"{wire.REQUEST_EXPORT}?format=json")

    rows = json.loads(everything.content)
    assert (nothing.json(), nothing.headers["content-type"]) == ([], "application/json")
    assert [each["number"] for each in rows] == list(range(1_500, 0, -1))
    assert (rows[0]["largest_gap_ms"], rows[0]["stream"]) == (None, True)


async def test_a_file_has_no_more_digits_than_were_measured_and_says_true_and_false_as_json_does(api):
    """The floats themselves have up to 17 digits, of which a spreadsheet would show them all."""
    api.fill(
        row(1, queue_ms=17_314.3470000241, decode_ms=1_000.04, completion_tokens=4, first_emission_tokens=1),
        row(2, stream=False, prompt_tokens=1, cached_tokens=1, completion_tokens=0, largest_gap_ms=None),
    )

    sheet = await api.client.get(f"{wire.REQUEST_EXPORT}?format=csv")
    program = await api.client.get(f"{wire.REQUEST_EXPORT}?format=json")
    whole, streamed = csv.DictReader(io.StringIO(sheet.text))

    assert (streamed["queue_ms"], streamed["decode_ms"], streamed["tokens_per_second"]) == ("17314.3", "1000.0", "3.0")
    assert (streamed["stream"], whole["stream"]) == ("true", "false")
    assert (whole["cost"], whole["largest_gap_ms"]) == ("0.0000001", "")
    said = {name: value for name, value in program.json()[1].items() if isinstance(value, float)}
    assert said == {name: float(streamed[name]) for name in said}


async def test_a_range_ends_now_and_what_has_a_date_to_come_is_in_all_only(api):
    api.fill(row(1, started_at_s=NOW_S - 60), row(2, started_at_s=NOW_S + 9 * 86_400))

    found = {}
    for chosen in ("hour", "day", "week", "month", "all"):
        answer = await api.client.get(f"{wire.REQUESTS}?range={chosen}")
        found[chosen] = [each["row"]["number"] for each in answer.json()["requests"]]

    assert found == {"hour": [1], "day": [1], "week": [1], "month": [1], "all": [2, 1]}


async def test_a_file_holds_what_the_filter_names_and_nothing_that_came_later(api):
    api.fill(row(1), row(2, key="night"), row(3, started_at_s=NOW_S))

    nights = await api.client.get(f"{wire.REQUEST_EXPORT}?format=json&key=night")
    everything = await api.client.get(f"{wire.REQUEST_EXPORT}?format=json&direction=asc")

    assert [each["number"] for each in nights.json()] == [2]
    assert [each["number"] for each in everything.json()] == [1, 2]


@pytest.mark.parametrize(
    "name", ["=HYPERLINK(1)", "+1", "-1", "@sum", "\ttab", "\rreturn", "\nline", "＝1", "＋1", "－1", "＠1"]
)
async def test_text_that_a_spreadsheet_would_run_is_shown_instead(api, name):
    api.fill(row(1, key=name, model='a "quoted", name'))

    answer = await api.client.get(f"{wire.REQUEST_EXPORT}?format=csv")
    (found,) = csv.DictReader(io.StringIO(answer.text, newline=""))

    assert found["key"] == f"'{name}"
    assert found["model"] == 'a "quoted", name'
    assert found["queue_ms"] == "10.0"


async def test_a_file_of_an_unknown_form_is_refused_before_it_begins(api):
    answer = await api.client.get(f"{wire.REQUEST_EXPORT}?format=xlsx")

    assert (answer.status_code, answer.json()["message"]) == (400, "format must be one of csv, json.")


async def test_a_file_with_an_unknown_parameter_is_refused_before_it_begins(api):
    answer = await api.client.get(f"{wire.REQUEST_EXPORT}?format=json&limit=5")

    assert answer.status_code == 400
    assert "There is no parameter 'limit' here" in answer.json()["message"]


async def test_a_row_whose_number_is_negative_ends_a_page_like_any_other(api):
    api.fill(*(row(number, started_at_s=NOON_S + abs(number)) for number in (-1, -(2**63), 3)))

    pages = [await listed(api, "limit=1&direction=asc")]
    while (after := pages[-1].next) is not None:
        pages.append(await listed(api, f"limit=1&direction=asc&after={after}"))

    assert [numbers(page) for page in pages] == [[-1], [3], [-(2**63)]]


async def test_a_request_that_nobody_knows_cannot_be_cancelled(api):
    answer = await api.client.post(wire.CANCEL.format(id="nobody"))

    assert (answer.status_code, answer.json()["code"]) == (404, "request_not_found")


async def test_a_file_ends_when_its_reader_leaves():
    """The pages are endless, so that only the leaving can be the end."""

    class Endless:
        def __init__(self) -> None:
            self.num_pages = 0

        async def page_as(self, search, form):
            self.num_pages += 1
            await asyncio.sleep(0)
            last = Cursor("started", "desc", NOON_S, 1, False, None)
            return form(
                wire.RequestPage(requests=(listed_row(row(1), Tariff(wire.PriceList())),) * 100, next=last.text())
            )

    pages = Endless()
    room = RequestsApi(requests=pages, relay=None, wall=lambda: NOW_S)
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=room.routes()), port=0, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        address = f"http://127.0.0.1:{port}{wire.REQUEST_EXPORT}"
        async with httpx.AsyncClient(trust_env=False) as client, client.stream("GET", address) as answer:
            await anext(answer.aiter_bytes())
        while server.server_state.tasks:  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(0.01)
        num_pages = pages.num_pages
        await asyncio.sleep(0.05)
        server.should_exit = True
        await serving

    assert pages.num_pages == num_pages > 0
