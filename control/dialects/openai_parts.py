"""The content of a Chat message or a Responses item, from OpenAI's parts to the engine's neutral ones.

It fetches nothing, and knows no message. A part of a type that nobody knows is left out, and the rest goes on.
"""

from typing import Any

from control.dialects.attachments import is_unsupported, refusal, said_instead
from control.dialects.decoding import json_of, text_in
from control.dialects.images import DATA_URL, file_content, image_at
from control.dialects.skipped import Skipped
from control.errors import InvalidRequest
from engine import wire


def neutral_parts(content: object, field: str, skipped: Skipped) -> tuple[wire.Part, ...]:
    """Raises InvalidRequest that names the field."""
    if isinstance(content, str | None):
        return (wire.TextPart(text=content),) if content else ()
    if not isinstance(content, list):
        raise InvalidRequest("A text or a list of parts is expected here.", param=field)
    parts = (_part(part, f"{field}[{index}]", skipped) for index, part in enumerate(content))
    return tuple(part for part in parts if part is not None)


def result_parts(content: object, field: str, skipped: Skipped) -> tuple[wire.Part, ...]:
    """Of a tool's result, which may be anything: what is no part is JSON as text. It refuses nothing."""
    if isinstance(content, str | None):
        return (wire.TextPart(text=content),) if content else ()
    if not isinstance(content, list):
        return (wire.TextPart(text=json_of(content)),)
    parts = (_result_part(part, f"{field}[{index}]", skipped) for index, part in enumerate(content))
    return tuple(part for part in parts if part is not None)


def _result_part(part: object, field: str, skipped: Skipped) -> wire.Part | None:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and is_unsupported(kind):
        return said_instead(kind)
    try:
        return _part(part, field, skipped)
    except InvalidRequest:
        return said_instead(kind) if kind == "input_file" else wire.TextPart(text=json_of(part))


def _part(part: object, field: str, skipped: Skipped) -> wire.Part | None:
    if part is None or part == "":
        return None
    if isinstance(part, str):
        return wire.TextPart(text=part)
    if not isinstance(part, dict):
        raise InvalidRequest("A part is an object with a type.", param=field)
    match part.get("type"):
        case "text" | "input_text" | "output_text" | "summary_text" | "reasoning_text":
            return _text(part, "text", field)
        case "refusal":
            return _text(part, "refusal", field)
        case "image_url" | "input_image":
            return _image(part, field)
        case "input_file":
            return _file(part, field)
        case None if "text" in part:
            return _text(part, "text", field)
        case str(kind) if is_unsupported(kind):
            raise refusal(kind, field)
        case str(kind):
            skipped.add("part", kind)
            return None
    raise InvalidRequest("A part needs a type.", param=f"{field}.type")


def _text(part: dict[str, Any], key: str, field: str) -> wire.TextPart | None:
    """None for an empty one."""
    text = text_in(part, key, field)
    return wire.TextPart(text=text) if text else None


def _image(part: dict[str, Any], field: str) -> wire.ImagePart:
    """A data URL, alone or in an object."""
    found = part.get("image_url")
    if found is None and part.get("file_id") is not None:
        raise InvalidRequest("Files are not kept here; send the image as a data URL.", param=f"{field}.file_id")
    return image_at(found.get("url") if isinstance(found, dict) else found, f"{field}.image_url")


def _file(part: dict[str, Any], field: str) -> wire.TextPart:
    """A file of text, below its name. No other file can be shown to a model here."""
    data = part.get("file_data")
    if not isinstance(data, str):
        key = next((key for key in ("file_id", "file_url") if part.get(key) is not None), "file_data")
        raise InvalidRequest("A file must be sent as file_data; none is kept or fetched here.", param=f"{field}.{key}")
    match_ = DATA_URL.fullmatch(data)
    try:
        content = file_content(match_["data"] if match_ else data, f"{field}.file_data").decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("Only files of text (UTF-8) are supported.", param=f"{field}.file_data") from error
    name = part.get("filename")
    return wire.TextPart(text=f"{name}:\n{content}" if isinstance(name, str) else content)
