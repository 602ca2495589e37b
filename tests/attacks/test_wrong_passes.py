"""Each door has a pass of its own: none opens another, and none that is forged, cut, old or ended opens any."""

import secrets
import time
from http.cookies import SimpleCookie

import pytest
from itsdangerous import TimestampSigner, URLSafeTimedSerializer

from tests.attacks.doors import NAMES, Door, first_answer, new_session
from tests.attacks.test_foreign_pages import FORM, form_token
from tests.story.stack import Stack, fake_engine, wait_until

JSON = "Content-Type: application/json"
UPLOAD_BYTES = 32 * 2**20
SESSION_S = 30 * 24 * 3600


@pytest.fixture
def passes(splash, doors):
    """What each door's own client holds, without any wrapping."""
    launch = splash.home.read_launch()
    return {
        "api": splash.key,
        "admin": splash.home.admin_secret(),
        "console": doors["console"].pass_headers[0].partition("=")[2],
        "engine": launch.secret,
        "nonce": launch.nonce,
    }


def ways_to_send(token: str, port: int) -> list[str]:
    return [
        f"Authorization: Bearer {token}",
        f"authorization: bearer {token}",
        f"Authorization: Basic {token}",
        f"Authorization: {token}",
        f"x-api-key: {token}",
        f"Cookie: splash-session-{port}={token}",
    ]


@pytest.mark.parametrize(("name", "other"), [(a, b) for a in NAMES for b in (*NAMES, "nonce") if a != b])
def test_the_pass_of_one_door_opens_no_other(doors, passes, name, other):
    door = doors[name]

    answers = [
        door.asked(path, method=method, headers=[way, JSON], body=b"{}" if method == "POST" else b"")
        for way in ways_to_send(passes[other], door.port)
        for method, path in (("GET", door.page), ("POST", door.order))
    ]

    assert {answer.status for answer in answers} == {401}


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_in_the_address_or_the_body_opens_nothing(doors, passes, name):
    door, token = doors[name], passes[name]
    names = ("key", "api_key", "api-key", "token", "access_token", "secret", "Authorization", "x-api-key")
    query = "&".join(f"{each}={token}" for each in names)

    by_query = door.asked(f"{door.page}?{query}")
    by_body = door.asked(door.order, method="POST", headers=[FORM], body=query.encode())

    assert (by_query.status, by_body.status) == (401, 401)


@pytest.mark.parametrize("name", ["api", "admin", "engine"])
def test_a_pass_that_is_almost_right_is_refused_and_breaks_nothing(doors, passes, name):
    door, token = doors[name], passes[name]
    almost = [
        *("", " ", token[:-1], token + "a", token[:-1] + ("a" if token[-1] != "a" else "b"), token.swapcase()),
        *(f"{token},{token}", f'"{token}"', "é" * 43, "\x80\xff", token + "é", "a" * 60_000, "*", "null", "undefined"),
    ]

    statuses = {each[:50]: door.asked(headers=[f"Authorization: Bearer {each}"]).status for each in almost}

    assert {each: status for each, status in statuses.items() if status not in (401, 400)} == {}


def test_two_secrets_of_which_one_is_right_are_none(doors):
    for name in ("admin", "engine"):
        for headers in (["Authorization: Bearer wrong"], list(doors[name].pass_headers)):
            assert doors[name].asked(headers=headers, has_pass=True).status == 401


def test_a_refusal_names_the_scheme(doors):
    for name in ("api", "admin", "engine"):
        assert doors[name].asked().header("www-authenticate") == "Bearer"


@pytest.mark.parametrize("name", NAMES)
def test_who_has_no_pass_is_refused_before_the_body_is_read(doors, name):
    door = doors[name]
    head = door.request(door.order, method="POST", headers=[JSON]).replace(
        b"Content-Length: 0", b"Content-Length: %d" % UPLOAD_BYTES
    )

    with door.connected() as client:
        client.sendall(head)
        answer = first_answer(client)

    assert answer.status == 401


