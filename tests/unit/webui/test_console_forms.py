"""What all forms of the console have in common: the browser brings back nothing that the page itself does not say."""

import re

import pytest

from control import wire
from tests.browser.furnished import furnish
from tests.fakes import control as fake
from webui.views.shell import NAVIGATION

# What a question and its settings say is only in the browser, and is read where it stands when it is asked.
ONLY_HERE = ("ask", "talk-values")
FIELD = re.compile(r'<select|<textarea|<input(?![^>]*type="hidden")')


@pytest.mark.parametrize("path", [*(link.path for link in NAVIGATION), f"/model/load?model={fake.MODEL.id}"])
async def test_a_form_with_fields_shows_what_the_page_says_also_after_going_back(console, path):
    """Chromium fills a form with what was chosen last when its page is gone back to, whatever its address says."""
    furnish(console.control)
    console.control.order_answers[wire.PLAN] = wire.Accepted(message="no plan")

    html = (await console.browser.get(path)).text

    forms = re.findall(r"(<form[^>]*>)(.*?)</form>", html, re.S)
    filled_in = [tag for tag, inside in forms if FIELD.search(inside)]
    assert [
        tag
        for tag in filled_in
        if 'autocomplete="off"' not in tag and not any(f'id="{form}"' in tag for form in ONLY_HERE)
    ] == []
