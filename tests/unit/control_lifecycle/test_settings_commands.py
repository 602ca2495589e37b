"""`splash keys`, `splash aliases` and `splash settings`: what a person writes, and what is asked of control then."""

import json
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from control.cli import keys as key_commands
from control.cli import settings as setting_commands
from control.cli.aliases import alias_of, with_alias
from control.cli.keys import active_key, limits_change, limits_text, named_key, used_today
from control.cli.prices import price_of, price_rows
from control.cli.settings import check_of, rows
from control.command_errors import OrderRefused, UsageWrong
from control.wire import (
    Alias,
    AliasList,
    CreatedKey,
    HeartbeatModes,
    HeartbeatSettings,
    KeyChange,
    KeyLimits,
    KeyUsage,
    KeyView,
    Price,
    PriceList,
)

MADE = datetime.fromtimestamp(0).strftime("%Y-%m-%d")


def view(key_id, name, revoked_at_s=None) -> KeyView:
    return KeyView(id=key_id, name=name, request_class="batch", hint="h", created_at_s=0, revoked_at_s=revoked_at_s)


def test_a_limit_is_a_number_or_off_and_what_is_left_out_stays():
    assert limits_change("2", None, "OFF") == KeyChange(max_in_flight=2, tokens_per_day=None)
    assert limits_change(None, None, None) == KeyChange()


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "many", "9" * 16, "1_000"])
def test_anything_else_is_wrong_usage_of_that_option(text):
    with pytest.raises(UsageWrong, match="--requests-per-day"):
        limits_change(None, text, None)


def test_a_key_is_found_by_its_name_among_those_that_are_not_revoked():
    views = (view(1, "laptop", revoked_at_s=5), view(2, "laptop"), view(3, "phone"))

    assert active_key(views, "laptop").id == 2
    with pytest.raises(OrderRefused, match="no key named 'tablet'"):
        active_key(views, "tablet")
    with pytest.raises(OrderRefused):
        active_key(views[:1], "laptop")


def test_a_key_to_revoke_is_named_or_numbered_and_a_name_goes_first():
    views = (view(1, "laptop", revoked_at_s=5), view(2, "laptop"), view(3, "1"))

    assert [named_key(views, text).id for text in ("laptop", "1", "2", "3")] == [2, 3, 2, 3]
    with pytest.raises(OrderRefused, match="name or id '4'"):
        named_key(views, "4")


class KeyClient:
    """A client of control with two keys, one of them revoked."""

    def __init__(self) -> None:
        self.views = (view(1, "old", revoked_at_s=5), view(2, "a rather long name of a key"))

    def keys(self):
        return self.views

    def new_key(self, name, request_class, limits):
        return CreatedKey(key=f"sk-splash-{name}", view=view(3, name))

    def revoke_key(self, key_id):
        return msgspec.structs.replace(next(each for each in self.views if each.id == key_id), revoked_at_s=7)


