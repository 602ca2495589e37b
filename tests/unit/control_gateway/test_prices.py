"""What tokens cost: known answers, the traps that other gateways fell into, and prices that can't be."""

import random
from fractions import Fraction

import msgspec
import pytest

from control.admin.errors import OrderInvalid
from control.metrics.database import open_database
from control.metrics.settings import load_settings
from control.metrics.writer import Writer
from control.prices import MODELS_LIMIT, PRICES_SETTING, Prices, Tariff, Tokens, checked, stored_prices
from control.wire import Money, Price, PriceList

DEEP = Price(currency="USD", miss=0.27, hit=0.07, output=1.1)


def cost(tokens: Tokens, price: Price | None = None) -> Money:
    (money,) = Tariff(PriceList(default=price or Price())).cost({"m": tokens})
    return money


def test_the_parts_of_a_request_are_charged_once_each_and_exactly():
    money = cost(Tokens(requests=1, prompt=1_000_000, cached=900_000, completion=500_000))

    assert money == Money(currency="CNY", miss=0.1, hit=0.09, output=1.5, total=1.69, cache_saving=0.81)


def test_cached_tokens_are_inside_the_prompt_and_not_charged_twice():
    """Source: litellm#28009, pi#2148: the full prompt and the cached part were both charged."""
    money = cost(Tokens(prompt=10_000, cached=10_000))

    assert (money.miss, money.hit, money.total) == (0.0, 0.001, 0.001)


def test_a_request_wholly_from_the_cache_is_not_free():
    """Source: headroom#1429 priced it at 0."""
    assert cost(Tokens(prompt=50_000, cached=50_000)).total == 0.005


def test_more_cached_than_prompt_makes_nothing_negative():
    money = cost(Tokens(prompt=1_000, cached=5_000, completion=0))

    assert (money.miss, money.hit, money.total, money.cache_saving) == (0.0, 0.0001, 0.0001, 0.0009)


def test_without_a_cache_it_would_have_been_dearer_by_what_the_cache_saves():
    tokens = Tokens(prompt=123_457, cached=119_809, completion=77)
    without = msgspec.structs.replace(DEEP, hit=DEEP.miss)

    assert cost(tokens, without).total - cost(tokens, DEEP).total == pytest.approx(cost(tokens, DEEP).cache_saving)


def test_a_model_has_its_own_price_by_its_exact_id():
    tariff = Tariff(PriceList(models={"deep": DEEP}))

    assert tariff.price_of("deep") == DEEP
    assert tariff.price_of("deep-4bit") == Price()
    assert tariff.price_of("Deep") == Price()


def test_currencies_stand_beside_each_other_sorted_and_are_never_added():
    tariff = Tariff(PriceList(models={"deep": DEEP, "yen": Price(currency="JPY", miss=20, hit=2, output=60)}))
    million = Tokens(prompt=1_000_000)

    amounts = tariff.cost({"yen": million, "deep": million, "other": million, "another": million})

    assert [(money.currency, money.total) for money in amounts] == [("CNY", 2.0), ("JPY", 20.0), ("USD", 0.27)]


def test_nothing_used_is_no_amount_and_not_a_zero():
    assert Tariff(PriceList()).cost({}) == ()


def test_ten_million_small_requests_cost_to_the_last_digit_what_one_large_one_does():
    """A float that is added up drifts: 0.1 is not a tenth."""
    one, many = Tokens(1, 1, 1, 0), Tokens(10_000_000, 10_000_000, 10_000_000, 0)

    assert cost(one).hit == 1e-7
    assert cost(many).total == 1.0


def test_the_amounts_are_the_nearest_floats_to_the_exact_ones():
    chance = random.Random(7)
    for _ in range(200):
        numbers = [round(10 ** chance.uniform(-6, 6), chance.randrange(9)) for _ in range(3)]
        prompt = chance.randrange(10**12)
        tokens = Tokens(1, prompt, chance.randrange(prompt + 1), chance.randrange(10**10))
        miss, hit, output = (Fraction(str(number)) for number in numbers)

        money = cost(tokens, Price(currency="EUR", miss=numbers[0], hit=numbers[1], output=numbers[2]))

        exact = (tokens.prompt - tokens.cached) * miss + tokens.cached * hit + tokens.completion * output
        assert money.total == float(exact / 1_000_000)
        assert money.cache_saving == float(tokens.cached * (miss - hit) / 1_000_000)


def test_a_new_list_is_in_force_for_what_was_used_before():
    prices = Prices()
    used = {"m": Tokens(prompt=1_000_000)}
    before = prices.tariff.cost(used)

    prices.replace(PriceList(default=Price(currency="USD", miss=2)))

    assert before[0].total == 1.0
    assert [(money.currency, money.total) for money in prices.tariff.cost(used)] == [("USD", 2.0)]


@pytest.mark.parametrize("model", ["", " m", "m\n", "a\x00b", "x" * 201])
def test_what_can_be_no_models_id_is_refused_with_it(model):
    with pytest.raises(OrderInvalid, match="can't be a model's id"):
        checked(PriceList(models={model: Price()}))


def test_there_is_a_limit_of_models():
    models = {f"m{number}": Price() for number in range(MODELS_LIMIT + 1)}

    with pytest.raises(OrderInvalid, match="of 100 models, not of 101"):
        checked(PriceList(models=models))
    assert checked(PriceList(models=dict(list(models.items())[1:])))


@pytest.fixture
async def settings(tmp_path):
    database = open_database(tmp_path / "splash.db")
    writer = Writer(database)
    yield load_settings(database, writer)
    writer.close()


async def test_prices_that_were_never_chosen_are_the_default(settings, caplog):
    assert stored_prices(settings) == PriceList()
    assert PriceList() == PriceList(default=Price("CNY", 1.0, 0.1, 3.0), models={})
    assert caplog.text == ""


@pytest.mark.parametrize(
    "damaged",
    [
        "free",
        [],
        {"default": {"miss": -1}},
        {"default": {"miss": 1e7}},
        {"default": {"currency": "yuan"}},
        {"models": {"": {}}},
        {"models": {"m": {"hit": None}}},
    ],
)
async def test_damaged_prices_are_the_default_with_a_warning(settings, caplog, damaged):
    await settings.put(PRICES_SETTING, damaged)

    assert stored_prices(settings) == PriceList()
    assert "setting ignored name=prices" in caplog.text


async def test_stored_prices_are_those_that_were_chosen(settings):
    chosen = PriceList(default=Price(miss=2.5), models={"deep": DEEP})
    await settings.change(PRICES_SETTING, lambda: chosen, in_force=lambda _: None)

    assert stored_prices(settings) == chosen
