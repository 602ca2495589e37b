"""The model's card: what it keeps, what it promises, how it was loaded, and what works less well than it could."""

import re

import msgspec
import pytest

from control.wire import (
    CacheStatus,
    GovernorStatus,
    LayoutStatus,
    LoadProgress,
    ModelOnDisk,
    PromiseStatus,
    SelfTest,
)
from tests.fakes import control as fake

REASON = "logits differ by 3.1e+00 from recomputing, beyond 1.0e-03"


async def card(console, **changes) -> str:
    """The card of an engine with these changes, on one line."""
    console.control.overview = fake.overview(view=fake.engine(**changes))
    console.watch.forget()
    answer = await console.browser.get("/model/live", headers={"HX-Request": "true"})
    return re.sub(r"\s+", " ", answer.text.split('id="engine"')[1].split("</section>")[0])


def fact(html: str, label: str) -> str:
    """The value beside a label. Raises when there is no such fact."""
    return re.search(rf">{label}</span></dt><dd[^>]*>(?:<span[^>]*>◒</span> )?([^<]*)</dd>", html)[1]


def warnings(html: str) -> list[str]:
    lines = re.findall(r'<li class="problem tone-wait"><span[^>]*>◒</span> (.*?)</li>', html)
    return [re.sub("<[^>]*>", "", line) for line in lines]


def failed(name: str, detail: str = REASON) -> SelfTest:
    return SelfTest(name=name, passed=False, error=None, tolerance=None, detail=detail)


def unsupported(name: str, detail: str = REASON) -> SelfTest:
    return SelfTest(name=name, passed=False, error=None, tolerance=None, detail=detail, is_supported=False)


def passed(name: str) -> SelfTest:
    return SelfTest(name=name, passed=True, error=0.01, tolerance=0.05)


async def test_the_card_says_what_the_cache_holds_and_what_it_spared(console):
    html = await card(console)

    assert fact(html, "cache") == "8.2 GiB of 11.8 GiB"
    assert fact(html, "from the cache") == "93.1%"
    assert "47,671,034 of 51,204,118 prompt tokens came from the cache" in html
    assert fact(html, "stay warm") == "6 sessions of 23k"
    assert warnings(html) == []


async def test_before_the_first_prompt_nothing_is_said_of_hits(console):
    html = await card(console, cache=CacheStatus(is_on=True, budget_bytes=2**30))

    assert fact(html, "from the cache") == "—"


async def test_a_cache_that_is_off_says_why_where_it_is_seen(console):
    html = await card(
        console,
        cache=CacheStatus(is_on=False, reason=f"the self-test failed: {REASON}"),
        self_tests=(failed("restore"),),
    )
    state = (await console.browser.get("/state")).text

    assert fact(html, "cache") == "off"
    assert warnings(html) == [
        f"The cache is off, so every prompt is read from its beginning. Reason: the self-test failed: {REASON}"
    ]
    assert "stay warm" not in html
    assert ">cache off<" in state


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("rows", "Requests that run together are padded to the longest"),
        ("padded", "Requests cannot be computed together"),
        ("kv_bits", "The context cannot be stored in fewer bits"),
        ("gated_delta", "The faster way to compute this kind of model is off"),
        ("late_system", "A system message in the middle of a conversation is refused"),
        ("restore", "The self-test “restore” did not pass."),
        ("something-new", "The self-test “something-new” did not pass."),
    ],
)
async def test_a_self_test_that_did_not_pass_says_what_is_missing_and_why(console, name, sentence):
    html = await card(console, self_tests=(failed(name),))

    (warning,) = warnings(html)

    assert warning.startswith(sentence)
    assert warning.endswith(f"Reason: {REASON}")
    assert fact(html, "self-test") == "0 of 1 passed"
    assert f"Not passed: {name}." in html


