"""DNS rebinding: a page elsewhere whose name leads to this machine. A door answers to its own loopback names only."""

import pytest

EVIL_HOSTS = [
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "evil.example.127.0.0.1:{port}",
    "localhost.evil.example:{port}",
    "evil-localhost:{port}",
    "evil.example@127.0.0.1:{port}",
    "127.0.0.1:{port}@evil.example",
    "127.0.0.1:{port}.evil.example",
    "127.0.0.1:{port}/evil.example",
    "127.0.0.1:{other_port}",
    "127.0.0.1",
    "localhost",
    "0.0.0.0:{port}",
    "[::ffff:127.0.0.1]:{port}",
    "2130706433:{port}",
    "127.0.0.1:{port}, evil.example",
    "127.0.0.1:0{port}",
]
REFUSALS = (400, 403)


@pytest.mark.parametrize("host", EVIL_HOSTS)
def test_a_host_that_is_not_this_door_is_refused_even_with_the_pass(door, host):
    sent = host.format(port=door.port, other_port=door.port + 1)

    answer = door.asked(host=sent, has_pass=True)
    health = door.asked("/healthz", host=sent)

    assert answer.status in REFUSALS
    assert health.status in REFUSALS
    assert b"nonce" not in health.body


def test_its_own_names_are_served(door):
    answers = [
        door.asked(host=f"{name}:{door.port}", has_pass=True) for name in ("127.0.0.1", "localhost", "LocalHost")
    ]

    assert [answer.status for answer in answers] == [200, 200, 200]


def test_a_forwarded_host_neither_opens_nor_closes_a_door(door):
    believed = [f"{name}: {door.host}" for name in ("X-Forwarded-Host", "X-Host", "X-Original-Host")]
    lies = ["X-Forwarded-Host: evil.example", "Forwarded: host=evil.example", "X-Forwarded-For: 10.0.0.1"]

    assert door.asked(host="evil.example", headers=believed, has_pass=True).status in REFUSALS
    assert door.asked(headers=lies, has_pass=True).status == 200


@pytest.mark.parametrize("hosts", [(), ("evil.example", None), (None, "evil.example"), (None, None)])
def test_no_host_and_two_hosts_are_refused(door, hosts):
    lines = [f"Host: {host or door.host}" for host in hosts]
    request = "\r\n".join([f"GET {door.page} HTTP/1.1", *lines, *door.pass_headers, "", ""]).encode()

    assert door.said(request).status in REFUSALS


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_absolute_address_of_another_host_is_refused_although_the_host_header_is_right(door, version):
    def asked(address: str) -> int | None:
        lines = [f"GET {address} HTTP/{version}", f"Host: {door.host}", *door.pass_headers, "", ""]
        return door.said("\r\n".join(lines).encode()).status

    assert asked(f"http://evil.example{door.page}") in REFUSALS
    assert asked(f"http://{door.host}.evil.example{door.page}") in REFUSALS
    assert asked(f"http://evil.example@{door.host}{door.page}") in REFUSALS
    assert asked(f"https://{door.host}{door.page}") in REFUSALS
    assert asked(f"http://{door.host}{door.page}") == 200


def test_nobody_is_led_on_to_another_server(door):
    lines = ["CONNECT evil.example:443 HTTP/1.1", f"Host: {door.host}", *door.pass_headers, "", ""]

    assert door.said("\r\n".join(lines).encode()).status in (400, 403, 405)
