"""Images, and other files, that stand in a body as base64.

It fetches nothing: a URL could reach into the network that we are in. It does not look into an image either: only the
engine knows whether its model can see.
"""

import base64
import hashlib
import re
from typing import Final

from control.errors import InvalidRequest
from engine import wire

DATA_URL: Final = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+)?(?:;[\w.+=-]+)*?;base64,(?P<data>.*)", re.DOTALL)


def image_at(url: object, field: str) -> wire.ImagePart:
    """Of a data URL. Raises InvalidRequest."""
    match_ = DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if match_ is None or match_["media_type"] is None:
        raise InvalidRequest("An image must be a data URL in base64; nothing is fetched from the network.", param=field)
    return image(match_["media_type"], match_["data"], field)


def image(media_type: str, data: str, field: str) -> wire.ImagePart:
    """`data` is base64. Raises InvalidRequest."""
    sha256 = hashlib.sha256(file_content(data, field)).hexdigest()
    return wire.ImagePart(sha256=sha256, media_type=media_type, data=data)


def file_content(data: str, field: str) -> bytes:
    """`data` is base64. Raises InvalidRequest."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidRequest(f"This is not valid base64: {error}.", param=field) from error
