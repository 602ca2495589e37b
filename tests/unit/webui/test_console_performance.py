import re

import msgspec
import pytest

from control import wire
from tests.fakes import control as fake
from tests.fakes import performance as measured
from webui.text import load_texts
from webui.views.performance_charts import by_context, by_width, first_token_over_time, over_time
from webui.views.performance_words import (
    correlation_sentence,
    discarded_sentences,
    misses_explained,
    promise_sentences,
    times_of_a_row,
)

ENGLISH, CHINESE = load_texts()["en"], load_texts()["zh"]
LANGUAGES = pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh"])


def sight(html: str) -> str:
    """What is read on the page, on one line."""
    return re.sub(r"(?:<[^>]+>|\s)+", " ", html)


async def page(console, query: str = "", **answers: msgspec.Struct | bytes) -> str:
    console.control.answers |= {wire.PERFORMANCE: measured.performance(), wire.MISSES: measured.misses()} | answers
    answer = await console.browser.get(f"/performance{query}")
    assert answer.status_code == 200
    return answer.text


# --- Charts and their tables ---


def test_steady_speed_peak_and_ceiling_are_told_apart_by_width():
    chart = by_width(measured.performance(), ENGLISH)

    assert [series.label for series in chart.series] == ["steady", "fastest 5 s", "ceiling"]
    assert [series.values for series in chart.series] == [
        (103.7, 183.33, None, 305.0),
        (121.34, 201.0, None, None),
        (119.2, 214.0, None, None),
    ]
    assert chart.categories == ("1 stream", "2 streams", "3 streams", "4 streams")
    assert chart.table.rows[0] == ("1 stream", "103.7", "121.3", "119.2", "87%", "373,320", "1 h 0 min")
    assert chart.table.rows[2] == ("3 streams", "—", "—", "—", "—", "—", "—")
    assert chart.table.rows[3] == ("4 streams", "305.0", "—", "—", "—", "61,000", "3 min 20 s")


def test_a_ceiling_far_above_all_bars_is_told_in_words_and_not_drawn():
    slow = tuple(
        measured.width(streams, tokens=14_000, seconds=100.0, peak=150.0, ceiling=ceiling)
        for streams, ceiling in ((1, 8_200.0), (2, 7_900.0))
    )

    chart = by_width(measured.performance(widths=slow), ENGLISH)

    assert [series.label for series in chart.series] == ["steady", "fastest 5 s"]
    assert chart.summary.startswith("Not drawn: the ceiling of up to 8,200 tok/s, far above every bar. 1 stream: 140.0")
    assert chart.table.rows[0][3] == "8,200"


def test_the_share_of_the_ceiling_is_said_only_where_there_is_one():
    summary = by_width(measured.performance(), ENGLISH).summary

    assert "1 stream: 103.7 tok/s, 87% of what the memory’s speed allows" in summary
    assert summary.endswith("4 streams: 305.0 tok/s")


def test_a_line_over_time_is_broken_where_nothing_was_measured():
    chart = over_time(measured.performance(), ENGLISH)
    one = chart.series[0]

    assert [series.label for series in chart.series] == ["1 stream", "2 streams"]
    assert one.values.count(None) == 1
    assert chart.x[one.values.index(None)] == measured.BEGIN_S + 20 * measured.STEP_S
    assert list(chart.x) == sorted(chart.x)
    assert chart.x_range == (measured.BEGIN_S, measured.BEGIN_S + 86_400)


@pytest.mark.parametrize("make", [by_width, over_time, first_token_over_time])
@LANGUAGES
def test_a_table_has_each_value_of_its_chart(make, text):
    chart = make(measured.performance(), text)
    drawn = sorted(v for series in chart.series for v in series.values if v is not None)

    columns = {by_width: slice(1, 4)}.get(make, slice(1, None))
    cells = [cell for row in chart.table.rows for cell in row[columns] if cell != "—"]
    written = sorted(float(re.sub(r"[^\d.]", "", cell)) for cell in cells)

    assert written == pytest.approx(drawn, abs=0.051)
    assert all(len(row) == len(chart.table.headings) for row in chart.table.rows)