async def test_a_model_that_has_no_rows_is_told_of_among_the_facts_and_warned_of_nowhere(console):
    html = await card(
        console, layout=LayoutStatus(kind="padded", reason=REASON), self_tests=(unsupported("rows"), passed("padded"))
    )

    assert warnings(html) == []
    assert fact(html, "batching") == "padded to the longest"
    assert fact(html, "self-test") == "1 of 1 passed"
    assert "Requests that run together are padded to the longest, which takes memory and time." in html
    assert "Not for this kind of model: rows." in html
    assert "Not passed" not in html


async def test_a_model_whose_requests_take_turns_by_its_kind_says_so_among_the_facts(console):
    tests = (unsupported("rows"), unsupported("padded"), passed("canary"))

    html = await card(console, layout=LayoutStatus(kind="padded", reason=""), self_tests=tests)

    assert warnings(html) == []
    assert fact(html, "batching") == "one after another"


async def test_rows_that_computed_something_else_are_a_fault_of_which_the_consequence_is_told(console):
    tests = (failed("rows"), unsupported("padded"))

    html = await card(console, layout=LayoutStatus(kind="padded", reason=""), self_tests=tests)

    (warning,) = warnings(html)
    assert warning.startswith("Requests cannot be computed together")
    assert warning.endswith(f"Reason: {REASON}")


async def test_when_no_layout_works_only_what_follows_from_it_is_said(console):
    html = await card(console, self_tests=(failed("rows"), failed("padded")))

    (warning,) = warnings(html)

    assert warning.startswith("Requests cannot be computed together")


async def test_a_reason_cannot_be_markup(console):
    html = await card(console, self_tests=(failed("rows", "<b>no</b>"),))

    assert "<b>no" not in html
    assert "&lt;b&gt;no" in html


async def test_other_programs_that_need_memory_are_noticed(console):
    pressed = GovernorStatus(pool_bytes=6 * fake.GIB, planned_pool_bytes=16 * fake.GIB, is_pressed=True)

    html = await card(console, governor=pressed)

    assert warnings(html) == [
        "Other programs need memory: contexts and the cache have 6.0 GiB instead of the planned 16.0 GiB. "
        "They get it back when it is free."
    ]


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"largest_gap_ms": 412.4, "gaps": 9}, "kept · 412 ms"),
        (
            {"largest_gap_ms": 1612.0, "gaps": 9, "gap_violations": 2, "share_violations": 1},
            "3 broken · 1,612 ms",
        ),
        ({}, "—"),
    ],
)
async def test_promises_are_kept_or_broken_with_the_longest_wait(console, changes, value):
    promises = PromiseStatus(max_gap_ms=500, decode_share=0.25, **changes)

    html = await card(console, promises=promises)

    assert fact(html, "promises") == value
    assert ('tone-wait" title="3 broken' in html) is ("broken" in value)
    assert "wait 500 ms for a token at most and have 25% of the time" in html


async def test_a_context_in_fewer_bits_is_named_and_a_usual_one_is_not(console):
    quantised = await card(console, layout=LayoutStatus(kind="rows", reason="", kv_bits=8))
    usual = await card(console)

    assert fact(quantised, "context stored") == "in 8 bits"
    assert "context stored" not in usual


@pytest.mark.parametrize(
    ("detail", "value"),
    [
        ("native: a later system message is rendered in its place", "stay in their place"),
        ("patched: as a user message", "stay in their place, rewritten"),
        ("a form of later days", "a form of later days"),
    ],
)
async def test_what_becomes_of_later_system_messages_is_said(console, detail, value):
    test = SelfTest(name="late_system", passed=True, error=None, tolerance=None, detail=detail)

    html = await card(console, self_tests=(test,))

    assert fact(html, "later system messages") == value
    assert f"as the model&#39;s template was tried at load: {detail}" in html