def test_a_cookie_that_is_forged_cut_or_of_another_home_is_no_session(splash, doors):
    door = doors["console"]
    name, _, value = new_session(splash).partition("=")
    content, stamp, signature = value.split(".")
    other_home = URLSafeTimedSerializer(secrets.token_bytes(32), salt=f"session {door.port}").dumps("a" * 32)
    other_salt = URLSafeTimedSerializer(session_key(splash), salt=f"notice {door.port}").dumps("a" * 32)
    forged = [
        *("", "a", "..", f"{content}.{stamp}.", f"{content}.{stamp}", f"{content}.{stamp}.{signature[:-2]}"),
        *(f"{content[:-2]}.{stamp}.{signature}", f"{content}.zzzzzz.{signature}", f"{stamp}.{content}.{signature}"),
        *(other_home, other_salt, value + "a", value * 50, "é" * 40, "%00" * 10),
    ]

    statuses = {each[:50]: door.asked(headers=[f"Cookie: {name}={each}"]).status for each in forged}

    assert set(statuses.values()) == {401}
    assert door.asked(headers=[f"Cookie: {name}={value}"]).status == 200


def test_a_session_ends_after_thirty_days(splash, doors):
    class Earlier(TimestampSigner):
        def get_timestamp(self) -> int:
            return int(time.time()) - SESSION_S - 60

    def cookie(signer: type[TimestampSigner]) -> str:
        serializer = URLSafeTimedSerializer(session_key(splash), salt=f"session {door.port}", signer=signer)
        return f"Cookie: splash-session-{door.port}={serializer.dumps('a' * 32)}"

    door = doors["console"]

    assert door.asked(headers=[cookie(TimestampSigner)]).status == 200
    assert door.asked(headers=[cookie(Earlier)]).status == 401


def test_who_logged_out_is_out_in_every_copy_of_the_cookie(splash, doors):
    door, cookie = doors["console"], new_session(splash)
    body = f"form_token={form_token(door, cookie)}".encode()

    answer = door.asked("/logout", method="POST", headers=[FORM, f"Cookie: {cookie}"], body=body)

    assert answer.status == 303
    assert next(iter(SimpleCookie(answer.header("set-cookie")).values())).value == ""
    assert door.asked(headers=[f"Cookie: {cookie}"]).status == 401


def test_a_login_link_that_is_over_or_made_up_opens_nothing(splash, doors):
    with splash.admin() as admin:
        link = admin.post("/login-links", json={"valid_s": 0.05}).json()
        wait_until(lambda: time.time() > link["expires_at_s"] + 0.05, "the link to be over")

    answers = [
        doors["console"].asked(f"/login?token={token}") for token in (link["token"], "made-up", "%00", "%ff", "%c3%a9")
    ]

    assert [answer.status for answer in answers] == [403] * 5
    assert [answer.header("set-cookie") for answer in answers] == [None] * 5


def test_a_revoked_key_is_refused_at_once(splash, doors):
    with splash.admin() as admin:
        made = admin.post("/keys", json={"name": "to be revoked"}).json()
        before = doors["api"].asked(headers=[f"x-api-key: {made['key']}"])
        admin.delete(f"/keys/{made['view']['id']}").raise_for_status()
        after = doors["api"].asked(headers=[f"x-api-key: {made['key']}"])

    assert (before.status, after.status) == (200, 401)


def test_the_secret_of_an_earlier_start_opens_no_later_engine_and_no_later_control(tmp_path):
    stack = Stack(tmp_path / "home", engine_command=fake_engine())
    try:
        stack.up()
        earlier = stack.home.read_launch().secret
        stack.splash("restart", "engine")
        later = wait_until(
            lambda: stack.home.read_launch().secret != earlier and stack.home.read_launch(), "a new launch"
        )
        wait_until(lambda: stack.engine_state() == "ready", "the model to be ready")
        statuses = [engine_status(stack, secret) for secret in (earlier, later.secret)]
        earlier_admin, cookie = stack.home.admin_secret(), new_session(stack)
        stack.splash("restart", "control")
        admin_statuses = [admin_status(stack, secret) for secret in (earlier_admin, stack.home.admin_secret())]
        console = Door("console", stack.ports["console"], "/model", "/", (f"Cookie: {cookie}",))
        shown = console.asked(has_pass=True)
    finally:
        stack.clean_up()

    assert (statuses, admin_statuses) == ([401, 200], [401, 200])
    assert (shown.status, b"gateway not answering" in shown.body) == (200, False), "the console reads the new one"


def session_key(splash) -> bytes:
    return (splash.home.root / "secrets" / "console").read_bytes()


def admin_status(stack: Stack, secret: str) -> int | None:
    return (
        Door("admin", stack.ports["admin"], "/overview", "/", (f"Authorization: Bearer {secret}",))
        .asked(has_pass=True)
        .status
    )


def engine_status(stack: Stack, secret: str) -> int | None:
    engine = Door("engine", stack.ports["engine"], "/status", "/count", (f"Authorization: Bearer {secret}",))
    return engine.asked(has_pass=True).status
