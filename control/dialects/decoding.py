"""A body as the Struct of its dialect: what is wrong with it is named as the client named it.

It knows no field, and nothing of what the fields mean.
"""

import re
from typing import Any, Final, TypeVar

import msgspec

from control.dialects.surrogates import without_halves
from control.errors import InvalidRequest

_Kind = TypeVar("_Kind")

# Of msgspec's sentences: its names of types, and its signs, as words.
_WORDS: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"`([^`]*)\bint\b([^`]*)`", r"`\1an integer\2`"),
        (r"`([^`]*)\bfloat\b([^`]*)`", r"`\1a number\2`"),
        (r"`([^`]*)\bstr\b([^`]*)`", r"`\1a text\2`"),
        (r"`([^`]*)\bbool\b([^`]*)`", r"`\1true or false\2`"),
        (r"`([^`]*)\barray\b([^`]*)`", r"`\1a list\2`"),
        (r"`([^`]*)\bobject\b([^`]*)`", r"`\1an object\2`"),
        (r" \| ", " or "),
        (r"`", ""),
        (r" of length (?=[<>=])", " with a length of "),
        (r"(?<!of) >= ", " of at least "),
        (r"(?<!of) <= ", " of at most "),
        (r"(?<=of) >= ", " at least "),
        (r"(?<=of) <= ", " at most "),
        (r" > ", " above "),
        (r" < ", " below "),
    )
)
# Some tools of Windows write it before a file of JSON.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def decoded(body: bytes, kind: type[_Kind]) -> _Kind:
    """Raises InvalidRequest, and RecursionError for what is nested deeper than the decoder goes.

    A lone half of a surrogate pair is U+FFFD: a refusal would end the session in whose history it stands.
    """
    try:
        return _decoded(body.removeprefix(_BYTE_ORDER_MARK), kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, "") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from error


def converted(value: object, kind: type[_Kind], field: str) -> _Kind:
    """The same of a part of a body that was decoded as anything. Raises InvalidRequest."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, field) from error


def text_in(holder: dict[str, Any], key: str, field: str) -> str:
    """Of the part or block at `field`. Missing and null are empty, a list is the texts in it. Raises InvalidRequest."""
    value = holder.get(key)
    if not isinstance(value, str | list | None):
        raise InvalidRequest("A text is expected here.", param=f"{field}.{key}")
    return text_of(value)


def text_of(value: object) -> str:
    """Of a text, or of parts with texts; what has none counts as empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n\n".join(filter(None, (each if isinstance(each, str) else _own_text(each) for each in value)))
    return _own_text(value)


def json_of(value: object) -> str:
    """As a text that a model can read."""
    return msgspec.json.encode(value).decode()


def _own_text(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def _decoded(body: bytes, kind: type[_Kind]) -> _Kind:
    """What the decoder refuses, and other servers take, is mended first; nearly no body needs it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
        return msgspec.convert(_with_integers(_decoded(body, Any)), kind)
    except msgspec.DecodeError:
        mended = without_halves(body)
        if mended == body:
            raise
        return _decoded(mended, kind)


def _with_integers(body: Any) -> Any:
    """`max_tokens: 32000.0` is 32000: in some languages every number is a float."""
    if not isinstance(body, dict):
        return body
    return {key: int(it) if isinstance(it, float) and it.is_integer() else it for key, it in body.items()}


def _refusal(error: msgspec.ValidationError, within: str) -> InvalidRequest:
    """`messages[0].role` of msgspec's `$.messages[0].role`; what is missing stands in the sentence, not in the path."""
    sentence, _, path = str(error).partition(" - at `$")
    # `[...]` stands for a key of the client's own.
    field = (within + path.rstrip("`").partition("[...]")[0]).removeprefix(".")
    if "missing required field" in sentence:
        missing = sentence.split("`")[1]
        field = f"{field}.{missing}" if field else missing
        sentence = "This field is required"
    if sentence.startswith("Expected "):
        for pattern, words in _WORDS:
            sentence = pattern.sub(words, sentence)
    # It follows the field's name (`error_answers`).
    sentence = sentence[:1].lower() + sentence[1:] if field else sentence
    return InvalidRequest(f"{sentence}.", param=field or None)
