"""How an end is told: every code that control can write into a row has words, and none tells of what did not happen."""

import re
from collections.abc import Iterator

import msgspec
import pytest

from control.errors import ApiError, SplashQuits
from control.live import CANCELLED_CODES
from tests.fakes import control as fake
from webui.text import load_texts
from webui.views.outcomes import ending_of
from webui.views.request_detail import detail_page
from webui.views.shell import Shell

# Refused before there is a request to write down: at the door, by the shape of the body, or because only tokens were
# to be counted.
WITHOUT_A_ROW = {
    "headers_too_large",
    "host_not_allowed",
    "invalid_api_key",
    "method_not_allowed",
    "model_not_found",
    "model_not_ready",
    "not_found",
    "previous_response_not_found",
    "request_timeout",
    "request_too_large",
    "unsupported_encoding",
}


def kinds_of(error: type[ApiError]) -> Iterator[type[ApiError]]:
    yield error
    for kind in error.__subclasses__():
        yield from kinds_of(kind)


CODES = sorted({kind.code for kind in kinds_of(ApiError)} | set(CANCELLED_CODES))


def shell(language: str = "en") -> Shell:
    text = load_texts()[language]
    return Shell(text=text, theme="system", page="requests", title="", here="/", form_token="", masthead=None)


def turned_away(code: str = SplashQuits.code, **changes: object):
    row = fake.finished(7, "rejected", error_code=code)
    nothing = {"queue_ms": None, "prefill_ms": None, "decode_ms": None, "ttft_ms": None, "total_ms": 1_304.0}
    return fake.listed(msgspec.structs.replace(row, **{**nothing, **changes}))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("code", [code for code in CODES if code not in WITHOUT_A_ROW])
def test_every_code_of_a_row_has_a_short_word_and_a_sentence_in_both_languages(code, language):
    row = fake.finished(1, "failed", error_code=code)

    ending, why = ending_of(row, shell(language).text), detail_page(shell(language), fake.listed(row)).why

    assert ending.reason != code
    assert ending.reason or code == "request_cancelled"
    assert code not in why


def test_codes_that_no_row_has_are_codes_of_control():
    assert set(CODES) > WITHOUT_A_ROW


@pytest.mark.parametrize("language", ["en", "zh"])
def test_who_is_turned_away_by_a_quit_is_not_told_of_force(language):
    page = detail_page(shell(language), turned_away())
    told = f"{page.ending.reason} {page.why}"

    assert "force" not in told
    assert "强制" not in told
    assert ("Turned away: Splash was quitting." in told) is (language == "en")


def test_who_is_cut_by_a_quit_with_force_is_told_so():
    listed = turned_away(queue_ms=3.0, prefill_ms=900.0)

    assert detail_page(shell(), listed).why == "Cut off: Splash was made to quit by force."


@pytest.mark.parametrize("code", ["quitting", "no_model", "key_limit_reached", "rate_limit_exceeded"])
def test_a_request_that_never_came_to_the_engine_has_no_axis_of_zeros(code):
    page = detail_page(shell(), turned_away(code))

    assert page.timeline is None
    assert page.why.endswith("It never came to the engine.")


def test_a_request_that_was_over_at_once_has_no_axis_of_zeros():
    assert detail_page(shell(), turned_away(queue_ms=2.0, total_ms=2.0)).timeline is None


@pytest.mark.parametrize("code", ["engine_died", "engine_stopped"])
def test_what_the_engine_had_and_had_not_begun_is_not_said_to_have_never_come_there(code):
    page = detail_page(shell(), turned_away(code, queue_ms=1_304.0))

    assert "never came" not in page.why
    assert [phase.name for phase in page.timeline.phases] == ["queue"]


async def test_the_list_and_now_show_words_for_a_limit_of_a_key(console):
    console.control.requests = (fake.finished(4807, "rejected", error_code="key_limit_reached"),)

    html = (await console.browser.get("/now/live")).text.split('id="recent-r4807"')[1].split("</tr>")[0]

    assert "key&#39;s limit" in re.sub(r"<[^>]+>", "", html)