def test_the_table_beside_the_points_is_by_context_and_streams():
    chart = by_context(measured.performance(), ENGLISH)

    assert chart.table.headings == (
        "Context, tokens",
        "1 stream, tok/s",
        "2 streams, tok/s",
        "1 stream measured for",
    )
    assert chart.table.rows == (
        ("up to 4,096", "104.0", "—", "16 min 40 s"),
        ("up to 65,536", "103.0", "183.3", "33 min 20 s"),
        ("up to 262,144", "105.5", "—", "10 min 0 s"),
    )


def test_the_regression_is_drawn_through_the_points_in_the_order_of_their_context():
    performance = measured.performance(
        points=tuple(
            wire.ContextPoint(context_tokens=n, tokens_per_second=50.0, seconds=1.0) for n in (30_000, 10_000)
        ),
        regression=wire.Regression(slope_per_1k=-0.5, intercept=100.0, correlation=-0.8, points=20),
    )

    chart = by_context(performance, ENGLISH)

    assert chart.x == (10_000.0, 30_000.0)
    assert chart.series[1].values == (95.0, 85.0)


@LANGUAGES
def test_where_nothing_was_measured_each_chart_is_empty_and_teaches(text):
    nothing = measured.nothing_measured()
    charts = [make(nothing, text) for make in (by_width, over_time, by_context, first_token_over_time)]

    assert all(chart.is_empty for chart in charts)
    assert all(len(chart.empty) > 15 for chart in charts)


# --- Sentences ---


@pytest.mark.parametrize(
    ("correlation", "points", "english", "chinese"),
    [
        (0.026, 1_537, "No slowdown with longer context: correlation 0.03 over 1,537 stretches.", "并不变慢"),
        (-0.0999, 50, "No slowdown", "并不变慢"),
        (-0.1, 50, "Slightly slower", "略微变慢"),
        (-0.3, 50, "Clearly slower", "明显变慢"),
        (-0.6, 50, "Speed follows context length closely", "密切相关"),
        (0.1, 50, "Faster with longer context", "反而越快"),
        (-0.9, 9, "Only 9 stretches so far", "只有 9 段"),
    ],
)
def test_the_correlation_is_said_in_plain_words(correlation, points, english, chinese):
    line = wire.Regression(slope_per_1k=-0.25, intercept=100.0, correlation=correlation, points=points)

    assert english in correlation_sentence(line, ENGLISH)
    assert chinese in correlation_sentence(line, CHINESE)


@LANGUAGES
def test_two_stretches_always_lie_on_a_line_so_neither_it_nor_its_correlation_is_shown(text):
    line = wire.Regression(slope_per_1k=-3.0, intercept=55.0, correlation=-1.0, points=2)

    chart = by_context(measured.performance(regression=line), text)

    assert not re.search(r"-1|1\.00", chart.summary)
    assert [series.draw for series in chart.series] == ["points"]


def test_a_slowdown_is_said_with_what_it_costs():
    line = wire.Regression(slope_per_1k=-0.25, intercept=100.0, correlation=-0.5, points=50)

    assert correlation_sentence(line, ENGLISH).endswith("Every 10,000 more tokens cost 2.5 tok/s.")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [True, True]),
        ({"gap_violations": 3, "largest_gap_ms": 1_612.0}, [False, True]),
        ({"share_violations": 12}, [True, False]),
        ({"gaps": 0, "windows": 0}, [None, None]),
    ],
)
@LANGUAGES
def test_promises_are_kept_broken_or_untried(changes, expected, text):
    told = promise_sentences(msgspec.structs.replace(fake.PROMISES, **changes), text)

    assert [promise.is_kept for promise in told] == expected
    assert "500 ms" in told[0].sentence
    assert "50%" in told[1].sentence


def test_a_broken_promise_is_said_with_its_numbers():
    broken = msgspec.structs.replace(fake.PROMISES, gap_violations=3, largest_gap_ms=1_612.0)

    assert promise_sentences(broken, ENGLISH)[0].sentence == (
        "Not always kept: 3 of 18,204 pauses of running answers were longer than 500 ms. The longest was 1,612 ms."
    )


