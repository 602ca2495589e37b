"""Secrets and what people say: in no command line, no environment and no log; and files for their owner alone."""

import json
import re
import stat

import psutil
import pytest

from tests.attacks.doors import new_session
from tests.attacks.test_foreign_pages import FORM, form_token

PROMPT = "zebra-prompt-nobody-logs"
# The scripted engine echoes it, so it is an answer, too.
SPOKEN = "heron-spoken-nobody-logs"
WRONG = "sk-splash-wrong-key-nobody-logs"
BROKEN_BODY = "otter-broken-body-nobody-logs"


@pytest.fixture(scope="module")
def used(splash, doors):
    """A session of many kinds of requests, good and bad, at every door; what must not be written down."""
    message = {"role": "user", "content": f"{PROMPT} {SPOKEN}"}
    cookie = new_session(splash)
    with splash.api() as api, splash.admin() as admin:
        for body in (
            {"model": "default", "messages": [message]},
            {"model": "default", "messages": [message], "stream": True},
            {"model": f"{PROMPT} {SPOKEN}", "messages": [message]},
            {"model": "default", "messages": [{"role": "user", "content": [{"type": f"{PROMPT} {SPOKEN}"}]}]},
            {"model": "default", "messages": [message], "temperature": PROMPT},
        ):
            api.post("/chat/completions", json=body)
        api.post("/completions", json={"model": "default", "prompt": PROMPT})
        api.post("/responses", json={"model": "default", "input": PROMPT})
        api.post("/messages", json={"model": "default", "max_tokens": 5, "messages": [message]})
        api.post("/messages/count_tokens", json={"model": "default", "messages": [message]})
        api.post(
            "/chat/completions", content=f'{{"model": "{BROKEN_BODY}', headers={"Content-Type": "application/json"}
        )
        link = admin.post("/login-links", json={"valid_s": 30}).json()["token"]
        made = admin.post("/keys", json={"name": "of the attack"}).json()
        admin.post("/playground", json={"messages": [message]})
        admin.post("/keys", content=BROKEN_BODY, headers={"Content-Type": "application/json"})
    for door in doors.values():
        door.asked(headers=[f"Authorization: Bearer {WRONG}", f"x-api-key: {WRONG}", f"Cookie: a={WRONG}"])
        door.asked(f"{door.page}?key={WRONG}&token={WRONG}")
        door.asked(
            door.order,
            method="POST",
            headers=["Content-Type: application/json"],
            body=BROKEN_BODY.encode(),
            has_pass=True,
        )
        door.said(b"\x16\x03\x01" + WRONG.encode())
        door.said(f"GET /{WRONG} {WRONG}\r\n\r\n".encode())
    doors["console"].asked(f"/login?token={link}")
    doors["console"].asked(f"/login?token={WRONG}")
    token = form_token(doors["console"], cookie)
    body = f"form_token={token}&name={BROKEN_BODY}".encode()
    doors["console"].asked("/clients/1/revoke-not", method="POST", headers=[FORM, f"Cookie: {cookie}"], body=body)
    launch = splash.home.read_launch()
    return {
        "engine secret": launch.secret,
        "admin secret": splash.home.admin_secret(),
        "first key": splash.key,
        "new key": made["key"],
        "login link": link,
        "session": cookie.partition("=")[2],
        "form token": token,
        "session key": (splash.home.root / "secrets" / "console").read_text().strip(),
        **{each: each for each in (PROMPT, SPOKEN, WRONG, BROKEN_BODY)},
    }


def processes(splash) -> list[psutil.Process]:
    ours = [psutil.Process(splash.record(name).pid) for name in ("control", "engine", "webui")]
    return [*ours, *(child for each in ours for child in each.children(recursive=True))]


def test_no_secret_is_in_a_command_line_or_an_environment(splash, used):
    for process in processes(splash):
        said = " ".join(process.cmdline()) + json.dumps(process.environ())
        assert {name for name, secret in used.items() if secret in said} == set(), process.name()


def test_no_secret_and_nothing_that_was_said_is_in_a_log(splash, used):
    logs = "".join(file.read_text(errors="replace") for file in (splash.home.root / "logs").iterdir())

    assert "request completed id=" in logs
    assert {name for name, secret in used.items() if secret in logs} == set()


def test_the_database_holds_no_key_and_nothing_that_was_said(splash, used):
    stored = b"".join(file.read_bytes() for file in splash.home.root.glob("splash*") if file.is_file())

    assert b"of the attack" in stored
    assert {name for name, secret in used.items() if secret.encode() in stored} == set()


def test_no_answer_of_the_admin_api_or_page_shows_a_secret_that_was_made_before(splash, doors, used):
    with splash.admin() as admin:
        shown = "".join(
            admin.get(path).text
            for path in (
                "/keys",
                "/overview",
                "/installation",
                "/connections",
                "/logs/control",
                "/requests",
                "/metrics",
            )
        )
    for path in ("/clients", "/settings", "/logs", "/requests", "/model", "/"):
        shown += doors["console"].asked(path, has_pass=True).body.decode()

    of_this_page = {"form token", "session"}
    assert {name for name, secret in used.items() if secret in shown} - of_this_page == set()


def test_files_are_their_owners_alone(splash, used):
    with splash.admin() as admin:
        admin.post("/database/backup", json={}).raise_for_status()

    modes = {
        str(each.relative_to(splash.home.root)): stat.S_IMODE(each.lstat().st_mode)
        for each in [splash.home.root, *splash.home.root.rglob("*")]
        if not each.is_symlink()
    }

    folders = {name for name in modes if (splash.home.root / name).is_dir()}
    assert {name: oct(modes[name]) for name in folders if modes[name] != 0o700} == {}
    assert {name: oct(mode) for name, mode in modes.items() if name not in folders and mode & 0o077} == {}
    assert {"splash.db", "splash.db-wal", "splash.db-shm", "secrets/admin", "secrets/engine.json"} <= set(modes)
    assert any(re.match("backups/", name) for name in modes)


def test_health_says_who_it_is_and_nothing_else(doors):
    bodies = {name: json.loads(door.asked("/healthz").body) for name, door in doors.items()}

    assert bodies["api"] == {"status": "ok"}
    for name in ("admin", "console", "engine"):
        assert set(bodies[name]) <= {"name", "pid", "nonce", "state", "error", "wire_version"}, name
