"""Names with characters that are none: refused in one line wherever a name is taken, before anything happens."""

import msgspec
import pytest

from control import wire
from control.admin.edge import on_one_line
from control.cli.load_options import Given, load_request
from control.command_errors import UsageWrong
from control.load_settings import complaint
from control.wire import LoadRequest
from tests.unit.control_lifecycle.test_admin_api import api, error_of  # noqa: F401  # a fixture

IMPOSSIBLE = [
    "demo\0",
    "\0",
    "x\ny",
    "demo\n",
    "a\tb",
    "a\rb",
    "\x1b[31mred",
    "a\x7fb",
    "a\x85b",
    "a\u2028b",
    "a\u2029b",
]


@pytest.mark.parametrize("name", IMPOSSIBLE)
async def test_a_load_of_a_name_with_control_characters_is_refused_and_the_model_runs_on(api, name):  # noqa: F811
    await api.scene.ready()

    answer = await api.client.post(wire.LOAD, content=msgspec.json.encode({"model": name}))

    assert (answer.status_code, error_of(answer).code) == (400, "invalid_request")
    assert repr(name) in error_of(answer).message and error_of(answer).message.isprintable()
    assert (api.scene.state, api.scene.line.is_open, len(api.scene.engine.spawned)) == ("ready", True, 1)


@pytest.mark.parametrize("name", ["a\0b", "x\ny", "\x1b[31mred"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", wire.KEYS, lambda name: {"name": name}),
        ("PUT", wire.ALIASES, lambda name: {"aliases": [{"name": name}]}),
        ("PUT", wire.HEARTBEATS, lambda name: {"modes": {name: "ping"}}),
        ("PUT", wire.HEARTBEATS, lambda name: {"modes": {"chat": name}}),
        ("POST", wire.KEYS, lambda name: {"name": "x", "request_class": name}),
        ("POST", wire.LOAD, lambda name: {"kv_bits": name}),
    ],
)
async def test_every_order_that_takes_a_name_refuses_it_on_one_line(api, method, path, body, name):  # noqa: F811
    answer = await api.client.request(method, path, content=msgspec.json.encode(body(name)))

    assert answer.status_code == 400
    assert error_of(answer).message.isprintable()
    assert api.keys.list() == ()


async def test_a_path_with_a_line_break_is_shown_on_one_line(api):  # noqa: F811
    answer = await api.client.post("/requests/x%0Ay/cancel")
    nowhere = await api.client.get("/no%0Awhere")

    assert error_of(answer).message == "The request 'x\\ny' is not here; it may just have ended."
    assert error_of(nowhere).message == "The admin API has no /no\\nwhere."


@pytest.mark.parametrize("name", [*IMPOSSIBLE, "caf\udce9"])
def test_the_command_line_refuses_them_before_it_asks_anybody(name):
    with pytest.raises(UsageWrong) as refused:
        load_request(name, Given())

    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["demo", "org/name", "/models/Qwen 3 (8 bit)", "café/模型", "семь", "👩‍💻", None, ""])
def test_what_people_call_their_models_is_let_through(name):
    assert complaint(LoadRequest(model=name)) is None


def test_a_sentence_keeps_its_letters_and_shows_what_cannot_be_seen():
    assert on_one_line("„模型“ 'a\nb'\x1b[0m") == "„模型“ 'a\\nb'\\x1b[0m"
