"""The content of a Responses item, from OpenAI's parts to the engine's neutral ones.

It fetches nothing, and knows no item. A part of a type that is not known is left out.
"""

import base64
import hashlib
import re
from typing import Any, Final

from control.dialects.chat_skipped import Skipped
from control.errors import InvalidRequest
from engine import wire

_DATA_URL: Final = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+)?(?:;[\w.+=-]+)*?;base64,(?P<data>.*)", re.DOTALL)


def neutral_parts(content: str | list[Any] | None, field: str, skipped: Skipped) -> tuple[wire.Part, ...]:
    """Raises InvalidRequest that names the field."""
    if not content:
        return ()
    if isinstance(content, str):
        return (wire.TextPart(text=content),)
    parts = (_part(part, f"{field}[{index}]", skipped) for index, part in enumerate(content))
    return tuple(part for part in parts if part is not None)


def text_of(parts: list[Any] | str | None) -> str:
    """The texts of summary or reasoning parts; what has none counts as empty."""
    if isinstance(parts, str):
        return parts
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts or ()]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _part(part: object, field: str, skipped: Skipped) -> wire.Part | None:
    if isinstance(part, str):
        return wire.TextPart(text=part)
    if not isinstance(part, dict):
        raise InvalidRequest("A part of an item is an object with a type.", param=field)
    match part.get("type"):
        case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text":
            return _text(part.get("text"), f"{field}.text")
        case "refusal":
            return _text(part.get("refusal"), f"{field}.refusal")
        case "input_image" | "image_url":
            return _image(part, field)
        case "input_file":
            return _file(part, field)
        case str(kind):
            skipped.add("part", kind)
            return None
    raise InvalidRequest("A part of an item needs a type.", param=f"{field}.type")


def _text(text: object, field: str) -> wire.TextPart:
    if not isinstance(text, str):
        raise InvalidRequest("A text is expected here.", param=field)
    return wire.TextPart(text=text)


def _image(part: dict[str, Any], field: str) -> wire.ImagePart:
    """From a data URL, alone or in an object. Nothing is fetched: a URL could reach into the network that we are in."""
    if part.get("image_url") is None and part.get("file_id") is not None:
        raise InvalidRequest("Files are not kept here; send the image as a data URL.", param=f"{field}.file_id")
    field = f"{field}.image_url"
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    match_ = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if match_ is None or match_["media_type"] is None:
        raise InvalidRequest("An image must be a data URL in base64; nothing is fetched from the network.", param=field)
    return wire.ImagePart(
        sha256=hashlib.sha256(_decoded(match_["data"], field)).hexdigest(),
        media_type=match_["media_type"],
        data=match_["data"],
    )


def _file(part: dict[str, Any], field: str) -> wire.TextPart:
    """A file of text, below its name. No other file can be shown to a model here."""
    data = part.get("file_data")
    if not isinstance(data, str):
        key = next((key for key in ("file_id", "file_url") if part.get(key) is not None), "file_data")
        raise InvalidRequest("A file must be sent as file_data; none is kept or fetched here.", param=f"{field}.{key}")
    field = f"{field}.file_data"
    match_ = _DATA_URL.fullmatch(data)
    try:
        text = _decoded(match_["data"] if match_ else data, field).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("Only files of text (UTF-8) are supported.", param=field) from error
    name = part.get("filename")
    return wire.TextPart(text=f"{name}:\n{text}" if isinstance(name, str) else text)


def _decoded(data: str, field: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidRequest(f"This is not valid base64: {error}.", param=field) from error
