"""Logging in by the password, and who may try from where."""

import asyncio
import stat
from functools import partial

import httpx
import pytest

from tests.unit.webui.console_stage import ORIGIN, PORT, serve
from webui.lan import LanHosts
from webui.pages import login

PASSWORD = "correct horse battery"
FIELD = '<input id="password" name="password" type="password" autocomplete="current-password"'


@pytest.fixture
def guarded(control, home):
    """A home whose console has a password, and a control that knows it."""
    (home.root / "secrets" / "console-password").write_text("{}")
    control.password = PASSWORD
    return home


async def typed(visitor, password=PASSWORD, **headers) -> httpx.Response:
    sent = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"} | headers
    return await visitor.browser.post("/login", data={"password": password, "next": "/clients?a=b"}, headers=sent)


async def test_without_a_password_the_page_teaches_the_link_and_takes_none(visitor):
    page = await visitor.browser.get("/clients")
    answer = await typed(visitor)

    assert (page.status_code, FIELD in page.text) == (401, False)
    assert answer.status_code == 403
    assert "splash open" in answer.text and "set-cookie" not in answer.headers


@pytest.mark.parametrize(("language", "label"), [("en", "Password of this console"), ("zh", "控制台密码")])
async def test_with_one_the_page_that_was_asked_for_asks_for_it(guarded, visitor, language, label):
    page = await visitor.browser.get("/clients?a=b", headers={"Accept-Language": language})

    assert page.status_code == 401
    assert FIELD in page.text
    assert f'<label for="password">{label}</label>' in page.text
    assert 'value="/clients?a=b"' in page.text
    assert "splash open" in page.text


async def test_the_login_page_itself_asks_for_it_too(guarded, visitor):
    page = await visitor.browser.get("/login")

    assert (page.status_code, FIELD in page.text) == (200, True)


async def test_an_order_without_a_session_leads_to_the_first_page_and_is_not_given(guarded, visitor):
    page = await visitor.post("/engine/unload", form_token="guessed")

    assert (page.status_code, 'name="next" value="/"' in page.text) == (401, True)
    assert visitor.control.orders == []


async def test_the_right_one_gives_a_session_and_the_page(guarded, visitor):
    answer = await typed(visitor)
    page = await visitor.browser.get(answer.headers["location"])

    assert (answer.status_code, answer.headers["location"], page.status_code) == (303, "/clients?a=b", 200)
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= {
        part.strip() for part in answer.headers["set-cookie"].split(";")
    }
    # The address is the connection's, whatever a header says.
    assert visitor.control.tries == [(PASSWORD, "127.0.0.1")]


async def test_the_address_of_who_tries_is_that_of_the_connection(guarded, visitor):
    headers = {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.9", "X-Real-IP": "203.0.113.9"}

    await typed(visitor, **headers)

    assert [address for _, address in visitor.control.tries] == ["127.0.0.1"]


async def test_a_wrong_one_gives_the_page_again_and_no_session(guarded, visitor):
    answer = await typed(visitor, "wrong")

    assert answer.status_code == 403
    assert "This is not the password." in answer.text
    assert 'aria-describedby="login-problem" aria-invalid="true"' in answer.text
    assert 'value="/clients?a=b"' in answer.text
    assert "set-cookie" not in answer.headers
    assert "wrong" not in answer.text.replace('class="wrong"', "")


@pytest.mark.parametrize(("seconds", "said"), [(42, "in 42 seconds."), (1, "in 1 second.")])
async def test_after_too_many_the_page_says_how_long(guarded, visitor, seconds, said):
    visitor.control.too_many_s = seconds

    answer = await typed(visitor)

    assert (answer.status_code, answer.headers["retry-after"]) == (429, str(seconds))
    assert said in answer.text
    assert "set-cookie" not in answer.headers


async def test_while_the_gateway_is_gone_nobody_gets_in(guarded, visitor):
    visitor.control.is_silent = True

    answer = await typed(visitor)

    assert answer.status_code == 502
    assert "The gateway does not answer" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example", "//evil.example", "/\\evil.example", "/\t/evil.example", "evil", "", "/\n/x"]
)
async def test_the_page_asked_for_is_one_of_ours(guarded, visitor, elsewhere):
    answer = await visitor.browser.post("/login", data={"password": PASSWORD, "next": elsewhere})

    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "null"},
        {"Origin": f"http://localhost:{PORT}"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": f"evil.example:{PORT}"},
    ],
)
async def test_a_form_from_elsewhere_is_not_tried(guarded, visitor, headers):
    answer = await typed(visitor, **headers)

    assert answer.status_code == 403
    assert visitor.control.tries == []


async def test_a_form_that_is_too_long_is_not_tried(guarded, visitor):
    answer = await typed(visitor, "x" * 20_000)

    assert answer.status_code == 403
    assert visitor.control.tries == []


async def test_a_form_that_comes_too_slowly_is_not_waited_for(guarded, visitor, monkeypatch):
    monkeypatch.setattr(login, "PASSWORD_FORM_S", 0.01)

    async def drop_by_drop():
        yield b"password="
        await asyncio.sleep(30)

    answer = await visitor.browser.post("/login", content=drop_by_drop())

    assert answer.status_code == 403
    assert visitor.control.tries == []


async def test_a_link_still_opens_it(guarded, visitor):
    visitor.control.links.add("once")

    answer = await visitor.browser.get("/login?token=once")

    assert (answer.status_code, answer.headers["location"]) == (303, "/")


# --- LAN mode ---


@pytest.fixture(params=[False, True], ids=["alone", "lan"])
async def console_of_the_net(request, control, guarded, monkeypatch):
    monkeypatch.setattr("webui.app.LanHosts", partial(LanHosts, hostname=lambda: "Mac-Studio.local"))
    async with serve(control, guarded, is_lan_on=request.param) as visitor:
        yield request.param, visitor


@pytest.mark.parametrize("host", [f"mac-studio.local:{PORT}", f"MAC-STUDIO:{PORT}"])
async def test_the_name_of_this_machine_is_served_only_in_lan_mode(console_of_the_net, host):
    is_lan_on, visitor = console_of_the_net

    answer = await visitor.browser.get("/healthz", headers={"Host": host})

    assert answer.status_code == (200 if is_lan_on else 403)


async def test_a_form_comes_from_the_host_that_it_goes_to(console_of_the_net):
    is_lan_on, visitor = console_of_the_net
    name = f"mac-studio.local:{PORT}"
    origins = (f"http://{name}", ORIGIN, f"http://mac-studio:{PORT}", "http://mac-studio.local", f"https://{name}")

    answers = [await typed(visitor, Host=name, Origin=origin, **{"Sec-Fetch-Site": "none"}) for origin in origins]

    assert [answer.status_code for answer in answers] == [303 if is_lan_on else 403, 403, 403, 403, 403]


def test_the_session_key_that_was_removed_is_made_anew_and_private(home):
    before = home.session_key()
    (home.root / "secrets" / "console").unlink()

    after = home.session_key()

    assert before != after
    assert stat.S_IMODE((home.root / "secrets" / "console").stat().st_mode) == 0o600
