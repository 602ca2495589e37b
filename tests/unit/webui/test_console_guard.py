import pytest

from tests.unit.webui.console_stage import ORIGIN, PORT


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"])
async def test_the_names_of_this_machine_are_served(visitor, host):
    answer = await visitor.browser.get("/healthz", headers={"Host": host})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"127.0.0.1.evil.example:{PORT}",
        f"evil.example:{PORT}",
        "127.0.0.1",
        f"127.0.0.1:{PORT + 1}",
        f"127.0.0.1:{PORT}@evil.example",
        f"[::2]:{PORT}",
        "",
    ],
)
async def test_any_other_host_is_refused_even_at_healthz(visitor, host):
    answer = await visitor.browser.get("/healthz", headers={"Host": host, "X-Forwarded-Host": f"127.0.0.1:{PORT}"})

    assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "null"},
        {"Origin": f"http://localhost:{PORT}"},
        {"Origin": f"https://127.0.0.1:{PORT}"},
        {"Origin": f"http://127.0.0.1:{PORT + 1}"},
        {"Origin": f"{ORIGIN}.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": ORIGIN, "Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_form_from_elsewhere_is_refused_although_its_token_is_right(console, headers):
    token = console.sessions.read(dict(console.browser.cookies)).form_token

    answer = await console.browser.post("/engine/unload", data={"form_token": token}, headers=headers)

    assert answer.status_code == 403
    assert console.control.orders == []


async def test_a_form_without_fetch_metadata_still_needs_its_token(console):
    token = console.sessions.read(dict(console.browser.cookies)).form_token

    without = await console.browser.post("/engine/unload", data={})
    with_it = await console.browser.post("/engine/unload", data={"form_token": token})

    assert (without.status_code, with_it.status_code) == (403, 303)
    assert [path for _, path, _ in console.control.orders] == ["/engine/unload"]


@pytest.mark.parametrize("content", [b"form_token=\xff", b"x" * 20_000])
async def test_a_body_that_is_no_form_is_refused(console, content):
    answer = await console.browser.post("/engine/unload", content=content)

    assert answer.status_code == 403


async def test_every_answer_carries_the_security_headers(visitor):
    answers = [await visitor.browser.get(path) for path in ("/", "/healthz", "/static/css/tokens.css", "/nowhere")]

    for answer in answers:
        assert "default-src 'self'; script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


async def test_nothing_but_static_files_may_be_kept_by_a_cache(visitor):
    page = await visitor.browser.get("/")
    style = await visitor.browser.get("/static/css/tokens.css")

    assert page.headers["cache-control"] == "no-store"
    assert style.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "/logout",
        "/preferences",
        "/engine/unload",
        "/engine/stop",
        "/engine/restart",
        "/engine/concurrency",
        "/model/engine/stop",
        "/requests/r1/cancel",
        "/clients/1/revoke",
    ],
)
async def test_no_get_changes_anything(console, path):
    answer = await console.browser.get(path)

    assert answer.status_code == 405
    assert console.control.orders == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/now/live",
        "/state",
        "/clients",
        "/quit",
        "/quit/live",
        "/model",
        "/model/load",
        "/model/machine",
        "/nowhere",
    ],
)
async def test_without_a_session_nothing_is_shown(visitor, path):
    answer = await visitor.browser.get(path)

    assert answer.status_code == 401
    assert "splash open" in answer.text
    assert "Qwen" not in answer.text


async def test_without_a_session_no_order_is_taken(visitor):
    answer = await visitor.post("/engine/unload", form_token="guessed")

    assert answer.status_code == 401
    assert visitor.control.orders == []


async def test_a_page_whose_session_ended_is_told_to_load_itself_again(visitor):
    answer = await visitor.browser.get("/now/live", headers={"HX-Request": "true"})

    assert (answer.status_code, answer.headers["hx-refresh"], answer.text) == (401, "true", "")
