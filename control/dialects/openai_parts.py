"""The content of a Chat message or a Responses item, from OpenAI's parts to the engine's neutral ones.

It fetches nothing, and knows no message. A part of a type that nobody knows is left out, and the rest goes on.
"""

from collections.abc import Set
from typing import Any

from control.dialects.decoding import text_in
from control.dialects.images import DATA_URL, file_content, image_at
from control.dialects.skipped import Skipped
from control.errors import InvalidRequest
from engine import wire


def neutral_parts(
    content: str | list[Any] | None, field: str, skipped: Skipped, refused: Set[str] = frozenset()
) -> tuple[wire.Part, ...]:
    """`refused` are types without which an answer would be made up. Raises InvalidRequest that names the field."""
    if not content:
        return ()
    if isinstance(content, str):
        return (wire.TextPart(text=content),)
    parts = (_part(part, f"{field}[{index}]", skipped, refused) for index, part in enumerate(content))
    return tuple(part for part in parts if part is not None)


def text_of(parts: list[Any] | str | None) -> str:
    """The texts of summary or reasoning parts; what has none counts as empty."""
    if isinstance(parts, str):
        return parts
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts or ()]
    return "\n\n".join(each for each in texts if isinstance(each, str) and each)


def _part(part: object, field: str, skipped: Skipped, refused: Set[str]) -> wire.Part | None:
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
        case str(kind) if kind in refused:
            raise InvalidRequest(f"Parts of type {kind} are not supported.", param=f"{field}.type")
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
