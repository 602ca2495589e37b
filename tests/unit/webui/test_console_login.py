import stat

import pytest

from tests.unit.webui.console_stage import PORT
from webui.ended_sessions import EndedSessions
from webui.sessions import SESSION_S, Sessions


async def test_a_link_gives_a_session_and_leads_to_the_page(visitor):
    visitor.control.links.add("once")

    answer = await visitor.browser.get("/login?token=once")
    page = await visitor.browser.get(answer.headers["location"])

    cookie = answer.headers["set-cookie"]
    assert (answer.status_code, page.status_code) == (303, 200)
    assert f"splash-session-{PORT}=" in cookie
    assert {"HttpOnly", "Path=/", "SameSite=strict", f"Max-Age={SESSION_S}"} <= {
        part.strip() for part in cookie.split(";")
    }


async def test_a_used_link_says_so(visitor):
    visitor.control.links.add("once")
    await visitor.browser.get("/login?token=once")
    visitor.browser.cookies.clear()

    answer = await visitor.browser.get("/login?token=once")

    assert answer.status_code == 403
    assert "a link works once" in answer.text
    assert "set-cookie" not in answer.headers


async def test_a_link_without_a_token_teaches(visitor):
    answer = await visitor.browser.get("/login")

    assert answer.status_code == 400
    assert "splash open" in answer.text


@pytest.mark.parametrize("headers", [{"Sec-Purpose": "prefetch"}, {"Purpose": "prefetch"}])
async def test_a_prefetch_does_not_use_up_the_link(visitor, headers):
    visitor.control.links.add("once")

    await visitor.browser.get("/login?token=once", headers=headers)
    await visitor.browser.head("/login?token=once")

    assert visitor.control.links == {"once"}


async def test_while_the_gateway_is_gone_the_link_stays_good(visitor):
    visitor.control.links.add("once")
    visitor.control.is_silent = True

    answer = await visitor.browser.get("/login?token=once")

    assert answer.status_code == 502
    assert "if it then refuses the link, <code>splash open</code> gives a new one" in answer.text
    assert visitor.control.links == {"once"}


async def test_a_session_survives_a_restart_and_not_another_key(console):
    cookies = dict(console.browser.cookies)

    ended = EndedSessions(console.home)
    restarted = Sessions(console.home.session_key(), port=PORT, ended=ended)
    elsewhere = Sessions(b"another key", port=PORT, ended=ended)
    other_port = Sessions(console.home.session_key(), port=PORT + 1, ended=ended)

    assert restarted.read(cookies) == console.sessions.read(cookies)
    assert elsewhere.read(cookies) is None
    assert other_port.read({other_port.session_cookie: cookies[console.sessions.session_cookie]}) is None


async def test_a_changed_cookie_is_no_session(console):
    name = console.sessions.session_cookie
    value = console.browser.cookies[name]
    # Not the last letter: some of its bits mean nothing.
    changed = [value[:n] + ("a" if value[n] != "a" else "b") + value[n + 1 :] for n in (3, 20, len(value) - 5)]

    assert [console.sessions.read({name: text}) for text in (*changed, "", "x", value + "x")] == [None] * 6


async def test_logging_out_ends_the_session(console):
    answer = await console.post("/logout")

    assert answer.status_code == 303
    assert (await console.browser.get("/")).status_code == 401


async def test_a_copy_of_the_cookie_is_worth_nothing_after_the_logout_even_after_a_restart(console):
    copied = dict(console.browser.cookies)
    await console.post("/logout")

    restarted = Sessions(console.home.session_key(), port=PORT, ended=EndedSessions(console.home))
    path = console.home.root / "secrets" / "ended-sessions.json"

    assert console.sessions.read(copied) is None
    assert restarted.read(copied) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_ended_session_is_forgotten_when_its_cookie_has_expired(home):
    now_s = [1_000.0]
    ended = EndedSessions(home, wall_s=lambda: now_s[0])
    ended.add("first", valid_s=10)
    now_s[0] += 11

    ended.add("second", valid_s=10)

    assert ("first" in ended, "second" in ended) == (False, True)


def test_a_damaged_list_of_ended_sessions_does_not_stop_the_console(home):
    home.write_ended_sessions(b"{not json")

    assert "anyone" not in EndedSessions(home)


async def test_a_visit_from_another_site_comes_in_by_one_more_step(visitor):
    from_elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}

    answer = await visitor.browser.get("/clients", headers=from_elsewhere)

    assert answer.status_code == 200
    assert '<meta http-equiv="refresh" content="0; url=/clients">' in answer.text


async def test_a_path_that_would_leave_the_console_leads_home(visitor):
    from_elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}

    answer = await visitor.browser.get("http://127.0.0.1:18999//evil.example/", headers=from_elsewhere)

    assert 'content="0; url=/"' in answer.text


async def test_language_and_theme_are_kept_by_the_browser(console):
    first = await console.browser.get("/")
    await console.post("/preferences", language="zh", here="/")
    answer = await console.post("/preferences", theme="dark", here="/clients")
    page = await console.browser.get("/")

    assert 'lang="en"' in first.text
    assert answer.headers["location"] == "/clients"
    assert '<html lang="zh-Hans" data-theme="dark"' in page.text


@pytest.mark.parametrize("fields", [{"language": "xx"}, {"theme": "pink"}])
async def test_an_unknown_preference_changes_nothing(console, fields):
    await console.post("/preferences", here="/", **fields)
    page = await console.browser.get("/")

    assert '<html lang="en" data-theme="system"' in page.text
    assert "cannot be used" in page.text


async def test_a_preference_cannot_lead_to_another_site(console):
    answer = await console.post("/preferences", theme="dark", here="//evil.example")

    assert answer.headers["location"] == "/"
