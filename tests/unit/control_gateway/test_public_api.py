"""The door of the public API: hosts, keys, bodies, paths; and the shape of every refusal."""

import asyncio
import gzip
import threading
import zlib

import httpx
import msgspec
import pytest
import pytest_asyncio
from backports import zstd

from control.dialects.decoding import decoded
from tests.unit.control_gateway.gateway_stage import assert_refused, chat_body, staged

PATH = "/v1/chat/completions"


# These tests leave nothing behind, so one stage serves them all.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory):
    async with staged(tmp_path_factory.mktemp("home"), body_limit_bytes=100_000, body_timeout_s=1.0) as stage:
        yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stranger(stage):
    """A client without a key."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{stage.port}", trust_env=False, verify=False) as client:
        yield client


async def raw(stage, text: str) -> str:
    """The answer to bytes that no client library would send; reads to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    writer.write(text.replace("\n", "\r\n").encode("latin-1"))
    answer = (await asyncio.wait_for(reader.read(), 5)).decode()
    writer.close()
    return answer


@pytest.mark.parametrize("scheme", ["Authorization: Bearer {}", "authorization: bearer  {}", "x-api-key: {}"])
async def test_a_key_comes_in_by_either_header(stage, stranger, scheme):
    name, _, value = scheme.format(stage.key).partition(": ")

    answer = await stranger.get("/v1/models", headers={name: value})

    assert answer.status_code == 200


async def test_one_good_key_is_enough_when_a_client_sends_two(stage, stranger):
    headers = {"authorization": "Bearer placeholder", "x-api-key": stage.key}

    answer = await stranger.get("/v1/models", headers=headers)

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer sk-splash-wrong"},
        {"authorization": "Basic abc"},
        {"authorization": "Bearer"},
        {"x-api-key": "clé".encode()},
        {"x-api-key": ""},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", PATH), ("GET", "/v1/models"), ("GET", "/v1/nowhere"), ("GET", "/x")]
)
async def test_without_a_key_nothing_else_is_looked_at(stranger, headers, method, path):
    answer = await stranger.request(method, path, headers=headers, content=b"{not json" if method == "POST" else None)

    assert_refused(answer, 401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_key_is_checked_before_a_body_is_read(stage):
    answer = await raw(
        stage,
        f"POST {PATH} HTTP/1.1\nHost: 127.0.0.1:{stage.port}\nContent-Length: 5000000\nConnection: close\n\n",
    )

    assert answer.startswith("HTTP/1.1 401 ")


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LOCALHOST:{}", "[::1]:{}"])
async def test_names_of_this_machine_are_answered(stage, host):
    answer = await stage.client.get("/healthz", headers={"host": host.format(stage.port)})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example:{}", "127.0.0.1.evil.example:{}", "127.0.0.1", "127.0.0.1:1", "[::1]", "user@127.0.0.1:{}"]
)
@pytest.mark.parametrize("path", ["/healthz", "/v1/models"])
async def test_any_other_host_is_403_even_with_a_key(stage, host, path):
    answer = await stage.client.get(
        path, headers={"host": host.format(stage.port), "x-forwarded-host": f"127.0.0.1:{stage.port}"}
    )

    assert_refused(answer, 403, "host_not_allowed")


@pytest.mark.parametrize("hosts", ["", "Host: 127.0.0.1:{port}\nHost: evil.example\n"])
async def test_no_host_or_two_hosts_is_not_answered(stage, hosts):
    answer = await raw(stage, "GET /healthz HTTP/1.1\n" + hosts.format(port=stage.port) + "Connection: close\n\n")

    assert answer.startswith(("HTTP/1.1 403 ", "HTTP/1.1 400 "))


@pytest.mark.parametrize("path", ["/", "/healthz"])
async def test_the_open_paths_say_no_more_than_that_it_lives(stranger, path):
    head = await stranger.head(path)
    answer = await stranger.get(path)

    assert head.status_code == 200
    assert answer.json() == {"status": "ok"}
    assert answer.headers["x-request-id"] != head.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions/", "/v2"])
async def test_a_path_that_is_not_there_is_404_in_the_apis_shape(stage, path):
    answer = await stage.client.post(path, json={})

    assert_refused(answer, 404, "not_found")


async def test_a_wrong_method_is_405_and_says_which_are_right(stage):
    answer = await stage.client.get(PATH)

    assert_refused(answer, 405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]


async def test_bad_json_is_400(stage):
    answer = await stage.client.post(PATH, content=b'{"model": ')

    assert_refused(answer, 400, "invalid_request")


async def test_a_body_is_json_whatever_its_content_type_says(stage):
    answer = await stage.client.post(PATH, content=httpx.Request("POST", "http://x", json=chat_body()).content)

    assert answer.status_code == 200


