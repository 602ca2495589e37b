"""*Performance* in Chromium: charts are drawn, follow data and theme on the same canvas, and are read with the keys."""

import json

import msgspec
import pytest

from control import wire
from tests.fakes import performance as measured

PLOTS = ("by-width-plot", "over-time-plot", "by-context-plot", "first-token-plot")

# Pixels of the canvas that are not empty, and how many of them have the colour that a tone has now.
LOOK = """(id) => {
    const canvas = document.querySelector(`#${id} canvas`);
    const { width, height } = canvas;
    const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, width, height);
    const seen = new Map();
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] < 255) continue;
        const rgb = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
        seen.set(rgb, (seen.get(rgb) ?? 0) + 1);
    }
    const swatch = document.querySelector(`#${id} .plot-swatch`);
    return {
        pixels: [...seen.values()].reduce((sum, n) => sum + n, 0),
        ofFirstSeries: seen.get(getComputedStyle(swatch).color) ?? 0,
        sketch: canvas.toDataURL().length,
    };
}"""
# Green and blue pixels of the column in the middle of the plotting area.
COLUMN = """(id) => {
    const canvas = document.querySelector(`#${id} canvas`);
    const frame = canvas.getBoundingClientRect();
    const over = document.querySelector(`#${id} .u-over`).getBoundingClientRect();
    const { width, height } = canvas;
    const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(Math.round(over.left - frame.left + over.width / 2), 0, 1, height);
    const counts = [0, 0];
    for (let at = 0; at < data.length; at += 4) {
        const [red, green, blue] = data.subarray(at, at + 3);
        if (data[at + 3] > 0 && Math.abs(green - blue) > 25) counts[green > blue ? 0 : 1] += 1;
    }
    return counts;
}"""
KEEP_CANVASES = """() => {
    window.keptCanvases = [...document.querySelectorAll(".plot canvas")];
    return window.keptCanvases.length;
}"""
ARE_THE_SAME = """() => {
    const now = [...document.querySelectorAll(".plot canvas")];
    return now.length === window.keptCanvases.length && now.every((canvas, at) => canvas === window.keptCanvases[at]);
}"""
READ = """(id) => {
    const box = document.getElementById(id);
    return [
        box.querySelector(".plot-where").textContent,
        ...[...box.querySelectorAll(".plot-value")].map((value) => value.textContent),
    ];
}"""
REFRESH = """() => new Promise((done) => {
    document.addEventListener("htmx:after:swap", () => setTimeout(done, 50), { once: true });
    htmx.trigger("#live", "refresh");
})"""
TOPS = "() => [...document.querySelectorAll('.panel')].map((panel) => panel.getBoundingClientRect().top)"


@pytest.fixture
def page_of(console, control, pages):
    control.answers = {wire.PERFORMANCE: measured.performance(), wire.MISSES: measured.misses()}

    def open_page(path: str = "/performance", **options: object):
        page = pages.open(console.link(), **options)
        page.goto(f"{console.address}{path}")
        if options.get("java_script_enabled", True):
            page.wait_for_selector(".plot canvas >> nth=0")
        return page

    return open_page


def test_every_chart_has_pixels_in_the_colour_of_its_series(page_of):
    page = page_of()

    for plot in PLOTS:
        assert page.evaluate(LOOK, plot)["pixels"] > 300
    assert page.evaluate(LOOK, "over-time-plot")["ofFirstSeries"] > 50


def test_a_change_of_theme_redraws_the_same_canvas_in_other_colours(page_of):
    page = page_of(color_scheme="light")
    assert page.evaluate(KEEP_CANVASES) == 4

    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)

    assert page.evaluate("getComputedStyle(document.querySelector('#over-time-plot .plot-swatch')).color") == (
        "rgb(67, 211, 160)"
    )
    assert page.evaluate(LOOK, "over-time-plot")["ofFirstSeries"] > 50
    assert page.evaluate(ARE_THE_SAME)


def test_new_data_are_drawn_on_the_same_canvas_and_nothing_moves(page_of, control):
    page = page_of()
    page.evaluate(KEEP_CANVASES)
    before, tops = page.evaluate(LOOK, "by-width-plot"), page.evaluate(TOPS)

    control.answers[wire.PERFORMANCE] = measured.performance(
        widths=(measured.width(1, tokens=12_000, seconds=200.0, peak=61.0, ceiling=119.2),)
    )
    page.evaluate(REFRESH)

    assert page.evaluate(ARE_THE_SAME)
    assert page.evaluate(LOOK, "by-width-plot")["sketch"] != before["sketch"]
    assert page.evaluate(TOPS)[:2] == tops[:2]
    assert "60.0" in page.inner_text("#figure-steady")


def test_the_keys_read_a_chart_value_by_value(page_of):
    page = page_of(timezone_id="UTC")
    page.focus("#by-width-plot")

    page.keyboard.press("ArrowRight")
    first = page.evaluate(READ, "by-width-plot")
    page.keyboard.press("End")
    last = page.evaluate(READ, "by-width-plot")
    page.keyboard.press("Escape")
    left = page.evaluate(READ, "by-width-plot")

    assert first == ["1 stream", "103.7", "121.3", "119.2"]
    assert last == ["4 streams", "305.0", "—", "—"]
    assert left == ["", "", "", ""]


