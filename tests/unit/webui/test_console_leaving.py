"""A control that leaves, as for a restart: the masthead says so on every page, in both languages."""

import msgspec
import pytest

from tests.fakes import control as fake


@pytest.mark.parametrize(("language", "expected"), [("en", "restarting"), ("zh", "正在重启")])
async def test_the_masthead_says_that_the_gateway_is_being_restarted(console, language, expected):
    before = (await console.browser.get("/state", headers={"Accept-Language": language})).text
    console.control.overview = msgspec.structs.replace(fake.overview(slots=(fake.decoding(),)), leaving=True)
    console.watch.forget()

    shown = (await console.browser.get("/state", headers={"Accept-Language": language})).text

    assert (expected in before, expected in shown) == (False, True)
