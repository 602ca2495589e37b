"""Charts of an installation that is hours old: lone values, a single bar, and ticks that say where they are."""

import json

import pytest

from control import wire
from tests.fakes import performance as measured

# The colours around a place of the plotting area, given in values of the axes' own scales, by their number of pixels.
COLOURS_AT = """([id, share, top, radius]) => {
    const canvas = document.querySelector(`#${id} canvas`);
    const frame = canvas.getBoundingClientRect();
    const over = document.querySelector(`#${id} .u-over`).getBoundingClientRect();
    const scale = canvas.width / frame.width;
    const x = (over.left - frame.left + over.width * share - radius) * scale;
    const y = (over.top - frame.top + over.height * top - radius) * scale;
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const size = Math.round(2 * radius * scale);
    const { data } = copy.getImageData(Math.round(x), Math.round(y), size, size);
    const seen = {};
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] < 255) continue;
        const rgb = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
        seen[rgb] = (seen[rgb] ?? 0) + 1;
    }
    return seen;
}"""
# The first and the last column of the plotting area that has a coloured pixel, in CSS px from its left.
COLOURED_COLUMNS = """(id) => {
    const canvas = document.querySelector(`#${id} canvas`);
    const frame = canvas.getBoundingClientRect();
    const over = document.querySelector(`#${id} .u-over`).getBoundingClientRect();
    const scale = canvas.width / frame.width;
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const [left, top] = [(over.left - frame.left) * scale, (over.top - frame.top) * scale];
    const [width, height] = [Math.round(over.width * scale), Math.round(over.height * scale)];
    const { data } = copy.getImageData(Math.round(left), Math.round(top), width, height);
    const columns = [];
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] > 0 && Math.max(...data.subarray(at, at + 3)) - Math.min(...data.subarray(at, at + 3)) > 40)
            columns.push((at / 4) % width);
    }
    return [Math.min(...columns) / scale, Math.max(...columns) / scale, over.width];
}"""
SWATCHES = """(id) => [...document.querySelectorAll(`#${id} .plot-swatch`)].map((swatch) => ({
    colour: getComputedStyle(swatch).color,
    mark: swatch.querySelector(".mark").tagName,
    shown: getComputedStyle(swatch.querySelector(".mark")).visibility,
}))"""
AXES = """async (given) => {
    const axes = await import("/static/js/chart_axes.js");
    return given.map(([greatest, height]) => {
        const ticks = axes.ticksOfY(greatest, height);
        return [ticks, ticks.map((tick) => axes.number(tick, axes.digitsOfStep(ticks[1])))];
    });
}"""

GREATEST = (0.012, 0.3, 0.97, 3, 9.8, 52, 55, 88, 149, 1_234)


@pytest.fixture
def page_of(console, control, pages):
    def open_page(performance: wire.Performance, **options: object):
        control.answers = {wire.PERFORMANCE: performance, wire.MISSES: measured.misses()}
        page = pages.open(console.link(), **options)
        page.goto(f"{console.address}/performance")
        page.wait_for_selector(".plot canvas >> nth=0")
        page.wait_for_timeout(200)
        return page

    return open_page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lone_values_are_marks_in_the_colour_and_the_form_of_their_series(page_of, scheme):
    at_s = measured.BEGIN_S + 12 * 3600
    page = page_of(
        measured.performance(ttfts=(wire.TtftPoint(at_s=at_s, p50_ms=1_000.0, p95_ms=3_000.0),)), color_scheme=scheme
    )

    median, slow = page.evaluate(SWATCHES, "first-token-plot")
    given = json.loads(page.get_attribute("#first-token-plot", "data-chart"))

    share = (at_s - given["xRange"][0]) / (given["xRange"][1] - given["xRange"][0])
    for swatch, seconds in ((median, 1.0), (slow, 3.0)):
        found = page.evaluate(COLOURS_AT, ["first-token-plot", share, 1 - seconds / 3.0, 2])
        assert found.get(swatch["colour"], 0) >= 12, found
    assert median["colour"] != slow["colour"]
    assert median["mark"] != slow["mark"]
    assert median["shown"] == slow["shown"] == "visible"


def test_a_line_without_lone_values_has_no_mark(page_of):
    page = page_of(measured.performance())

    assert [swatch["shown"] for swatch in page.evaluate(SWATCHES, "first-token-plot")] == ["hidden", "hidden"]


@pytest.mark.parametrize(("streams", "share"), [(1, 0.125), (4, 0.875)])
def test_a_single_bar_stands_above_its_label(page_of, streams, share):
    only = measured.width(streams, tokens=5_200, seconds=100.0, peak=None, ceiling=None)

    first, last, width = page_of(measured.performance(widths=(only,))).evaluate(COLOURED_COLUMNS, "by-width-plot")

    assert (first + last) / 2 == pytest.approx(width * share, abs=2)
    assert last - first > 10


def test_ticks_are_written_as_what_they_are_and_nothing_rises_above_the_last(page_of):
    page = page_of(measured.performance())
    given = [(greatest, height) for greatest in GREATEST for height in (90, 260)]

    for (greatest, height), (ticks, words) in zip(given, page.evaluate(AXES, given), strict=True):
        assert 3 <= len(ticks) <= max(3, height // 44 + 1)
        assert ticks[0] == 0
        assert ticks[-2] < greatest <= ticks[-1] * (1 + 1e-9) or len(ticks) == 3
        assert [float(word.replace(",", "")) for word in words] == pytest.approx(ticks, rel=1e-9)


def test_an_axis_of_hundredths_of_a_yuan_says_where_its_ticks_stand(page_of):
    """In thousandths up to 9.8: 0, 3, 5, 8, 10 stood at 2.5 and 7.5."""
    [(ticks, words)] = page_of(measured.performance()).evaluate(AXES, [(9.8, 190)])

    assert (ticks, words) == ([0, 2.5, 5, 7.5, 10], ["0.0", "2.5", "5.0", "7.5", "10.0"])
