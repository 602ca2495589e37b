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
        (numbers.size(0), "0 KiB"),
        (numbers.share(None), "—"),
        (numbers.share(0.931), "93.1%"),
        (numbers.clock(31.9), "0:31"),
        (numbers.clock(4_000), "1:06:40"),
        (numbers.clock(-1), "0:00"),
        (numbers.milliseconds(ENGLISH, None), "—"),
        (numbers.milliseconds(ENGLISH, 12), "0.01 s"),
        (numbers.milliseconds(ENGLISH, 154_000), "154 s"),
        (numbers.milliseconds(CHINESE, 50), "0.05 秒"),
    ],
)
def test_numbers_are_written_with_their_unit_and_unknown_is_a_dash(written, expected):
    assert written == expected


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [(12.7, "12 s", "12 秒"), (185, "3 min 5 s", "3 分 5 秒"), (7_500, "2 h 5 min", "2 小时 5 分")],
)
def test_durations_are_written_in_words_of_the_language(seconds, english, chinese):
    texts = load_texts()

    assert numbers.span(texts["en"], seconds) == english
    assert numbers.span(texts["zh"], seconds) == chinese
