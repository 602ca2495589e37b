"""Under which names the public API and the console answer other machines: exactly their own, and only in LAN mode."""

import httpx
import pytest

from control.gate import Gate, loopback_hosts
from control.lan import LanHosts as ApiHosts
from control.lan import lan_urls, machine_label
from webui.lan import LanHosts as ConsoleHosts

PORT = 8888


class NoKeys:
    def verify(self, token):
        return None


async def serve_ok(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def status_of(lan, headers, server=("192.168.1.7", PORT)) -> int:
    """What the gate answers to these headers at an open path, on a connection to `server`."""
    app = Gate(serve_ok, keys=NoKeys(), hosts=loopback_hosts(PORT), lan=lan)

    async def connected(scope, receive, send):
        await app(scope | {"server": server}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(connected), base_url="http://127.0.0.1") as client:
        return (await client.get("/healthz", headers=headers)).status_code


@pytest.fixture(params=[ApiHosts, ConsoleHosts])
def hosts(request):
    """Both processes' own: they may not share code, and must agree."""
    return lambda name="Mac-Studio.fritz.box": request.param(PORT, hostname=lambda: name)


@pytest.mark.parametrize("host", ["mac-studio.local:8888", "mac-studio:8888", "192.168.1.7:8888"])
def test_the_name_in_the_network_and_the_address_of_the_connection_are_served(hosts, host):
    assert hosts().allows(host, ("192.168.1.7", PORT))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "mac-studio.local",
        "mac-studio",
        "mac-studio.local:80",
        "mac-studio.local:88880",
        "mac-studio.local.:8888",
        "mac-studio.local.evil.example:8888",
        "mac-studio.fritz.box:8888",
        "evil-mac-studio.local:8888",
        "192.168.1.7",
        "192.168.1.70:8888",
        "192.168.1.8:8888",
        "192.168.1.7.evil.example:8888",
        "3232235783:8888",
        "[::ffff:192.168.1.7]:8888",
        "evil.example:8888",
        ".local:8888",
        ":8888",
    ],
)
def test_anything_else_is_not(hosts, host):
    assert not hosts().allows(host, ("192.168.1.7", PORT))


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("fd00::2", "[fd00::2]:8888"),
        ("fe80::1%en0", "[fe80::1]:8888"),
        # An IPv4 client of a socket for both.
        ("::ffff:192.168.1.7", "192.168.1.7:8888"),
    ],
)
def test_an_ipv6_address_stands_in_brackets_and_a_mapped_one_is_the_ipv4_one(hosts, server, host):
    assert hosts().allows(host, (server, PORT))
    assert not hosts().allows(f"{server}:8888", (server, PORT))


@pytest.mark.parametrize("connected_to", [None, ("", None), ("/run/socket", None)])
def test_without_an_address_of_the_connection_only_the_name_counts(hosts, connected_to):
    assert hosts().allows("mac-studio.local:8888", connected_to)
    assert not hosts().allows(":8888", connected_to)
    assert not hosts().allows("192.168.1.7:8888", connected_to)


def test_a_machine_that_is_renamed_answers_to_its_new_name_at_once(hosts):
    names = iter(("old", "new"))
    renamed = type(hosts())(PORT, hostname=lambda: next(names))

    assert renamed.allows("old.local:8888", None)
    assert renamed.allows("new.local:8888", None)


@pytest.mark.parametrize("name", ["", "..", "-x", "a_b", "名前", "a" * 64, "localhost"])
def test_a_name_that_no_host_can_have_is_none(hosts, name):
    assert machine_label(lambda: name) is None
    assert not hosts(name).allows(f"{name.lower()}.local:8888", None)


@pytest.mark.parametrize("host", ["mac-studio.local:8888", "MAC-STUDIO.LOCAL:8888", "192.168.1.7:8888"])
async def test_the_gate_lets_other_machines_in_only_in_lan_mode(host):
    lan = ApiHosts(PORT, hostname=lambda: "mac-studio")

    assert await status_of(None, {"Host": host}) == 403
    assert await status_of(lan, {"Host": host}) == 200


async def test_the_gate_believes_no_forwarding_header_and_no_second_host():
    lan = ApiHosts(PORT, hostname=lambda: "mac-studio")
    good = "mac-studio.local:8888"

    forwarded = {"Host": "evil.example:8888", "X-Forwarded-Host": good, "Forwarded": f"host={good}", "X-Host": good}
    twice = [("Host", good), ("Host", good)]

    assert await status_of(lan, forwarded) == 403
    assert await status_of(lan, twice) == 403


async def test_a_page_rebound_to_another_address_is_refused():
    lan = ApiHosts(PORT, hostname=lambda: "mac-studio")

    assert await status_of(lan, {"Host": "192.168.1.7:8888"}, server=("127.0.0.1", PORT)) == 403


def test_what_is_printed_begins_with_the_name(monkeypatch):
    monkeypatch.setattr("control.lan.machine_label", lambda: "mac-studio")

    first, *addresses = lan_urls(PORT)

    assert first == "http://mac-studio.local:8888"
    assert all(address.endswith(":8888") and "127.0.0.1" not in address for address in addresses)