async def test_the_speed_of_the_disk_is_told_while_it_loads_and_afterwards(console):
    progress = LoadProgress(bytes_read=43 * fake.GIB, bytes_total=100 * fake.GIB, seconds=10.0, read_seconds=8.6)

    loading = await card(console, state="loading", load=progress)
    unknown = await card(console, state="loading", load=msgspec.structs.replace(progress, read_seconds=0.0))
    ready = await card(console)

    assert "43.0 GiB of 100.0 GiB read · 5.0 GiB/s · " in loading
    assert "iB/s" not in unknown.split('class="muted num"')[1].split("</p>")[0]
    assert fact(ready, "loaded in") == "1 min 1 s · 4.1 GiB/s"


async def test_a_download_is_told_apart_from_weights_that_are_read(console):
    progress = LoadProgress(bytes_read=2 * fake.GIB, bytes_total=8 * fake.GIB, seconds=10.0)

    first = await card(console, state="loading", load=progress, memory_plan=None, wanted_model="org/new")
    beside = await card(console, load=progress, wanted_model="org/new", is_downloading=True)

    for html in (first, beside):
        assert "Downloading org/new" in html
        assert "2.0 GiB of 8.0 GiB downloaded · 204.8 MiB/s · 30 s left" in html
    assert fact(beside, "state") == "ready"
    assert "loaded in" not in beside


async def test_memory_counts_what_runs_and_what_is_kept(console):
    console.control.overview = fake.overview()

    answer = await console.browser.get("/now/live")
    html = answer.text.split('id="memory"')[1].split("</section>")[0]

    assert "12.4 GiB of 16.0 GiB" in html
    assert "running requests hold 4.2 GiB, and 8.2 GiB is kept" in html


async def test_a_paused_request_says_so_in_its_row_and_is_neither_read_nor_generated(console):
    console.control.overview = fake.overview(
        slots=(
            fake.paused(fake.prefilling(4812, slot=1)),
            fake.paused(fake.decoding(4809, slot=2)),
            fake.decoding(slot=3),
        )
    )

    html = re.sub(r"\s+", " ", (await console.browser.get("/now/live")).text)
    rows = [html.split(f'id="slot-{slot}"')[1].split("</tr>")[0].split('class="sheet"')[0] for slot in (1, 2)]
    figure = html.split('id="figure-speed"')[1].split("</div>")[0]

    assert all('data-phase="paused"' in row and "paused for memory" in row for row in rows)
    assert all("progressbar" not in row and "generating" not in row for row in rows)
    assert "2 paused" in figure
    assert "reading" not in figure


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_every_fact_and_warning_is_in_the_readers_language(console, language):
    console.browser.cookies.set(console.sessions.language_cookie, language)
    html = await card(
        console,
        cache=CacheStatus(is_on=False, reason=REASON),
        self_tests=(failed("late_system"), failed("gated_delta")),
        governor=GovernorStatus(is_pressed=True),
    )

    said = " ".join(warnings(html)).replace(REASON, "")

    assert len(warnings(html)) == 4
    assert bool(re.search("[一-鿿]", said)) is (language == "zh")


@pytest.mark.parametrize(
    ("changes", "link"),
    [
        ({}, ("/model/load?model=Qwen3.8-27B-4bit", "Other settings…")),
        (
            {"state": "unloaded", "last_model": "/models/my own"},
            ("/model/load?model=/models/my%20own", "Load the last"),
        ),
        ({"state": "unloaded"}, ("#first-model", "Choose a model…")),
    ],
)
async def test_the_first_button_leads_to_the_model_that_is_or_was_loaded_else_to_the_first_of_the_list(
    console, changes, link
):
    primary = re.search(r'<a class="button primary" href="([^"]*)"[^>]*>([^<]*)</a>', await card(console, **changes))

    assert primary[1] == link[0]
    assert primary[2].startswith(link[1])


async def test_the_list_has_the_place_that_the_button_leads_to_once(console):
    named = {"architecture": "qwen3", "quantization": None, "weights_bytes": 1, "native_context_tokens": 1}
    console.control.models = tuple(
        ModelOnDisk(name=name, path=f"/models/{name}", fits=True, is_demo=False, **named) for name in ("a", "b")
    )

    html = (await console.browser.get("/model/list")).text

    assert html.count('id="first-model"') == 1
