"""Aliases: which name fits, which of several decides, what a class does to a request; and the heartbeats' setting."""

import asyncio

import httpx
import pytest

from control.admin.errors import OrderInvalid
from control.aliases import ALIASES_SETTING, DEFAULT_ALIASES, Aliases, checked, stored_aliases
from control.dialects.exchange import HEARTBEAT_MODES
from control.heartbeats import HEARTBEATS_SETTING, Heartbeats
from control.metrics.settings import Settings
from control.wire import Alias
from engine import wire
from tests.unit.control_gateway.gateway_stage import FINISHED, accepted, chat_body, eventually, staged

PATH = "/v1/chat/completions"


class NoDisk:
    """A writer that keeps nothing."""

    async def write(self, job):
        return None


def named(*names: str) -> Aliases:
    return Aliases(Alias(name=name) for name in names)


@pytest.mark.parametrize(
    ("alias", "name", "fits"),
    [
        ("default", "default", True),
        ("default", "defaults", False),
        ("claude-*", "claude-", True),
        ("claude-*", "claude-opus-4-5", True),
        ("claude-*", "my-claude-opus", False),
        ("claude-*", "Claude-opus", False),
        ("*", "anything/at:all", True),
        ("a*c", "abc", True),
        ("a*c", "abcd", False),
        ("a.c", "abc", False),
        ("model[1m]", "model[1m]", True),
        ("model[1m]", "model1", False),
        ("what?", "whatx", False),
        ("*b", "a\nb", True),
    ],
)
def test_a_star_is_any_text_and_everything_else_is_itself(alias, name, fits):
    assert named(alias).knows(name) is fits


def test_a_pattern_of_many_stars_is_quick_to_say_no():
    assert not named("*a" * 40 + "b").knows("a" * 200)


def test_a_name_that_is_longer_than_any_alias_can_be_is_none():
    assert not named("*").knows("x" * 100_000)


def test_the_name_that_says_most_decides_in_whatever_order_they_were_given():
    aliases = [
        Alias(name="claude-*"),
        Alias(name="claude-haiku-*", request_class="batch"),
        Alias(name="claude-haiku-best", request_class="interactive"),
    ]

    for order in (aliases, aliases[::-1]):
        assert Aliases(order).class_of("claude-opus-9") is None
        assert Aliases(order).class_of("claude-haiku-9") == "batch"
        assert Aliases(order).class_of("claude-haiku-best") == "interactive"
        assert Aliases(order).class_of("nobody") is None


def test_plain_names_are_those_without_a_star():
    assert named("default", "claude-*", "claude-local").plain_names() == ("default", "claude-local")


@pytest.mark.parametrize("name", ["", " x", "x ", "a\nb", "x" * 201])
def test_a_name_that_cannot_be_is_refused(name):
    with pytest.raises(OrderInvalid, match="aliases: "):
        checked([Alias(name="good"), Alias(name=name)])


def test_the_same_name_twice_is_refused():
    with pytest.raises(OrderInvalid, match="'x' is there twice"):
        checked([Alias(name="x"), Alias(name="x", request_class="batch")])


def test_a_hundred_and_one_are_too_many():
    with pytest.raises(OrderInvalid, match="not 101"):
        checked(Alias(name=str(number)) for number in range(101))


@pytest.mark.parametrize(
    "stored", [None, "x", [{"name": ""}], [{"name": "a", "request_class": "first"}], [{"name": "a"}, {"name": "a"}]]
)
def test_without_a_usable_setting_the_default_ones_are_in_force_and_damage_is_logged(stored, caplog):
    assert stored_aliases(Settings({ALIASES_SETTING: stored}, NoDisk())) == DEFAULT_ALIASES
    assert ("setting ignored name=aliases" in caplog.text) == (stored is not None)


def test_no_alias_at_all_can_be_chosen():
    assert stored_aliases(Settings({ALIASES_SETTING: []}, NoDisk())) == ()


# --- What a class does ---

HAIKU = Alias(name="claude-haiku-*", request_class="batch")
OPUS = Alias(name="claude-opus-*", request_class="interactive")


