import re
from pathlib import Path

import pytest

from webui import numbers
from webui.text import load_texts

GIB = 1024**3
ENGLISH, CHINESE = load_texts()["en"], load_texts()["zh"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (numbers.tokens(142_018), "142,018"),
        (numbers.tokens(None), "—"),
        (numbers.tokens(0), "0"),
        (numbers.tokens_short(262_144), "262k"),
        (numbers.tokens_short(4_096), "4,096"),
        (numbers.speed(None), "—"),
        (numbers.speed(52.14), "52.1"),
        (numbers.speed(2_940.4), "2,940"),
        (numbers.size(None), "—"),
        (numbers.size(178.9 * GIB), "178.9 GiB"),
        (numbers.size(9.6 * 1024**2), "9.6 MiB"),
        (numbers.size(1_004.7 * 1024**2), "1.0 GiB"),
        (numbers.size(999.9 * 1024**2), "999.9 MiB"),
        (numbers.size(0), "0 KiB"),
        (numbers.share(None), "—"),
        (numbers.share(0.931), "93.1%"),
        (numbers.seconds(ENGLISH, None), "—"),
        (numbers.seconds(ENGLISH, 12), "0.01 s"),
        (numbers.seconds(CHINESE, 50), "0.05 秒"),
        (numbers.bare_seconds(None), "—"),
        (numbers.long_seconds(ENGLISH, 59_900), ""),
        (numbers.long_seconds(ENGLISH, 168_730), "2 min 48 s"),
        (numbers.long_seconds(ENGLISH, None), ""),
        (numbers.short_milliseconds(412.4), "412 ms"),
        (numbers.short_milliseconds(9.64, 1), "9.6 ms"),
    ],
)
def test_numbers_are_written_with_their_unit_and_unknown_is_a_dash(written, expected):
    assert written == expected


def test_measured_times_of_a_column_are_equally_exact_however_long_they_are():
    """98.59 s beside 100 s: the second might have been 99.5 or 100.4."""
    written = [numbers.seconds(CHINESE, duration_ms) for duration_ms in (4, 98_590, 99_999, 168_730, 86_400_000)]

    assert written == ["0.00 秒", "98.59 秒", "100.00 秒", "168.73 秒", "86,400.00 秒"]


def test_a_duration_is_written_by_the_functions_of_one_room():
    """Whoever formats seconds or milliseconds by himself begins another style."""
    own_way = re.compile(r":[,.\d]*f\}\s*(?:s|ms|秒)\b|_ms / 1000:|_s:[,.\d]*f\}")
    views = Path(numbers.__file__).parent.glob("views/*.py")

    assert [path.name for path in views if own_way.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("amount", "currency", "expected"),
    [
        (31.2, "CNY", "¥31.20"),
        (4.1, "USD", "$4.10"),
        (1_234_567.891, "EUR", "€1,234,567.89"),
        (12.3, "ABC", "ABC 12.30"),
        (1_204.5, "JPY", "JP¥1,205"),
        (0.33, "JPY", "JP¥0.33"),
        (0.0, "JPY", "JP¥0"),
        (0.0, "CNY", "¥0.00"),
        (0.0123, "CNY", "¥0.012"),
        (0.0996, "CNY", "¥0.10"),
        (0.05, "CNY", "¥0.050"),
        (1e-7, "CNY", "¥0.00000010"),
        (-0.5, "CNY", "−¥0.50"),
        (None, "CNY", "—"),
    ],
)
def test_money_is_written_with_its_currency_and_small_amounts_keep_two_digits(amount, currency, expected):
    assert numbers.money(ENGLISH, amount, currency) == expected


@pytest.mark.parametrize(
    ("amount", "expected"), [(1.005, "$1.01"), (2.675, "$2.68"), (0.125, "$0.13"), (0.995, "$1.00")]
)
def test_halves_of_a_cent_are_rounded_up_from_the_decimal_that_a_person_sees(amount, expected):
    """A float of 1.005 is a little less, and formatting it gives 1.00."""
    assert numbers.money(ENGLISH, amount, "USD") == expected


def test_a_dollar_is_named_as_each_language_names_it():
    assert numbers.money(CHINESE, 4.1, "USD") == "US$4.10"
    assert numbers.money(CHINESE, 4.1, "CNY") == "¥4.10"


@pytest.mark.parametrize(
    ("count", "expected"), [(1_050_000, "1.05"), (51_204_118, "51.2"), (536_800_000, "537"), (1_204_000_000, "1,204")]
)
def test_millions_have_three_digits(count, expected):
    assert numbers.millions(count) == expected


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (59.9, "59 s", "59 秒"),
        (425, "7 min", "7 分钟"),
        (2_640, "44 min", "44 分钟"),
        (3_580, "1 h", "1 小时"),
        (7_500, "2 h", "2 小时"),
    ],
)
def test_an_estimate_has_one_unit(seconds, english, chinese):
    texts = load_texts()

    assert numbers.rough_span(texts["en"], seconds) == english
    assert numbers.rough_span(texts["zh"], seconds) == chinese


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [(12.7, "12 s", "12 秒"), (185, "3 min 5 s", "3 分 5 秒"), (7_500, "2 h 5 min", "2 小时 5 分")],
)
def test_durations_are_written_in_words_of_the_language(seconds, english, chinese):
    texts = load_texts()

    assert numbers.span(texts["en"], seconds) == english
    assert numbers.span(texts["zh"], seconds) == chinese
