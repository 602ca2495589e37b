"""The colours in `tokens.css`, measured as WCAG 2.2 does: text 4.5:1, what must be seen 3:1, in both themes."""

import re
from pathlib import Path

import pytest

TOKENS = (Path(__file__).resolve().parents[3] / "frontend/static/css/tokens.css").read_text("utf-8")
COLOURS = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", TOKENS))
LIGHT, DARK = 0, 1


def luminance(name: str, theme: int) -> float:
    code = COLOURS[name].split(", ")[theme]
    channels = [int(code[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str, theme: int) -> float:
    low, high = sorted((luminance(one, theme), luminance(other, theme)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["ground", "panel", "raised", "sunken"])
@pytest.mark.parametrize("text", ["text", "muted", "generating", "prefilling", "waiting", "bad"])
def test_text_can_be_read(text, ground, theme):
    assert contrast(text, ground, theme) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("part", "neighbour"),
    [("line-strong", "raised"), ("line-strong", "panel"), ("cached", "computed"), ("computed", "sunken")],
)
def test_the_edge_of_a_field_and_the_two_tones_of_a_bar_can_be_seen(part, neighbour, theme):
    assert contrast(part, neighbour, theme) >= 3