def test_what_did_not_count_is_said_the_most_frequent_first_and_never_a_zero():
    told = discarded_sentences({"idle": 1, "prefill": 1_310, "gap": 0, "moonlight": 5}, ENGLISH)

    assert told == (
        "1,310 windows, because a prompt was being read.",
        "5 windows, for another reason: moonlight.",
        "1 window, because it was the first after a pause.",
    )


@pytest.mark.parametrize(
    ("times_ms", "written"),
    [
        ((78.5, 200.4), ("78 ms", "200 ms")),
        ((3.21, 78.5), ("3.2 ms", "78.5 ms")),
        ((412.0, 2_310.0), ("0.41 s", "2.31 s")),
    ],
)
def test_the_times_of_a_row_are_in_one_unit(times_ms, written):
    assert times_of_a_row(times_ms, ENGLISH) == written


@pytest.mark.parametrize(
    ("miss", "sentence"),
    [
        (
            measured.miss("never_taken"),
            "The prompt equals an earlier one up to token 50,412. The nearest snapshot was 1,204 tokens before; those "
            "were computed again.",
        ),
        (
            measured.miss("never_taken", restored_tokens=0, distance_tokens=50_412),
            "The prompt equals an earlier one up to token 50,412. No snapshot had been taken on the way; 50,412 tokens "
            "were computed again.",
        ),
        (
            measured.miss("evicted", restored_tokens=20_480, distance_tokens=29_932),
            "The prompt equals an earlier one up to token 50,412. What was kept of it had made room for newer prompts: "
            "20,480 tokens came from the cache, 29,932 were computed again.",
        ),
        (
            measured.miss("evicted", restored_tokens=0, distance_tokens=50_412),
            "The prompt equals an earlier one up to token 50,412. What was kept of it had made room for newer prompts: "
            "50,412 tokens were computed again.",
        ),
        (
            measured.miss("cold", first_difference=None),
            "No earlier prompt begins like this one: all 61,204 tokens were computed.",
        ),
        (
            measured.miss("cold", first_difference=12, restored_tokens=0, matched_tokens=0, distance_tokens=0),
            "The prompt equals earlier ones only up to token 12, which is too short to be kept: all 61,204 tokens were "
            "computed.",
        ),
        (
            measured.miss("differs", first_difference=49_220, matched_tokens=49_208, distance_tokens=0),
            "The prompt equals an earlier one up to token 49,220. Up to there 49,208 tokens came from the cache, which "
            "keeps whole blocks only; nothing more could be had.",
        ),
    ],
)
def test_each_cause_of_a_miss_is_one_plain_sentence_with_its_numbers(miss, sentence):
    assert misses_explained((miss,), ENGLISH)[0].sentence == sentence
    assert re.search("[一-鿿]", misses_explained((miss,), CHINESE)[0].sentence)


def test_the_newest_twenty_misses_are_shown_the_newest_first():
    shown = misses_explained(tuple(measured.miss(number=n, first_difference=1_000 + n) for n in range(50)), ENGLISH)

    assert len(shown) == 20
    assert "1,049" in shown[0].sentence
    assert "1,030" in shown[-1].sentence


# --- The page ---


async def test_the_figures_stand_at_the_top(console):
    html = await page(console)

    figures = sight(html.split('id="figures"')[1].split("</section>")[0])
    assert "103.7 tok/s peak 121.3 · 87% of the ceiling" in figures
    assert "0.92 s 95% within 4.10 s" in figures
    assert "93.1% input : output 127 : 1" in figures
    assert "70.4% 2.41 tokens per guess" in figures


async def test_the_waiting_times_stand_in_one_table_with_and_without_the_queue(console):
    html = await page(console)

    rows = {name: sight(html.split(f'id="latency-{name}"')[1].split("</tr>")[0]) for name in ("ttft", "alone", "token")}
    assert "1.24 s 9.80 s 1,204" in rows["ttft"]
    assert "0.92 s 4.10 s 1,204" in rows["alone"]
    assert "9.6 ms 21.2 ms 1,180" in rows["token"]


