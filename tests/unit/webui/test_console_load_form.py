"""The form that loads a model: what it shows of the model that runs, what becomes an order, and what is sent back."""

import re

import msgspec
import pytest

from control import load_settings
from control.lifecycle import Wanted
from control.wire import LayoutStatus, LoadRequest
from tests.fakes import control as fake
from webui import load_form

SHOWN = {"shown_kv_bits": "8", "shown_max_gap_ms": "500", "shown_decode_share": "50"}
UNDONE = {"kv_bits": "default", "max_gap_ms": 62.5, "decode_share": 0.0}
AS_SHOWN = {"kv_bits": "8", "max_gap_ms": "500", "decode_share": "50", **SHOWN}


def field(html: str, name: str) -> str:
    """What the field `name` shows."""
    select = re.search(rf'<select id="load-{name}".*?</select>', html, re.DOTALL)
    if select is not None:
        chosen = re.search(r'value="([^"]*)" selected', select[0])
        return chosen[1] if chosen is not None else re.search(r'value="([^"]*)"', select[0])[1]
    return re.search(rf'<input id="load-{name}"[^>]* value="([^"]*)"', html)[1]


def settings(html: str) -> dict[str, str]:
    return {name: field(html, name) for name in ("kv_bits", "max_gap_ms", "decode_share")}


async def ask(console, **form: str) -> str:
    """The page of the model, `demo` when none is named."""
    return (await console.browser.get("/model/load", params={"model": "demo", **form})).text


@pytest.fixture
def running(console):
    """A model that runs with settings of its own."""
    promises = msgspec.structs.replace(fake.PROMISES, max_gap_ms=62.5, decode_share=0.29)
    layout = LayoutStatus(kind="rows", reason="", kv_bits=8)
    console.control.overview = fake.overview(view=fake.engine(layout=layout, promises=promises))
    return console


@pytest.mark.parametrize(
    ("fields", "order"),
    [
        ({"model": "", "context": ""}, {}),
        ({"model": "demo", "context": "131,072"}, {"model": "demo", "context": 131_072}),
        ({"context": "６５，５３６", "budget_bytes": "１２ GiB"}, {"context": 65_536, "budget_bytes": 12 * 2**30}),
        ({"model": " /models/mine ", "context": "65 536"}, {"model": "/models/mine", "context": 65_536}),
        ({"context": "Auto", "budget_bytes": "自动"}, {"context": "default", "budget_bytes": "default"}),
        ({"budget_bytes": "12"}, {"budget_bytes": 12 * fake.GIB}),
        ({"budget_bytes": "12.25 GiB"}, {"budget_bytes": 12 * fake.GIB + fake.GIB // 4}),
        ({"budget_bytes": "1,024 mb"}, {"budget_bytes": fake.GIB}),
        (
            {"model": "mine", "kv_bits": "4", "max_gap_ms": "1,000 ms", "decode_share": "12.5 %"},
            {"model": "mine", "kv_bits": 4, "max_gap_ms": 1_000.0, "decode_share": 0.125},
        ),
        ({"kv_bits": "default", "max_gap_ms": "62.5", "decode_share": "0"}, UNDONE),
        ({"max_gap_ms": "250毫秒", "decode_share": "90％"}, {"max_gap_ms": 250.0, "decode_share": 0.9}),
        (AS_SHOWN, {}),
        (AS_SHOWN | {"model": "another"}, {"model": "another"}),
        (AS_SHOWN | {"kv_bits": "default"}, {"kv_bits": "default"}),
        (AS_SHOWN | {"max_gap_ms": ""}, {}),
    ],
)
async def test_what_was_changed_is_ordered_and_the_rest_stays_as_the_model_had_it(console, fields, order):
    answer = await console.post("/model/load", **fields)

    assert (answer.status_code, answer.headers["location"]) == (303, "/model")
    assert console.control.orders == [("POST", "/engine/load", order)]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        *(("context", value, "a whole number") for value in ("many", "-1", "1.5", "0", "٣", "9" * 13)),
        ("context", "1" * 5_000, "a whole number"),
        *(
            ("budget_bytes", value, "has to be a size")
            for value in ("lots", "0", "-1", "1e3", "12 PiB", "9" * 12 + " TiB")
        ),
        ("kv_bits", "3", "Choose one of these."),
        *(("max_gap_ms", value, "from 50 to 10,000") for value in ("49", "10001", "soon", "nan", "1e3", "-50")),
        *(("decode_share", value, "0, or from 1 to 90") for value in ("91", "0.25", "half", "nan", "-1", "12,5")),
    ],
)
async def test_what_cannot_be_read_is_said_at_its_field_and_nothing_is_ordered(console, name, value, sentence):
    answer = await console.post("/model/load", model="/m/<b>", **{name: value})

    html = answer.text
    told = re.search(rf'id="load-{name}"[^>]*aria-describedby="([^"]*)"[^>]*>', html)
    assert answer.status_code == 422
    assert console.control.orders == []
    assert sentence in re.search(rf'id="load-{name}-wrong"[^>]*>(.*?)</p>', html, re.DOTALL)[1]
    assert told[1] == f"load-{name}-note load-{name}-wrong"
    assert 'aria-invalid="true" data-first' in told[0]
    assert html.count("aria-invalid") == html.count('class="wrong"') == 1
    assert 'data-address="/model/load?model=%2Fm%2F%3Cb%3E"' in html
    assert ("<details open>" in html) is (name in ("max_gap_ms", "decode_share"))
    assert '<input type="hidden" name="model" value="/m/&lt;b&gt;">' in html
    assert name == "kv_bits" or field(html, name) == value


