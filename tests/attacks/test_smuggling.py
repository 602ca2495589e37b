"""Requests whose length can be read in two ways: refused, and what hides behind one is never answered as another."""

import pytest

from tests.attacks.doors import first_answer

CHUNKED = "Transfer-Encoding: chunked"
AMBIGUOUS = {
    "two lengths": (["Content-Length: 5", "Content-Length: 0"], b"aaaaa"),
    "the same length twice": (["Content-Length: 5", "Content-Length: 5"], b"aaaaa"),
    "a list of lengths": (["Content-Length: 5, 5"], b"aaaaa"),
    "length and chunks": (["Content-Length: 5", CHUNKED], b"0\r\n\r\n"),
    "chunks and length": ([CHUNKED, "Content-Length: 5"], b"0\r\n\r\n"),
    "chunks that are not last": (["Transfer-Encoding: chunked, identity"], b"0\r\n\r\n"),
    "chunks by another name": (["Transfer-Encoding: xchunked"], b"0\r\n\r\n"),
    "a space before the colon": (["Transfer-Encoding : chunked"], b"0\r\n\r\n"),
    "a folded header": (["X-Long: a", " Transfer-Encoding: chunked", "Content-Length: 5"], b"0\r\n\r\n"),
    "a negative length": (["Content-Length: -1"], b""),
    "a signed length": (["Content-Length: +5"], b"aaaaa"),
    "a length in hex": (["Content-Length: 0x5"], b"aaaaa"),
    "a length beyond numbers": (["Content-Length: 99999999999999999999999"], b"aaaaa"),
    "a chunk of no size": ([CHUNKED], b"zz\r\naaaaa\r\n0\r\n\r\n"),
    "a chunk of negative size": ([CHUNKED], b"-5\r\naaaaa\r\n0\r\n\r\n"),
    "a chunk beyond numbers": ([CHUNKED], b"fffffffffffffffff\r\naaaaa\r\n0\r\n\r\n"),
    "a chunk longer than it says": ([CHUNKED], b"2\r\naaaaa\r\n0\r\n\r\n"),
    "a bare line feed": (["X: a\nTransfer-Encoding: chunked"], b"0\r\n\r\n"),
    "a NUL in a header": (["X: a\0b", "Content-Length: 0"], b""),
}


@pytest.mark.parametrize("ambiguous", AMBIGUOUS)
@pytest.mark.parametrize("has_pass", [True, False])
def test_an_ambiguous_request_is_refused_and_what_hides_behind_it_gets_no_answer(door, ambiguous, has_pass):
    headers, body = AMBIGUOUS[ambiguous]
    passes = door.pass_headers if has_pass else ()
    head = [f"POST {door.order} HTTP/1.1", f"Host: {door.host}", "Content-Type: application/json", *passes, *headers]
    hidden = door.request(has_pass=True)

    with door.connected() as client:
        client.sendall("\r\n".join([*head, "", ""]).encode() + body + hidden)
        answer = first_answer(client)
        rest = b"".join(iter(lambda: _read(client), b""))

    assert answer.status in (None, 400, 401, 403)
    assert answer.body.count(b"HTTP/1.1 ") + rest.count(b"HTTP/1.1 ") == 0


def test_a_request_behind_a_whole_one_is_a_request_of_its_own(door):
    with door.connected() as client:
        client.sendall(door.request("/healthz"))
        first = first_answer(client)
        client.sendall(door.request())
        second = first_answer(client)

    assert first.status == 200
    assert second.status in (401, 403)


def _read(client) -> bytes:
    """b"" at the end of the connection, however it ends; a connection that stays open is a failure."""
    try:
        return client.recv(65536)
    except ConnectionError:
        return b""
