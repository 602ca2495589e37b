"""A page elsewhere, or on another port of this machine, makes the person's browser ask us for something.

The console's cookie comes along with such a request at worst, so Origin and fetch metadata decide there. The other
three doors need a header that no browser sends elsewhere without asking first (CORS), and none of them ever agrees.
"""

import json
import re
from urllib.parse import urlencode

import pytest

from tests.attacks.doors import NAMES, new_session

FORM = "Content-Type: application/x-www-form-urlencoded"
FOREIGN = [
    "Origin: http://evil.example",
    "Origin: null",
    "Origin: http://{host}.evil.example",
    "Origin: http://{host}@evil.example",
    "Origin: http://evil.example#http://{host}",
    "Origin: http://127.0.0.1:{other_port}",
    "Origin: http://localhost:{port}",
    "Origin: https://{host}",
    "Origin: http://127.0.0.1",
    "Origin: {host}",
    "Origin:",
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: same-site",
]
SENT_WITHOUT_ASKING = [
    "text/plain",
    "text/plain; charset=utf-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
]
ASKED_FIRST = ["OPTIONS", "POST", "GET"]


def form_token(door, cookie: str) -> str:
    page = door.asked("/settings", headers=[f"Cookie: {cookie}"])
    return re.search(rb'name="form_token" value="([^"]+)"', page.body)[1].decode()


def theme_sent(door, cookie: str, *headers: str):
    body = urlencode({"form_token": form_token(door, cookie), "theme": "dark"}).encode()
    return door.asked("/preferences", method="POST", headers=[FORM, f"Cookie: {cookie}", *headers], body=body)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_form_from_another_page_is_refused_although_cookie_and_token_are_right(splash, doors, foreign):
    door = doors["console"]
    said = foreign.format(host=door.host, port=door.port, other_port=door.port + 1)

    answer = theme_sent(door, new_session(splash), said)

    assert answer.status == 403
    assert answer.header("set-cookie") is None


def test_the_same_form_from_our_own_page_is_taken(splash, doors):
    door = doors["console"]

    answer = theme_sent(door, new_session(splash), f"Origin: http://{door.host}", "Sec-Fetch-Site: same-origin")

    assert answer.status == 303
    assert "dark" in answer.header("set-cookie")


def test_the_token_of_another_session_is_refused(splash, doors):
    door = doors["console"]
    other, own = new_session(splash), new_session(splash)
    body = urlencode({"form_token": form_token(door, other), "theme": "dark"}).encode()

    answer = door.asked("/preferences", method="POST", headers=[FORM, f"Cookie: {own}"], body=body)

    assert answer.status == 403


def test_the_sessions_cookie_goes_to_no_script_and_with_no_foreign_request(splash, doors):
    with splash.admin() as admin:
        token = admin.post("/login-links", json={"valid_s": 30}).json()["token"]

    cookie = doors["console"].asked(f"/login?token={token}").header("set-cookie")

    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert str(doors["console"].port) in cookie.partition("=")[0]


@pytest.mark.parametrize("media_type", SENT_WITHOUT_ASKING)
@pytest.mark.parametrize("name", ["api", "admin", "engine"])
def test_json_that_a_browser_sends_without_asking_does_nothing_without_the_pass(doors, name, media_type):
    door = doors[name]
    headers = [f"Content-Type: {media_type}", f"Origin: http://127.0.0.1:{door.port}", *doors["console"].pass_headers]

    answer = door.asked(door.order, method="POST", headers=headers, body=b'{"valid_s": 30}')

    assert answer.status == 401


@pytest.mark.parametrize("media_type", [*SENT_WITHOUT_ASKING, None])
def test_an_order_to_control_that_is_not_called_json_is_refused_even_with_the_secret(splash, doors, media_type):
    headers = [] if media_type is None else [f"Content-Type: {media_type}"]
    body = json.dumps({"name": f"by {media_type}"}).encode()

    answer = doors["admin"].asked("/keys", method="POST", headers=headers, body=body, has_pass=True)

    assert answer.status == 415
    with splash.admin() as admin:
        assert f"by {media_type}" not in [key["name"] for key in admin.get("/keys").json()["keys"]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ASKED_FIRST)
@pytest.mark.parametrize("has_pass", [True, False])
def test_no_door_ever_agrees_to_a_question_from_another_origin(doors, name, method, has_pass):
    door = doors[name]
    asking = [
        "Origin: http://evil.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization, content-type, x-api-key",
        "Access-Control-Request-Private-Network: true",
    ]

    answers = [
        door.asked(path, method=method, headers=asking, has_pass=has_pass)
        for path in (door.page, door.order, "/healthz")
    ]

    assert all(b"access-control" not in answer.head.lower() for answer in answers)
    assert all(answer.status is not None for answer in answers)
    assert method != "OPTIONS" or all(answer.status in (401, 403, 405) for answer in answers)
