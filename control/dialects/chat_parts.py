"""The parts of a chat message's content: texts and images; one that nobody knows is left out, and the rest goes on.

It fetches nothing, and does not look into an image: only the engine knows whether its model can see.
"""

import base64
import hashlib
import re
from typing import Any, Final

from control.dialects.chat_skipped import Skipped
from control.errors import InvalidRequest
from engine import wire

_DATA_URL: Final = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)
# What the question is about: an answer without it would be made up.
_REFUSED: Final = frozenset(
    {
        "file",
        "input_file",
        "document",
        "image",
        "audio",
        "audio_url",
        "input_audio",
        "video",
        "video_url",
        "input_video",
    }
)


def neutral_parts(content: str | list[Any] | None, field: str, skipped: Skipped) -> tuple[wire.Part, ...]:
    """Raises InvalidRequest that names the field."""
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (wire.TextPart(text=content),)
    parts = (_part(part, f"{field}[{index}]", skipped) for index, part in enumerate(content))
    return tuple(part for part in parts if part is not None)


def _part(part: object, field: str, skipped: Skipped) -> wire.Part | None:
    if isinstance(part, str):
        return wire.TextPart(text=part)
    if part is None:
        return None
    if not isinstance(part, dict):
        raise InvalidRequest("A part of a message is an object with a type.", param=field)
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return _text(part.get("text"), f"{field}.text")
        case "refusal":
            return _text(part.get("refusal"), f"{field}.refusal")
        case "image_url" | "input_image":
            return _image(part.get("image_url"), f"{field}.image_url")
        case None if isinstance(part.get("text"), str):
            return wire.TextPart(text=part["text"])
        case str(kind) if kind not in _REFUSED:
            skipped.add("part", kind)
            return None
        case str(kind):
            raise InvalidRequest(f"Parts of type {kind} are not supported.", param=f"{field}.type")
    raise InvalidRequest("A part of a message has a type.", param=f"{field}.type")


def _text(text: object, field: str) -> wire.TextPart | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidRequest("A text is expected here.", param=field)
    return wire.TextPart(text=text)


def _image(image: object, field: str) -> wire.ImagePart:
    """From a data URL, alone or in an object. Nothing is fetched: a URL could reach into the network that we are in."""
    url = image.get("url") if isinstance(image, dict) else image
    match_ = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if match_ is None:
        raise InvalidRequest("An image must be a data URL in base64; nothing is fetched from the network.", param=field)
    try:
        content = base64.b64decode(match_["data"], validate=True)
    except ValueError as error:
        raise InvalidRequest(f"The image is not valid base64: {error}.", param=field) from error
    return wire.ImagePart(
        sha256=hashlib.sha256(content).hexdigest(), media_type=match_["media_type"], data=match_["data"]
    )
