"""A chart as data, and the tones that its series are drawn in."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from tests.unit.webui.test_console_colours import DARK, LIGHT, contrast
from webui.text import load_texts
from webui.views.charts import Chart, ChartTable, Series, SeriesTone

FRONTEND = Path(__file__).resolve().parents[3] / "frontend"
TONES = get_args(SeriesTone)


def chart(**changes: object) -> Chart:
    values = {
        "id": "c",
        "title": "Title",
        "hint": "Hint.",
        "summary": "Summary.",
        "empty": "Empty.",
        "x_kind": "time",
        "x": (1.0, 2.0),
        "x_label": "",
        "y_unit": "tok/s",
        "series": (Series("a", (1.0, None)),),
        "table": ChartTable(("x", "a"), (("1", "1.0"),)),
    }
    return Chart(**values | changes)


def test_a_chart_says_how_it_is_to_be_drawn():
    data = json.loads(chart(is_stacked=True, x_range=(0.0, 9.0)).data("Asia/Shanghai"))

    assert data == {
        "x": [1.0, 2.0],
        "xKind": "time",
        "xLabel": "",
        "yUnit": "tok/s",
        "categories": [],
        "stacked": True,
        "xRange": [0.0, 9.0],
        "byDay": False,
        "zone": "Asia/Shanghai",
        "series": [{"label": "a", "draw": "line", "tone": "generating", "values": [1.0, None]}],
    }


def test_a_chart_of_days_is_in_nobodys_zone():
    data = json.loads(chart(is_by_day=True).data("Asia/Shanghai"))

    assert (data["byDay"], data["zone"]) == (True, "UTC")


def test_a_chart_without_any_value_is_empty():
    assert chart(series=(Series("a", (None, None)),)).is_empty
    assert not chart().is_empty


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("tone", TONES)
def test_each_tone_of_a_series_can_be_seen_on_a_panel(tone, theme):
    assert contrast(f"c-{tone}", "panel", theme) >= 3.9


def test_each_tone_has_a_form_and_tones_of_one_chart_have_different_ones():
    source = (FRONTEND / "static/js/chart_tones.js").read_text("utf-8")
    forms = dict(re.findall(r'^  (\w+): \{ dash: (\[.*?\], shape: "\w+", texture: "\w+")', source, re.M))

    assert set(forms) == set(TONES)
    assert len({forms[tone] for tone in ("one", "two", "three", "four")}) == 4
    assert len({forms[tone] for tone in ("generating", "prefilling", "cached", "waiting", "neutral")}) == 5


def test_every_tone_has_its_colour_in_the_legend():
    css = (FRONTEND / "static/css/charts.css").read_text("utf-8")

    assert {tone for tone in TONES if f"var(--c-{tone})" not in css} == set()


def test_the_keys_of_a_chart_are_explained_in_both_languages():
    texts = load_texts()

    assert all(texts[language]("chart.keys") for language in ("en", "zh"))