async def test_a_body_that_is_too_large_is_413_and_the_client_sees_it(stage):
    answer = await stage.client.post(PATH, content=b" " * 5_000_000)

    assert_refused(answer, 413, "request_too_large")


@pytest.mark.parametrize("length", [100_001, 10_000_000_000])
async def test_a_body_that_says_it_is_too_large_is_413_before_it_comes(stage, length):
    head = f"POST {PATH} HTTP/1.1\nHost: 127.0.0.1:{stage.port}\nx-api-key: {stage.key}\nContent-Length: {length}\n"

    answer = await raw(stage, head + "Connection: close\n\n")

    assert answer.startswith("HTTP/1.1 413 ")


async def test_a_client_that_asks_before_it_sends_too_much_is_told_not_to(stage):
    head = f"POST {PATH} HTTP/1.1\nHost: 127.0.0.1:{stage.port}\nx-api-key: {stage.key}\nContent-Length: 100001\n"

    answer = await raw(stage, head + "Expect: 100-continue\nConnection: close\n\n")

    assert answer.startswith("HTTP/1.1 413 ")


async def test_an_endless_body_is_413_as_soon_as_it_is_too_large(stage):
    head = f"POST {PATH} HTTP/1.1\nHost: 127.0.0.1:{stage.port}\nx-api-key: {stage.key}\nTransfer-Encoding: chunked\n"

    answer = await raw(stage, head + "Connection: close\n\n" + "186A1\n" + " " * 0x186A1 + "\n")

    assert answer.startswith("HTTP/1.1 413 ")


async def test_a_connection_that_was_refused_a_body_serves_the_next_request(stage):
    refused = await stage.client.post(PATH, content=b" " * 5_000_000)
    answer = await stage.client.post(PATH, json=chat_body())

    assert (refused.status_code, answer.status_code) == (413, 200)


@pytest.mark.parametrize(("length", "is_beside"), [(100, False), (90_000, True)])
async def test_a_large_body_is_parsed_beside_the_event_loop(stage, monkeypatch, length, is_beside):
    threads = []

    def decode(body, kind):
        threads.append(threading.current_thread())
        return decoded(body, kind)

    monkeypatch.setattr("control.dialects.chat.decoded", decode)

    answer = await stage.client.post(PATH, json=chat_body(user="x" * length))

    assert answer.status_code == 200
    assert [thread is not threading.main_thread() for thread in threads] == [is_beside]


async def test_a_large_body_is_refused_by_name_too(stage):
    answer = await stage.client.post(PATH, json=chat_body(user="x" * 90_000, n=2))

    assert_refused(answer, 400, "invalid_request")
    assert answer.json()["error"]["param"] == "n"


async def test_a_body_without_a_length_is_limited_while_it_is_read(stage):
    async def endless():
        for _ in range(50):
            yield b" " * 10_000

    answer = await stage.client.post(PATH, content=endless())

    assert_refused(answer, 413, "request_too_large")


async def test_a_body_that_does_not_come_is_408(stage):
    head = f"POST {PATH} HTTP/1.1\nHost: 127.0.0.1:{stage.port}\nx-api-key: {stage.key}\nContent-Length: 50\n"

    answer = await raw(stage, head + "Connection: close\n\n{")

    assert answer.startswith("HTTP/1.1 408 ")


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}


@pytest.mark.parametrize("encoding", PACKERS)
async def test_a_packed_body_is_unpacked(stage, encoding):
    content = PACKERS[encoding](msgspec.json.encode(chat_body()))

    answer = await stage.client.post(PATH, content=content, headers={"content-encoding": encoding})

    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("damage", [lambda packed: packed[:-3], lambda packed: packed + b"more", lambda _: b"{}"])
async def test_a_body_that_is_not_packed_as_it_says_is_400(stage, encoding, damage):
    content = damage(PACKERS[encoding](msgspec.json.encode(chat_body())))

    answer = await stage.client.post(PATH, content=content, headers={"content-encoding": encoding})

    assert_refused(answer, 400, "invalid_request")


@pytest.mark.parametrize("encoding", PACKERS)
async def test_a_body_that_unpacks_to_too_much_is_413(tmp_path, encoding):
    async with staged(tmp_path, body_limit_bytes=100_000) as stage:
        content = PACKERS[encoding](b" " * 10_000_000)

        answer = await stage.client.post(PATH, content=content, headers={"content-encoding": encoding})

    assert len(content) < 100_000
    assert_refused(answer, 413, "request_too_large")


async def test_a_body_that_is_packed_otherwise_is_415(stage):
    answer = await stage.client.post(PATH, content=b"x", headers={"content-encoding": "br"})

    assert_refused(answer, 415, "unsupported_encoding")
