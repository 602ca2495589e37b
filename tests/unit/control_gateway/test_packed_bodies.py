"""Bodies that come packed, in the ways in which clients and proxies really pack them."""

import gzip
import zlib

import pytest
from backports import zstd

from control.bodies import MEMBERS_LIMIT, unpacked
from control.errors import BodyTooLarge, InvalidRequest

BODY = b'{"model": "demo", "messages": []}' * 20


def raw_deflated(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("zstd", zstd.compress)]
)
def test_a_body_packed_in_several_streams_is_one_body(encoding: str, pack):
    packed = pack(BODY[:7]) + pack(b"") + pack(BODY[7:])

    assert unpacked(packed, encoding, 10_000) == BODY


@pytest.mark.parametrize("pack", [zlib.compress, raw_deflated, gzip.compress])
def test_deflate_is_read_with_and_without_its_header(pack):
    assert unpacked(pack(BODY), "deflate", 10_000) == BODY


@pytest.mark.parametrize("level", range(10))
def test_a_header_of_any_level_is_known(level: int):
    assert unpacked(zlib.compress(BODY, level), "deflate", 10_000) == BODY


def test_the_limit_holds_over_all_streams_together():
    with pytest.raises(BodyTooLarge):
        unpacked(gzip.compress(b"x" * 600) * 2, "gzip", 1199)

    assert unpacked(gzip.compress(b"x" * 600) * 2, "gzip", 1200) == b"x" * 1200


@pytest.mark.parametrize(
    ("packed", "encoding"),
    [
        (b"", "gzip"),
        (b"", "deflate"),
        (gzip.compress(BODY, mtime=0)[:-1], "gzip"),
        (gzip.compress(BODY, mtime=0) + gzip.compress(BODY, mtime=0)[:-1], "gzip"),
        (gzip.compress(BODY, mtime=0) + b"junk", "gzip"),
        (zlib.compress(BODY) + b"junk", "deflate"),
        (raw_deflated(BODY)[:-1], "deflate"),
        (BODY, "deflate"),
        (gzip.compress(b"") * (MEMBERS_LIMIT + 1), "gzip"),
    ],
)
def test_what_is_not_whole_is_refused(packed: bytes, encoding: str):
    with pytest.raises(InvalidRequest):
        unpacked(packed, encoding, 10_000)
