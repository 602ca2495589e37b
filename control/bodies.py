"""The body of a request to the public API: read with limits of size and time, and unpacked when it comes packed.

It does not know what the bytes say.
"""

import asyncio
import sys
import zlib
from typing import Final

from starlette.requests import Request

from control.errors import BodyTooLarge, BodyTooSlow, EncodingNotSupported, InvalidRequest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BODY_LIMIT_BYTES: Final = 32 * 1024 * 1024
BODY_TIMEOUT_S: Final = 60.0
PLAIN: Final = ("", "identity")
DEFLATED: Final = ("gzip", "x-gzip", "deflate")
# Their streams may be several, one behind the other.
IN_MEMBERS: Final = ("gzip", "x-gzip", "zstd")
# What is left is copied for each.
MEMBERS_LIMIT: Final = 100
_GZIP: Final = b"\x1f\x8b"


async def read_body(request: Request, *, limit_bytes: int, limit_s: float) -> bytes:
    """The whole body, unpacked; refused as soon as it is known to be too large, packed or not.

    Raises EncodingNotSupported, BodyTooLarge (before it is read where it says so itself), BodyTooSlow, and
    InvalidRequest for a body that is not packed as it says.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in (*PLAIN, *DEFLATED, "zstd"):
        raise EncodingNotSupported(encoding)
    # HTTP has been parsed: it is a number. What still comes after a refusal is thrown away by the server.
    if int(request.headers.get("content-length", "0")) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    try:
        async with asyncio.timeout(limit_s):
            packed = await _read_up_to(request, limit_bytes)
    except TimeoutError as error:
        raise BodyTooSlow(limit_s=limit_s) from error
    return packed if encoding in PLAIN else await asyncio.to_thread(unpacked, packed, encoding, limit_bytes)


def unpacked(packed: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Never more than `limit_bytes` and one in memory. Raises BodyTooLarge, InvalidRequest."""
    body, rest = b"", packed
    for _ in range(MEMBERS_LIMIT):
        unpacker = _unpacker(encoding, rest)
        try:
            body += unpacker.decompress(rest, limit_bytes + 1 - len(body))
        except (zlib.error, zstd.ZstdError) as error:
            raise InvalidRequest(f"The body is not what Content-Encoding {encoding!r} says: {error}.") from error
        if len(body) > limit_bytes:
            raise BodyTooLarge(limit_bytes=limit_bytes)
        rest = unpacker.unused_data
        if unpacker.eof and not rest:
            return body
        if not unpacker.eof or encoding not in IN_MEMBERS:
            break
    raise InvalidRequest(f"The body is not one whole {encoding} stream.")


def _unpacker(encoding: str, packed: bytes) -> "zlib._Decompress | zstd.ZstdDecompressor":
    if encoding == "zstd":
        return zstd.ZstdDecompressor()
    if encoding == "deflate" and not packed.startswith(_GZIP) and not _has_zlib_header(packed):
        return zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    # 32 more: gzip or zlib, as its first bytes say.
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)


def _has_zlib_header(packed: bytes) -> bool:
    """Some clients leave it out. Format: RFC 1950, 2.2: method 8, and a check of the two bytes."""
    return packed[:1] != b"" and packed[0] & 0x0F == 8 and int.from_bytes(packed[:2], "big") % 31 == 0


async def _read_up_to(request: Request, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise BodyTooLarge(limit_bytes=limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)
