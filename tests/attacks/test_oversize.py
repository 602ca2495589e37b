"""Too much: bodies announced or in chunks, packed bombs, and headers without end. Refused before it costs memory."""

import socket
import zlib
from functools import cache

import psutil
import pytest

from tests.attacks.doors import Answer, first_answer

MIB = 2**20
# More than any door takes: the engine's, for a long context with images, is the largest.
TOO_LARGE_BYTES = 65 * MIB
HEAD_LIMIT_BYTES = 64 * 1024
JSON = "Content-Type: application/json"
TOLERATED_GROWTH_BYTES = 48 * MIB


def pushed(client: socket.socket, piece: bytes, times: int) -> Answer:
    """Send it until the other side has had enough; its answer."""
    try:
        for _ in range(times):
            client.sendall(piece)
    except OSError:
        pass
    return first_answer(client)


def owner_of(splash, door) -> psutil.Process:
    name = {"api": "control", "admin": "control", "console": "webui", "engine": "engine"}[door.name]
    return psutil.Process(splash.record(name).pid)


@pytest.mark.parametrize("has_pass", [True, False])
def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(door, has_pass):
    passes = door.pass_headers if has_pass else ()
    head = [f"POST {door.order} HTTP/1.1", f"Host: {door.host}", JSON, *passes, f"Content-Length: {TOO_LARGE_BYTES}"]

    with door.connected() as client:
        client.sendall("\r\n".join([*head, "", ""]).encode() + b"{")
        if has_pass and door.name in ("admin", "console"):
            # Small limits are counted: nothing is kept beyond them.
            client.sendall(b" " * 70_000)
        answer = first_answer(client)

    assert answer.status in ((413, 403) if has_pass else (401,))


@pytest.mark.parametrize("has_pass", [True, False])
def test_a_body_in_chunks_without_end_is_refused_and_not_kept(splash, door, has_pass):
    owner = owner_of(splash, door)
    passes = door.pass_headers if has_pass else ()
    head = [f"POST {door.order} HTTP/1.1", f"Host: {door.host}", JSON, *passes, "Transfer-Encoding: chunked"]
    chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
    before_bytes = owner.memory_info().rss

    with door.connected() as client:
        client.sendall("\r\n".join([*head, "", ""]).encode())
        answer = pushed(client, chunk, TOO_LARGE_BYTES // MIB + 1)
    grown_bytes = owner.memory_info().rss - before_bytes

    assert answer.status in ((None, 413, 403) if has_pass else (None, 401))
    limit_bytes = {"api": 32 * MIB, "engine": 64 * MIB}.get(door.name, 0) if has_pass else 0
    # What the door may keep, once as pieces and once as a whole.
    assert grown_bytes < 2 * limit_bytes + TOLERATED_GROWTH_BYTES
    assert door.asked("/healthz").status == 200


@cache
def bomb(encoding: str) -> bytes:
    """256 MiB of zeros, packed to about one."""
    packer = zlib.compressobj(1, wbits=31 if encoding == "gzip" else zlib.MAX_WBITS)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(256)), packer.flush()])


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_bomb_is_refused_without_being_unpacked(splash, door, encoding):
    headers = [JSON, f"Content-Encoding: {encoding}"]
    packed = bomb(encoding)
    owner = owner_of(splash, door)
    before_bytes = owner.memory_info().rss

    answer = door.asked(door.order, method="POST", headers=headers, body=packed, has_pass=True)

    assert answer.status in (None, 400, 403, 413)
    assert owner.memory_info().rss - before_bytes < 2 * 32 * MIB + TOLERATED_GROWTH_BYTES


@pytest.mark.parametrize("shape", ["one long header", "many headers", "a long address", "a long name"])
def test_a_head_larger_than_64_kib_is_refused(door, shape):
    junk = "a" * HEAD_LIMIT_BYTES
    start, headers = f"GET {door.page} HTTP/1.1", []
    if shape == "one long header":
        headers = [f"X: {junk}"]
    elif shape == "many headers":
        headers = [f"X-{number}: a" for number in range(9_000)]
    elif shape == "a long address":
        start = f"GET {door.page}?{junk} HTTP/1.1"
    else:
        headers = [f"{junk}: a"]

    answer = door.said("\r\n".join([start, f"Host: {door.host}", *door.pass_headers, *headers, "", ""]).encode())

    assert answer.status == 431


def test_a_head_of_many_kib_is_served(door):
    answer = door.asked(headers=[f"X: {'a' * 40_000}"], has_pass=True)

    assert answer.status == 200


@pytest.mark.parametrize("where", ["header", "address", "trailer", "before the request"])
def test_a_head_without_end_is_cut_and_not_kept(splash, door, where):
    owner = owner_of(splash, door)
    start = {
        "header": f"GET {door.page} HTTP/1.1\r\nHost: {door.host}\r\nX: ",
        "address": "GET /",
        "trailer": f"POST {door.order} HTTP/1.1\r\nHost: {door.host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        "before the request": "",
    }[where]
    piece = (b"\r\n" if where == "before the request" else b"aa") * (MIB // 2)
    before_bytes = owner.memory_info().rss

    with door.connected() as client:
        client.sendall(start.encode())
        answer = pushed(client, piece, 64)
        is_shut = client.recv(1) == b"" if answer.status is not None else True

    assert answer.status in (None, 400, 401, 403, 431)
    assert is_shut
    assert owner.memory_info().rss - before_bytes < TOLERATED_GROWTH_BYTES


@pytest.mark.parametrize("name", ["api", "admin", "engine"])
def test_deep_json_is_refused_and_breaks_nothing(doors, name):
    door, body = doors[name], b"[" * 50_000

    answer = door.asked(door.order, method="POST", headers=[JSON], body=body, has_pass=True)

    assert answer.status == 400
    assert door.asked("/healthz").status == 200