def test_what_the_keys_read_stays_through_a_refresh_and_follows_the_new_values(page_of, control):
    page = page_of()
    page.focus("#by-width-plot")
    page.keyboard.press("Home")

    control.answers[wire.PERFORMANCE] = measured.performance(
        widths=(measured.width(1, tokens=12_000, seconds=200.0, peak=61.0, ceiling=119.2),)
    )
    page.evaluate(REFRESH)

    assert page.evaluate(READ, "by-width-plot") == ["1 stream", "60.0", "61.0", "119.2"]
    assert page.evaluate("document.activeElement.id") == "by-width-plot"


def test_the_mouse_reads_the_value_that_it_is_nearest_to(page_of):
    page = page_of()
    box = page.locator("#by-width-plot .u-over").bounding_box()

    page.mouse.move(box["x"] + box["width"] * 0.36, box["y"] + 20)

    assert page.evaluate(READ, "by-width-plot") == ["2 streams", "183.3", "201.0", "214.0"]


def test_times_are_those_of_the_viewer(page_of):
    page = page_of(timezone_id="Asia/Shanghai")
    page.focus("#over-time-plot")

    page.keyboard.press("Home")
    where = page.evaluate(READ, "over-time-plot")[0]
    page.click("#over-time summary")
    oldest = page.inner_text("#over-time tbody tr:last-child td:first-child")

    assert where == oldest
    assert where.endswith(" 20:00")


def test_a_table_says_what_its_chart_was_given(page_of):
    page = page_of()
    page.click("#over-time summary")

    given = json.loads(page.get_attribute("#over-time-plot", "data-chart"))
    cells = page.evaluate(
        "() => [...document.querySelectorAll('#over-time tbody tr')].map((row) =>"
        " [...row.cells].slice(1).map((cell) => Number(cell.textContent)))"
    )

    columns = [[value for value in series["values"] if value is not None] for series in given["series"]]
    for number, values in enumerate(columns):
        assert [row[number] for row in reversed(cells)] == pytest.approx(values, abs=0.051)


def test_an_open_table_stays_open_through_a_refresh(page_of):
    page = page_of()
    page.click("#by-width summary")

    page.evaluate(REFRESH)

    assert page.is_visible("#by-width table")
    assert page.is_hidden("#over-time table")


def test_a_chart_comes_and_goes_with_its_values(page_of, control):
    page = page_of()

    control.answers[wire.PERFORMANCE] = measured.performance(points=(), regression=None)
    page.evaluate(REFRESH)
    without = page.locator(".plot canvas").count()
    control.answers[wire.PERFORMANCE] = measured.performance()
    page.evaluate(REFRESH)

    assert without == 3
    assert page.locator(".plot canvas").count() == 4
    assert page.evaluate(LOOK, "by-context-plot")["pixels"] > 300


def test_another_set_of_streams_is_another_legend(page_of, control):
    page = page_of()
    whole = measured.performance()

    control.answers[wire.PERFORMANCE] = msgspec.structs.replace(
        whole, speeds=tuple(point for point in whole.speeds if point.width == 1)
    )
    page.evaluate(REFRESH)

    assert page.locator("#over-time-plot .plot-label").all_inner_texts() == ["1 stream"]
    assert page.locator("#over-time-plot canvas").count() == 1


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_a_phone_shows_it_without_scrolling_sideways_and_a_turned_one_uses_its_width(page_of, locale):
    page = page_of(viewport={"width": 390, "height": 844}, locale=locale)
    narrow = page.evaluate("document.documentElement.scrollWidth")
    canvas = page.locator("#by-width-plot canvas").bounding_box()["width"]

    page.set_viewport_size({"width": 844, "height": 390})
    page.wait_for_timeout(200)

    assert narrow == 390
    assert page.locator("#by-width-plot canvas").bounding_box()["width"] > canvas + 300
    assert page.evaluate("document.documentElement.scrollWidth") == 844


def test_a_hundred_refreshes_leave_as_many_nodes_as_one(page_of, control):
    page = page_of()
    count = "() => document.querySelectorAll('*').length"
    page.evaluate(REFRESH)
    before = page.evaluate(count)

    for number in range(100):
        control.answers[wire.PERFORMANCE] = measured.performance(hit_rate=number / 100)
        page.evaluate(REFRESH)

    assert page.evaluate(count) == before


def test_without_javascript_the_table_says_it_all(page_of):
    page = page_of(java_script_enabled=False)

    page.click("#by-width summary")

    assert "373,320" in page.inner_text("#by-width table")
    assert page.locator(".plot").first.is_hidden()


def test_stacked_bars_stand_on_one_another_and_are_read_each_by_its_own_value(page_of):
    page = page_of()
    stacked = {
        "x": [0], "xKind": "category", "xLabel": "", "yUnit": "¥", "categories": ["Monday"], "stacked": True,
        "xRange": None, "zone": None,
        "series": [
            {"label": "a", "draw": "bars", "tone": "generating", "values": [20]},
            {"label": "b", "draw": "bars", "tone": "cached", "values": [40]},
        ],
    }  # fmt: skip

    page.evaluate(
        """(source) => {
            document.getElementById("by-width-plot").dataset.chart = source;
            document.dispatchEvent(new Event("htmx:after:swap"));
        }""",
        json.dumps(stacked),
    )
    page.focus("#by-width-plot")
    page.keyboard.press("Home")
    read = page.evaluate(READ, "by-width-plot")
    green, blue = page.evaluate(COLUMN, "by-width-plot")

    assert read == ["Monday", "20.0", "40.0"]
    assert blue == pytest.approx(2 * green, rel=0.06)
