"""Text of others that ends up on a page, in a header or in a log: it stays text, on its line, in its place."""

import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from tests.attacks.doors import NAMES, new_session
from tests.attacks.test_foreign_pages import FORM, form_token

SCRIPT = "<script>alert(1)</script>"
HOSTILE = {
    "script": SCRIPT,
    "quotes": "\"'><img src=x onerror=alert(1)>",
    "template": "{{ 7*7 }}{% raw %}${7*7}",
    "backwards": "\u202egnp.exe",
}
PAGES = ("/", "/model", "/clients", "/requests", "/cost", "/performance", "/playground", "/settings", "/logs", "/quit")
CONTENT_SECURITY_POLICY = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}


class Elements(HTMLParser):
    """What a browser would make of a page: tags, and attributes that run or load something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.inline_scripts: list[str] = []
        self.handlers: list[str] = []
        self.addresses: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag, attributes) -> None:
        self._in_script = tag == "script"
        for name, value in attributes:
            if name.startswith(("on", "hx-on")) or name == "style":
                self.handlers.append(f"{tag} {name}={value}")
            if name in ("src", "href", "action", "formaction"):
                self.addresses.append(value or "")

    def handle_data(self, data) -> None:
        if self._in_script and data.strip():
            self.inline_scripts.append(data)

    def handle_endtag(self, tag) -> None:
        self._in_script = False


@pytest.fixture(scope="module")
def named(splash):
    """Keys, aliases and requests with hostile names, and a log that tells of them."""
    with splash.admin() as admin, splash.api() as api:
        aliases = admin.get("/settings/aliases").json()["aliases"]
        for name in HOSTILE.values():
            admin.post("/keys", json={"name": name})
            admin.post("/plan", json={"model": name})
            api.post("/chat/completions", json={"model": name, "messages": [{"role": "user", "content": name}]})
        hostile = [{"name": SCRIPT}, {"name": HOSTILE["quotes"]}]
        admin.put("/settings/aliases", json={"aliases": [*aliases, *hostile]}).raise_for_status()
        made = [key["name"] for key in admin.get("/keys").json()["keys"]]
    with splash.home.log_file("webui").open("a") as log:
        log.writelines(f"2026-12-01 00:00:00,000 WARNING webui.test said {name}\n" for name in HOSTILE.values())
    yield made
    with splash.admin() as admin:
        admin.put("/settings/aliases", json={"aliases": aliases}).raise_for_status()


@pytest.mark.parametrize(
    "path", [*PAGES, "/logs/webui", f"/requests?model={SCRIPT}&key={SCRIPT}", f"/logs?text={SCRIPT}"]
)
def test_hostile_names_are_text_on_every_page(doors, named, path):
    answer = doors["console"].asked(path.replace("<", "%3c").replace(">", "%3e"), has_pass=True)
    page = answer.body.decode()
    elements = Elements(page)

    assert answer.status == 200
    assert elements.inline_scripts == []
    assert elements.handlers == []
    assert [
        each for each in elements.addresses if each.lower().startswith(("javascript:", "http:", "https:", "//"))
    ] == []
    assert SCRIPT not in page
    assert "<img src=x" not in page
    assert "49" not in re.findall(r"said (\S+)", unescape(page))


def test_hostile_names_are_really_shown(doors, named):
    shown = {
        path: unescape(doors["console"].asked(path, has_pass=True).body.decode())
        for path in ("/clients", "/settings", "/logs/webui")
    }

    assert SCRIPT in named
    assert SCRIPT in shown["/clients"]
    assert SCRIPT in shown["/settings"]
    assert SCRIPT in shown["/logs/webui"]


@pytest.mark.parametrize("name", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\x1b[2Jb", "\u202ea", "a\u2028b", ""])
def test_a_key_has_no_name_that_breaks_a_line_or_turns_it_round(splash, name):
    with splash.admin() as admin:
        answer = admin.post("/keys", json={"name": name})

    assert (answer.status_code, answer.json()["code"]) == (400, "key_name_invalid")
    assert answer.text.isprintable()


def test_nobody_writes_a_line_of_his_own_into_a_log(splash, doors):
    forged = "2026-12-01 00:00:00,000 ERROR forged line"
    quoted = forged.replace(" ", "%20")
    for door in doors.values():
        for path in (f"/a%0d%0a{quoted}", f"{door.page}%0a{quoted}", f"/requests/a%0a{quoted}/cancel"):
            for method in ("GET", "POST", "DELETE"):
                door.asked(path, method=method, headers=[f"X-Request-Id: a\t{forged}"], has_pass=True)
    with splash.admin() as admin, splash.api() as api:
        for name in (f"a\n{forged}", f"a\r\n{forged}", f"a\u2028{forged}"):
            admin.post("/engine/load", json={"model": name})
            admin.post("/plan", json={"model": name})
            admin.post("/keys", json={"name": name})
            admin.post("/login-links/redeem", json={"token": name})
            api.post("/chat/completions", json={"model": name, "messages": []})
            api.post("/chat/completions", json={"model": "default", "messages": [], name: 1})

    lines = [
        line for file in (splash.home.root / "logs").iterdir() for line in file.read_text(errors="replace").splitlines()
    ]

    assert [line for line in lines if line.startswith("2026-12-01 00:00:00,000 ERROR")] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_line_break_that_was_sent_becomes_a_header(doors, name):
    door = doors[name]
    paths = [
        "/%0d%0aX-Evil:%201",
        f"{door.page}?a=%0d%0aX-Evil:%201",
        "/logs/control%0d%0aX-Evil:%201/file",
        "//evil.example/%0d%0aX-Evil:1",
    ]

    answers = [door.asked(path, headers=["X-Request-Id: evil"], has_pass=True) for path in paths]

    assert [answer.header("x-evil") for answer in answers] == [None] * len(paths)
    assert all(answer.header("x-request-id") != "evil" for answer in answers)


@pytest.mark.parametrize(
    "here",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "/\t/evil.example",
        "/\r\nX-Evil: 1",
        "javascript:alert(1)",
    ],
)
def test_a_form_leads_to_no_other_site(splash, doors, here):
    door, cookie = doors["console"], new_session(splash)
    body = urlencode({"form_token": form_token(door, cookie), "theme": "dark", "here": here}).encode()

    answer = door.asked("/preferences", method="POST", headers=[FORM, f"Cookie: {cookie}"], body=body)

    assert answer.status == 303
    assert re.match(r"/(?![/\\\t\r\n])", answer.header("location"))
    assert answer.header("x-evil") is None


def test_every_answer_of_the_console_is_guarded(doors):
    door = doors["console"]
    answers = {
        "page": door.asked("/", has_pass=True),
        "fragment": door.asked("/now/live", headers=["HX-Request: true"], has_pass=True),
        "no session": door.asked("/"),
        "static": door.asked("/static/css/tokens.css"),
        "not found": door.asked("/nowhere", has_pass=True),
        "static not found": door.asked("/static/nowhere"),
        "wrong method": door.asked("/quit", method="DELETE", has_pass=True),
        "wrong host": door.asked("/", host="evil.example"),
        "wrong origin": door.asked("/quit", method="POST", headers=["Origin: null"], has_pass=True),
        "download": door.asked("/logs/control/file", has_pass=True),
        "health": door.asked("/healthz"),
        "login": door.asked("/login?token=made-up"),
    }

    for name, answer in answers.items():
        policy = dict(part.split(" ", 1) for part in answer.header("content-security-policy").split("; "))
        assert {key: policy[key] for key in CONTENT_SECURITY_POLICY} == CONTENT_SECURITY_POLICY, name
        assert answer.header("x-content-type-options") == "nosniff", name
        assert answer.header("x-frame-options") == "DENY", name
        assert answer.header("referrer-policy") == "same-origin", name
        assert answer.header("cross-origin-resource-policy") == "same-origin", name
        assert answer.header("cache-control") == ("no-cache" if name.startswith("static") else "no-store"), name
        assert answer.header("server") is None, name


@pytest.mark.parametrize("said", [b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n"])
def test_what_the_console_refuses_before_its_pages_is_guarded_too(doors, said):
    answer = doors["console"].said(said)

    assert answer.status in (400, 431)
    assert answer.header("content-security-policy") == "default-src 'none'; frame-ancestors 'none'"
    assert answer.header("x-content-type-options") == "nosniff"
