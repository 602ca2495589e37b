"""Names that lead out of the place where they belong: static files, logs, backups, exports, models."""

import subprocess
import sys

import pytest

from tests.attacks.doors import Door

STATIC = [
    "/static/../../pyproject.toml",
    "/static/../app.py",
    "/static/..%2f..%2fpyproject.toml",
    "/static/%2e%2e/%2e%2e/pyproject.toml",
    "/static/%2e%2e%2f%2e%2e%2fpyproject.toml",
    "/static/%252e%252e/%252e%252e/pyproject.toml",
    "/static/..\\..\\pyproject.toml",
    "/static/..%5c..%5cpyproject.toml",
    "/static/....//....//pyproject.toml",
    "/static/..;/..;/pyproject.toml",
    "/static//etc/passwd",
    "/static/%2fetc/passwd",
    "/static/css/tokens.css%00.html",
    "/static/%00",
    "/static/%c0%ae%c0%ae/%c0%ae%c0%ae/pyproject.toml",
    "/static/%ff%fe",
    "/static/" + "a" * 5_000,
    "/static/../healthz",
    "/static/../settings",
    "/static/",
    "/static",
]
OUT = ["..", "../control", "%2e%2e%2fcontrol", "control%00", "control.log", "/etc/passwd", "..%5ccontrol", "control%0a"]


def planned(home, model) -> subprocess.CompletedProcess[str]:
    """What the real engine says to that model, before it would load anything."""
    return subprocess.run(
        [sys.executable, "-m", "engine", "plan", "--home", str(home), "--model", model, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("path", STATIC)
@pytest.mark.parametrize("has_session", [True, False])
def test_only_static_files_are_served_as_static_files(doors, path, has_session):
    answer = doors["console"].asked(path, has_pass=has_session)

    assert answer.status in (303, 307, 400, 401, 404)
    for secret in (b"[project]", b"import ", b"root:", b"nonce", b"form_token"):
        assert secret not in answer.body or answer.status == 404


def test_a_static_file_is_served_without_a_session(doors):
    answer = doors["console"].asked("/static/css/tokens.css")

    assert (answer.status, answer.header("content-type")) == (200, "text/css; charset=utf-8")


@pytest.mark.parametrize("name", OUT)
def test_a_log_is_one_of_three_names(doors, name):
    paths = [f"/logs/{name}", f"/logs/{name}/file", f"/logs/{name}/live"]

    by_admin = [doors["admin"].asked(path, has_pass=True).status for path in paths]
    by_console = [doors["console"].asked(path, has_pass=True).status for path in paths]

    assert set(by_admin) <= {400, 404}
    assert set(by_console) <= {400, 404}


@pytest.mark.parametrize(
    "name", ["../evil.db", "/tmp/evil.db", "..", ".hidden", "a/b.db", "a\0.db", "a\n.db", "", "a" * 200]
)
def test_a_backup_stays_in_its_folder(splash, name):
    before = sorted(splash.home.root.rglob("*.db"))

    with splash.admin() as admin:
        answer = admin.post("/database/backup", json={"name": name})

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert sorted(splash.home.root.rglob("*.db")) == before


@pytest.mark.parametrize("door_name", ["admin", "console"])
def test_the_name_of_an_exported_file_is_ours_whatever_is_asked(doors, door_name):
    door: Door = doors[door_name]
    answer = door.asked(
        "/requests/export?format=csv&key=..%2f..%2fevil%0d%0aX-Evil:+1&model=%22;filename=evil", has_pass=True
    )

    assert answer.header("x-evil") is None
    disposition = answer.header("content-disposition") or ""
    assert "evil" not in disposition
    assert ".." not in disposition


@pytest.mark.parametrize("model", ["../../etc", "/etc", "~/../../etc", "/etc/passwd", "./no/such", "org/../../etc"])
def test_a_folder_that_is_no_model_is_refused_with_a_sentence_by_the_real_engine(tmp_path, model):
    (tmp_path / "home").mkdir()

    done = planned(tmp_path / "home", model)

    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].endswith(".")


@pytest.mark.parametrize("model", ["a\0b", "a\nb", "a\r\nb", "a\u2028b", "a\x1b[2Jb"])
def test_a_name_with_control_characters_is_no_model(splash, model):
    engine = splash.overview().engine.pid

    with splash.admin() as admin:
        answer = admin.post("/engine/load", json={"model": model})

    assert answer.status_code == 400
    assert splash.overview().engine.pid == engine


@pytest.mark.parametrize("model", ["../../etc/passwd", "/etc", "splash-demo/../../etc", "a\0b"])
def test_a_key_can_name_a_model_but_never_a_file(splash, model):
    engine = splash.overview().engine.pid

    with splash.api() as api:
        asked = api.post("/chat/completions", json={"model": model, "messages": [{"role": "user", "content": "hi"}]})
        shown = api.get(f"/models/{model.replace(chr(0), '%00')}")

    assert (asked.status_code, shown.status_code) == (404, 404)
    assert splash.overview().engine.pid == engine


def test_a_link_to_a_folder_that_is_no_model_is_followed_and_refused_for_what_it_is(tmp_path):
    (tmp_path / "home" / "models").mkdir(parents=True)
    (tmp_path / "home" / "models" / "innocent").symlink_to("/etc")

    done = planned(tmp_path / "home", "innocent")

    assert done.returncode == 4
    assert done.stderr.strip().splitlines()[-1].endswith(".")