async def test_everything_that_is_wrong_is_said_at_once_and_what_was_right_is_kept(running):
    answer = await running.post(
        "/model/load",
        model=fake.MODEL.id,
        context="many",
        kv_bits="4",
        max_gap_ms="1",
        decode_share="29",
        shown_decode_share="29",
    )

    assert answer.text.count('class="wrong"') == 2
    assert settings(answer.text) == {"kv_bits": "4", "max_gap_ms": "1", "decode_share": "29"}


async def test_the_form_shows_what_the_running_model_has(running):
    page = await ask(running, model=fake.MODEL.id)

    assert settings(page) == {"kv_bits": "8", "max_gap_ms": "62.5", "decode_share": "29"}
    assert field(page, "context") == ""


async def test_a_context_that_is_kept_in_full_is_shown_as_such(console):
    page = await ask(console, model=fake.MODEL.id)

    assert settings(page) == {"kv_bits": "default", "max_gap_ms": "500", "decode_share": "50"}


@pytest.mark.parametrize("view", [fake.engine("unloaded"), fake.engine("loading"), fake.engine("failed", error="no")])
async def test_without_a_running_model_every_setting_is_as_last_time(console, view):
    console.control.overview = fake.overview(view=view)

    page = await ask(console, model=fake.MODEL.id)

    assert settings(page) == {"kv_bits": "", "max_gap_ms": "", "decode_share": ""}
    assert 'placeholder="as last time"' in page


async def test_another_model_does_not_get_the_settings_of_the_one_that_runs(running):
    page = await ask(running, model="another")

    assert settings(page) == {"kv_bits": "", "max_gap_ms": "", "decode_share": ""}


async def test_without_a_model_the_form_leads_to_the_list_of_them(console):
    answer = await console.browser.get("/model/load")

    assert (answer.status_code, answer.headers["location"]) == (303, "/model")


def test_the_bounds_of_the_form_are_those_of_the_gateway():
    assert load_form.KV_BITS == load_settings.KV_BITS
    assert (load_form.LEAST_GAP_MS, load_form.MOST_GAP_MS) == (load_settings.LEAST_GAP_MS, load_settings.MOST_GAP_MS)
    assert load_form.MOST_SHARE_PERCENT / 100 == load_settings.MOST_SHARE
    assert Wanted("m").max_gap_ms == load_form.USUAL_GAP_MS
    assert Wanted("m").decode_share == load_form.USUAL_SHARE_PERCENT / 100
    extremes = {"max_gap_ms": "10,000", "decode_share": "90", "context": "9" * 12}
    assert load_settings.complaint(load_form.read(extremes).order or LoadRequest(max_gap_ms=0)) is None
