"""What clients attach that cannot be handed on: refused where a person asks about it, said in words in a tool's result.

It reads none of it (`images` does), and knows no message.
"""

from typing import Final

from control.errors import InvalidRequest
from engine import wire

IMAGES: Final = frozenset({"image", "image_url", "input_image"})
# An answer without it would be made up. Types that nobody knows are left out, and the rest goes on.
_UNSUPPORTED: Final = frozenset(
    {
        *("file", "document", "container_upload"),
        *("audio", "audio_url", "input_audio"),
        *("video", "video_url", "input_video"),
    }
)


def is_unsupported(kind: str) -> bool:
    """Of images those in a form that the dialect does not read: it looks for its own first."""
    return kind in _UNSUPPORTED or kind in IMAGES


def refusal(kind: str, field: str) -> InvalidRequest:
    return InvalidRequest(f"Parts of type {kind} are not supported.", param=f"{field}.type")


def said_instead(kind: str) -> wire.TextPart:
    """In a tool's result: a refusal would end the session, which brings it again with every request.

    Images too: no model that is served takes any yet, and control would not know. A person's own image is handed on.
    """
    if kind in IMAGES:
        return wire.TextPart(text="[image: this model takes no images]")
    return wire.TextPart(text=f"[{kind}: this model cannot read it]")