async def test_what_is_not_known_is_a_dash_and_never_a_zero(console):
    html = await page(console, **{wire.PERFORMANCE: measured.nothing_measured(), wire.MISSES: wire.MissList()})

    figures = html.split('id="figures"')[1].split("</section>")[0]
    assert re.findall(r'class="num" title="[^"]*">([^<]*)<', figures) == ["—"] * 4
    assert "No stretch of pure decoding yet." in html
    assert 'class="plot"' not in html
    assert "0.0" not in sight(html)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (wire.MissList(reason="no model is loaded"), "No prompt yet: no model is loaded"),
        (wire.MissList(is_on=True, lookups=0), "No prompt yet since the model was loaded."),
        (wire.MissList(is_on=True, lookups=9), "What prompts had in common with earlier ones came from the cache"),
        (wire.MissList(lookups=0, reason="the self-test failed"), "The cache is off, so every prompt is read"),
    ],
)
async def test_that_prompts_came_from_the_cache_is_only_said_when_there_was_one(console, told, sentence):
    html = await page(console, **{wire.MISSES: told})

    assert sentence in html
    assert ("What prompts had in common" in html) is bool(told.lookups)


async def test_range_and_model_are_asked_of_control_and_kept_in_every_link(console):
    html = await page(
        console,
        "?range=week&model=b%26c",
        **{wire.PERFORMANCE: measured.performance(model="b&c", models=("a", "b&c"))},
    )

    assert (wire.PERFORMANCE, "range=week&model=b%26c") in console.control.questions
    assert 'hx-get="/performance/live?range=week&amp;model=b%26c"' in html
    assert '<a href="/performance?range=week&amp;model=b%26c" aria-current="true">7 days</a>' in html
    assert '<a href="/performance?range=week&amp;model=b%26c" aria-current="true">b&amp;c</a>' in html
    assert '<a href="/performance?range=week">All models</a>' in html
    assert 'name="here" value="/performance?range=week&amp;model=b%26c"' in html


async def test_with_one_model_there_is_nothing_to_choose(console):
    html = await page(console)

    assert "All models" not in html
    assert '<a href="/performance?range=day" aria-current="true">24 hours</a>' in html


async def test_an_unknown_range_is_the_usual_one(console):
    await page(console, "?range=century")

    assert (wire.PERFORMANCE, "range=day") in console.control.questions


async def test_a_silent_gateway_leaves_what_is_shown_and_says_so_on_a_new_page(console):
    console.control.is_silent = True

    live = await console.browser.get("/performance/live", headers={"HX-Request": "true"})
    whole = await console.browser.get("/performance")

    assert live.status_code == 204
    assert "The gateway does not answer, so nothing is known yet." in whole.text


async def test_a_refusal_is_shown_in_the_gateways_words(console):
    live = await console.browser.get("/performance/live", headers={"HX-Request": "true"})

    assert live.status_code == 200
    assert "/performance is not there" in live.text


async def test_misses_that_are_not_known_take_nothing_else_away(console):
    html = await page(console, **{wire.MISSES: b"no json"})

    assert "Not known just now" in html
    assert "103.7" in html


async def test_the_live_part_is_the_same_as_on_the_page(console):
    html = await page(console)

    live = await console.browser.get("/performance/live", headers={"HX-Request": "true"})

    assert "<html" not in live.text
    assert re.sub(r"measured until [\d:]+", "", live.text.strip()) in re.sub(r"measured until [\d:]+", "", html)


async def test_the_page_is_written_in_chinese_too(console):
    console.browser.headers["accept-language"] = "zh-CN"

    html = await page(console)

    assert "上下文变长并不变慢：1,537 段的相关系数为 0.03。" in html
    assert "已做到：运行中的回答等待下一个 token 从未超过 500 ms。" in html
    assert "最近的快照在此之前 1,204 个 token 处" in html