@pytest.mark.parametrize(
    ("key_class", "model", "request_class"),
    [
        ("interactive", "demo", "interactive"),
        ("interactive", "claude-haiku-9", "batch"),
        ("interactive", "claude-opus-9", "interactive"),
        ("batch", "claude-haiku-9", "batch"),
        ("batch", "claude-opus-9", "batch"),
    ],
)
async def test_an_alias_can_make_a_request_batch_and_no_batch_key_interactive(
    tmp_path, key_class, model, request_class
):
    async with staged(tmp_path, aliases=Aliases([HAIKU, OPUS])) as stage:
        key = (await stage.keys.create("other", key_class)).key
        headers = {"authorization": f"Bearer {key}"}
        answer = await stage.client.post(PATH, json=chat_body(model=model), headers=headers)

    assert answer.status_code == 200
    assert [request.request_class for request in stage.engine.received] == [request_class]


async def test_background_requests_of_an_interactive_key_let_the_others_go_first(tmp_path):
    may_end = asyncio.Event()

    async def script(request):
        yield accepted(request)
        await may_end.wait()
        yield [FINISHED]

    async with staged(tmp_path, concurrency=1, aliases=Aliases([HAIKU])) as stage, asyncio.TaskGroup() as group:
        stage.engine.scripts = [script]
        for model in ("demo", "claude-haiku-9", "demo"):
            before = len(stage.line.waiting) + len(stage.line.running)
            group.create_task(stage.client.post(PATH, json=chat_body(model=model)))
            await eventually(lambda before=before: len(stage.line.waiting) + len(stage.line.running) == before + 1)
        waiting = [(each.position, each.request_class) for each in stage.relay.waiting()]
        may_end.set()

    assert waiting == [(1, "interactive"), (2, "batch")]


async def test_a_request_by_an_alias_goes_on_with_the_model_that_follows(tmp_path):
    async with staged(tmp_path) as stage, asyncio.TaskGroup() as group:
        engine, stage.source.engine = stage.source.engine, None
        stage.source.availability = "held"
        stage.line.hold()
        answers = [
            group.create_task(stage.client.post(PATH, json=chat_body(model=name))) for name in ("claude-opus-9", "demo")
        ]
        await eventually(lambda: len(stage.line.waiting) == 2)
        stage.source.engine, stage.source.availability = engine, "ready"
        stage.source.model = wire.ModelStatus(
            **{
                **{name: getattr(stage.source.model, name) for name in stage.source.model.__struct_fields__},
                "id": "next",
            }
        )
        stage.source.wanted_model = "next"
        stage.line.open()

    results: list[httpx.Response] = [answer.result() for answer in answers]
    assert [(result.status_code, result.json()["model"]) for result in results] == [(200, "next"), (200, "next")]


# --- Heartbeats ---


def test_each_dialect_begins_with_its_first_mode():
    heartbeats = Heartbeats(Settings({}, NoDisk()))

    assert {dialect: heartbeats.mode_of(dialect) for dialect in HEARTBEAT_MODES} == {
        dialect: modes[0] for dialect, modes in HEARTBEAT_MODES.items()
    }


async def test_a_mode_that_was_chosen_is_in_force_and_comes_back_after_a_restart():
    settings = Settings({}, NoDisk())
    heartbeats = Heartbeats(settings)

    await heartbeats.change({"messages": "ping"})
    again = Heartbeats(settings)

    for each in (heartbeats, again):
        assert (each.mode_of("messages"), each.mode_of("responses")) == ("ping", "typed")


@pytest.mark.parametrize(
    ("modes", "sentence"),
    [
        ({"responses": "comment", "chat": "ping"}, "modes.chat: 'ping' is not one of comment"),
        ({"responses": "comment", "gemini": "comment"}, "no dialect 'gemini'"),
    ],
)
async def test_a_mode_that_a_dialect_does_not_have_is_refused_and_nothing_changes(modes, sentence):
    heartbeats = Heartbeats(Settings({}, NoDisk()))

    with pytest.raises(OrderInvalid, match=sentence):
        await heartbeats.change(modes)

    assert heartbeats.mode_of("responses") == "typed"


@pytest.mark.parametrize("stored", ["x", {"messages": 1}, {"messages": "smoke"}, {"gone": "comment"}])
def test_a_stored_mode_that_means_nothing_is_the_default(stored):
    heartbeats = Heartbeats(Settings({HEARTBEATS_SETTING: stored}, NoDisk()))

    assert heartbeats.mode_of("messages") == "typed"
