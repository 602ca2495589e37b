"""A link or an image can make a browser send a GET: none of them changes anything, but for the one-time login link."""

import asyncio
import re

import pytest

from tests.attacks.doors import NAMES
from tests.attacks.routes import admin_routes, console_routes, engine_routes, public_routes

# What a GET may ask: it shows, and changes nothing. Whoever adds a line has looked at that.
SAFE = {
    "api": {"/", "/healthz", "/v1/models", "/v1/models/{model_id:path}"},
    "engine": {"/healthz", "/status"},
    "admin": {
        *(
            "/healthz",
            "/overview",
            "/models",
            "/machine",
            "/metrics",
            "/installation",
            "/connections",
            "/engine/misses",
        ),
        *("/keys", "/keys/totals", "/cost", "/performance", "/logs/{name}", "/logs/{name}/file"),
        *("/requests", "/requests/choices", "/requests/export", "/requests/{id}"),
        *("/settings/aliases", "/settings/heartbeats", "/settings/prices"),
    },
    "console": {
        *("/", "/state", "/now/live", "/now/hour", "/clients", "/clients/live", "/cost", "/cost/live"),
        *("/logs", "/logs/{name}", "/logs/{name}/live", "/logs/{name}/file", "/settings", "/quit", "/quit/live"),
        *("/model", "/model/list", "/model/live", "/model/load", "/model/load/effect", "/model/load/plan"),
        *("/model/machine", "/performance", "/performance/live", "/playground", "/playground/model"),
        *("/requests", "/requests/export", "/requests/live", "/requests/{request_id}"),
    },
}
# The one exception: a link can do nothing but be followed.
LOGIN = "/login"
READING = frozenset({"GET", "HEAD"})


@pytest.fixture(scope="module")
def routes(tmp_path_factory):
    return {
        "api": public_routes(),
        "admin": asyncio.run(admin_routes(tmp_path_factory.mktemp("routes").resolve() / "home")),
        "console": console_routes(),
        "engine": engine_routes(),
    }


def concrete(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "1", path.replace("{name}", "control"))


def state_of(splash) -> dict:
    """What an order could have changed: settings, keys, the engine and its concurrency, records and secrets on disk."""
    with splash.admin() as admin:
        settings = {
            path: admin.get(path).json() for path in ("/settings/aliases", "/settings/heartbeats", "/settings/prices")
        }
        keys = [(key["name"], key["limits"], key["revoked_at_s"]) for key in admin.get("/keys").json()["keys"]]
    overview = splash.overview()
    files = [*(splash.home.root / "run").glob("*.json"), *(splash.home.root / "secrets").glob("*")]
    return {
        "settings": settings,
        "keys": keys,
        "engine": (overview.engine.state, overview.engine.pid),
        "power": overview.power,
        "files": {file.name: file.read_bytes() for file in files},
        "backups": sorted(file.name for file in splash.home.root.glob("backups/*")),
    }


@pytest.mark.parametrize("name", NAMES)
def test_what_a_get_may_ask_is_what_was_looked_at(routes, name):
    shown = {path for path, methods in routes[name].items() if "GET" in methods}

    assert shown - {LOGIN} == SAFE[name]


@pytest.mark.parametrize("name", NAMES)
def test_what_does_something_cannot_be_got_with_the_pass(routes, doors, name):
    doing = [path for path, methods in routes[name].items() if not methods & READING]
    assert len(doing) > 3

    answers = {
        (method, path): doors[name].asked(concrete(path), method=method, has_pass=True).status
        for path in doing
        for method in READING
    }

    # 404 where the path of a thing by its name fits, too, as /requests/{request_id} does.
    assert {asked: status for asked, status in answers.items() if status not in (404, 405)} == {}
    assert list(answers.values()).count(405) > len(answers) - 4


@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_asked_by_get_leaves_everything_as_it_was(splash, routes, doors, name):
    before = state_of(splash)

    statuses = {
        path: doors[name]
        .asked(f"{concrete(path)}?force=true&_method=DELETE", headers=["X-HTTP-Method-Override: DELETE"], has_pass=True)
        .status
        for path in SAFE[name]
    }

    assert None not in statuses.values()
    assert 500 not in statuses.values()
    assert state_of(splash) == before


def test_a_login_link_is_used_by_its_get_and_by_no_preview(splash, doors):
    console = doors["console"]
    with splash.admin() as admin:
        token = admin.post("/login-links", json={"valid_s": 30}).json()["token"]
    link = f"{LOGIN}?token={token}"

    previews = [
        console.asked(link, method="HEAD"),
        console.asked(link, headers=["Sec-Purpose: prefetch"]),
        console.asked(link, headers=["Purpose: prefetch"]),
    ]
    first, second = console.asked(link), console.asked(link)

    assert [answer.header("set-cookie") for answer in previews] == [None, None, None]
    assert (first.status, second.status) == (303, 403)
    assert first.header("set-cookie") is not None
    assert second.header("set-cookie") is None