@pytest.fixture
def key_command(monkeypatch):
    """Runs `splash keys …` on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(key_commands, "this_place", lambda: None)
    monkeypatch.setattr(key_commands, "running_control", lambda _place: KeyClient())
    return lambda *arguments: CliRunner().invoke(key_commands.keys, arguments)


def test_keys_are_a_table_with_headings_and_those_that_are_revoked_are_hidden(key_command):
    listed, everything = key_command(), key_command("--all")

    _, headings, _, *rows, _ = listed.stdout.splitlines()
    assert [cell.strip() for cell in headings.split("┃")[1:-1]] == ["id", "name", "class", "key", "made", "today"]
    assert [[cell.strip() for cell in row.split("│")[1:-1]] for row in rows] == [
        ["2", "a rather long name of a key", "batch", "h", MADE, "0 in flight"],
        ["", "", "", "", "", "0 requests"],
        ["", "", "", "", "", "0 tokens"],
    ]
    assert listed.stderr == "1 revoked: `splash keys --all` shows them.\n"
    assert "│ old " in everything.stdout and "│ revoked " in everything.stdout
    assert key_command("list").stdout == listed.stdout


def test_where_there_is_room_a_key_is_one_line(key_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    assert "│ 0 in flight, 0 requests, 0 tokens │" in key_command().stdout


def test_that_a_key_is_shown_once_is_said_beside_it(key_command):
    made, for_programs = key_command("new", "phone"), key_command("new", "phone", "--json")

    assert (made.stdout, made.stderr) == ("sk-splash-phone\n", "This is the only time that the key is shown.\n")
    assert for_programs.stderr == ""


def test_programs_get_all_keys(key_command):
    assert [key["id"] for key in json.loads(key_command("--json").stdout)["keys"]] == [1, 2]


def test_a_key_is_revoked_by_its_name(key_command):
    assert key_command("revoke", "a rather long name of a key").stdout == (
        'Key 2, "a rather long name of a key", is revoked.\n'
    )


def test_use_is_shown_beside_its_limit():
    limited = msgspec.structs.replace(
        view(1, "x"), limits=KeyLimits(requests_per_day=10_000), today=KeyUsage(requests=1200, tokens=7, in_flight=3)
    )

    assert used_today(limited) == ("3 in flight", "1,200 of 10,000 requests", "7 tokens")


def test_one_of_a_kind_is_not_told_as_several():
    once = msgspec.structs.replace(
        view(1, "x"), limits=KeyLimits(requests_per_day=1), today=KeyUsage(requests=0, tokens=1, in_flight=1)
    )

    assert used_today(once) == ("1 in flight", "0 of 1 request", "1 token")
    assert limits_text(once.limits) == "1 request a day"


def test_limits_are_told_without_those_that_are_off():
    assert limits_text(KeyLimits()) == "no limits"
    assert limits_text(KeyLimits(max_in_flight=2, tokens_per_day=5000)) == "2 in flight, 5,000 tokens a day"


def test_an_alias_is_a_name_and_perhaps_a_class():
    assert alias_of("claude-local") == Alias(name="claude-local")
    assert alias_of("claude-haiku-*=batch") == Alias(name="claude-haiku-*", request_class="batch")


@pytest.mark.parametrize("text", ["x=", "x=first", "x=batch=1"])
def test_a_class_that_is_none_is_wrong_usage(text):
    with pytest.raises(UsageWrong, match="interactive or batch"):
        alias_of(text)


def test_an_alias_that_is_there_keeps_its_place():
    listed = (Alias(name="a"), Alias(name="b"))

    assert with_alias(listed, Alias(name="a", request_class="batch")) == (
        Alias(name="a", request_class="batch"),
        Alias(name="b"),
    )
    assert with_alias(listed, Alias(name="c")) == (*listed, Alias(name="c"))


class Asked:
    """A client of control that writes down what is asked."""

    def __init__(self) -> None:
        self.orders: list[tuple] = []

    def set_concurrency(self, *order) -> None:
        self.orders.append(order)

    set_heartbeat = set_prices = set_concurrency

    def heartbeats(self) -> HeartbeatSettings:
        return HeartbeatSettings(modes={"messages": "typed"}, choices={"messages": ("typed", "ping")})

    def prices(self) -> PriceList:
        return PriceList(models={"demo": Price(currency="USD")})


def test_each_setting_goes_where_it_belongs():
    client = Asked()

    check_of("concurrency=3")(client)()
    check_of("heartbeat.messages=ping")(client)()

    assert client.orders == [(3,), ("messages", "ping")]


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("price.default=CNY 2/0.2/6", PriceList(Price("CNY", 2, 0.2, 6), {"demo": Price("USD")})),
        ("price.default=default", PriceList(Price(), {"demo": Price("USD")})),
        ("price.demo=eur: 1 / 0.5 / 0", PriceList(models={"demo": Price("EUR", 1, 0.5, 0)})),
        ("price.org/m=USD 1/1/1", PriceList(models={"demo": Price("USD"), "org/m": Price("USD", 1, 1, 1)})),
        ("price.a=b=USD 1/1/1", PriceList(models={"demo": Price("USD"), "a=b": Price("USD", 1, 1, 1)})),
        ("price.demo=default", PriceList()),
    ],
)
def test_a_price_is_set_among_those_that_there_are_and_taken_away_by_default(text, order):
    client = Asked()

    check_of(text)(client)()

    assert client.orders == [(order,)]


@pytest.mark.parametrize(
    "value", ["", "1/0.1/3", "CNY 1/0.1", "CNY -1/0/0", "yuan 1/1/1", "CNY 1/1/1/1", "CNY nan/1/1"]
)
def test_a_price_that_can_not_be_read_is_wrong_usage_with_an_example(value):
    with pytest.raises(UsageWrong, match=r"^price.default is written like CNY 1/0"):
        check_of(f"price.default={value}")


def test_a_model_without_a_price_of_its_own_has_none_to_lose():
    with pytest.raises(UsageWrong, match="'other' has no price of its own"):
        check_of("price.other=default")(Asked())


def test_prices_are_listed_the_default_first_as_they_are_written():
    prices = PriceList(models={"demo": Price("USD", 0.27, 0.07, 1_000_000)})

    assert [(name, value) for name, value, _ in price_rows(prices)] == [
        ("price.default", "CNY 1/0.1/3"),
        ("price.demo", "USD 0.27/0.07/1000000"),
    ]
    assert [price_of(value, name) for name, value, _ in price_rows(prices)] == [prices.default, prices.models["demo"]]


@pytest.mark.parametrize("text", ["concurrency", "concurrency=x", "nothing=1", "heartbeat=ping"])
def test_what_is_no_setting_is_wrong_usage(text):
    with pytest.raises(UsageWrong):
        check_of(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("concurrency=9", "concurrency is a number, 1 to 4, and not '9'."),
        ("keep_awake=always", "keep_awake is one of busy, loaded, never, and not 'always'."),
        ("heartbeat.messages=foo", "heartbeat.messages is one of typed, ping, and not 'foo'."),
        ("heartbeat.fax=ping", "There is no setting 'heartbeat.fax'; `splash settings` lists them."),
        ("price.default=usd 1/2/3000000", "price.default can be at most 1,000,000 per million tokens."),
        ("price.=usd 1/2/3", "'' can't be a model's id."),
    ],
)
def test_a_value_that_cannot_be_is_wrong_usage_in_the_words_of_who_typed_it(text, sentence):
    client = Asked()

    with pytest.raises(UsageWrong) as refused:
        check_of(text)(client)

    assert str(refused.value) == sentence
    assert client.orders == []


@pytest.fixture
def settings_command(monkeypatch):
    """Runs `splash settings …`; gives what was asked of control, and how it ended."""
    client = Asked()
    monkeypatch.setattr(setting_commands, "this_place", lambda: None)
    monkeypatch.setattr(setting_commands, "running_control", lambda _place: client)
    return lambda *arguments: (client, CliRunner().invoke(setting_commands.settings, arguments))


def test_several_settings_are_changed_by_one_command(settings_command):
    client, done = settings_command("set", "concurrency=3", "heartbeat.messages=ping", "price.a=USD 1/1/1")

    assert client.orders[:2] == [(3,), ("messages", "ping")] and len(client.orders) == 3
    assert done.stdout.splitlines()[:2] == ["concurrency=3 from now on.", "heartbeat.messages=ping from now on."]


@pytest.mark.parametrize("wrong", ["heartbeat.messages=foo", "price.other=default", "nothing=1", "concurrency=2"])
def test_of_several_settings_none_is_changed_when_one_can_not_be(settings_command, wrong):
    client, done = settings_command("set", "concurrency=3", wrong)

    assert isinstance(done.exception, UsageWrong)
    assert client.orders == []


def test_the_example_bodies_of_the_documentation_can_be_sent():
    text = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    aliases, heartbeats = [block.partition("```")[0] for block in text.split("```json")[1:]]

    assert msgspec.json.decode(aliases, type=AliasList).aliases[1].request_class == "batch"
    assert msgspec.json.decode(heartbeats, type=HeartbeatModes).modes["responses"] == "in_progress"


def test_the_table_says_what_each_setting_can_be():
    heartbeats = HeartbeatSettings(modes={"messages": "ping"}, choices={"messages": ("typed", "ping")})

    assert rows(4, heartbeats) == [("concurrency", "4", "1 to 4"), ("heartbeat.messages", "ping", "typed, ping")]
