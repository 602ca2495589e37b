"""What a model cannot read: refused by name where a person sends it, said in words where a tool does."""

from typing import Any

import pytest

from tests.unit.control_dialects.every_dialect import (
    LISTS,
    conversations,
    generate_of,
    refusal_of,
    resulted,
    said,
    texts_of,
)
from tests.unit.control_dialects.messages_bodies import PIXEL

URL = f"data:image/png;base64,{PIXEL}"
NO_IMAGES = "[image: this model takes no images]"
IMAGES = {
    "chat": [
        {"type": "image_url", "image_url": {"url": URL}},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "image_url"},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    ],
    "messages": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image"},
        {"type": "image_url", "image_url": URL},
    ],
    "responses": [
        {"type": "input_image", "image_url": URL, "detail": "high"},
        {"type": "input_image", "file_id": "f"},
        {"type": "input_image"},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    ],
}
UNREADABLE = ["input_audio", "audio", "audio_url", "video", "video_url", "input_video", "file", "container_upload"]


@conversations
@pytest.mark.parametrize("number", range(4))
def test_a_tools_image_does_not_end_the_session(dialect: str, number: int):
    content = [{"type": "text", "text": "shot"}, IMAGES[dialect][number]]

    assert texts_of(generate_of(dialect, **resulted(dialect, content)), "tool") == ["shot", NO_IMAGES]


@conversations
@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_else_a_tool_sends_that_cannot_be_read_is_said(dialect: str, kind: str):
    asked = resulted(dialect, [{"type": kind, kind: {"data": "AAAA"}}])

    assert texts_of(generate_of(dialect, **asked), "tool") == [f"[{kind}: this model cannot read it]"]


def test_a_tools_image_within_a_document_does_not_end_the_session():
    [image] = IMAGES["messages"][:1]
    document = {"type": "document", "title": "T", "source": {"type": "content", "content": [image]}}
    found = {"type": "search_result", "title": "S", "content": [{"type": "text", "text": "x"}, image]}

    generate = generate_of("messages", **resulted("messages", [document, found]))

    assert texts_of(generate, "tool") == ["T", NO_IMAGES, "S", "x", NO_IMAGES]


def test_a_tools_file_is_read_if_it_is_text_and_said_if_not():
    files = [{"type": "input_file", "file_data": data, "filename": "a"} for data in ("aGVsbG8=", "/w==", None)]

    said_of = "[input_file: this model cannot read it]"
    assert texts_of(generate_of("responses", **resulted("responses", files)), "tool") == ["a:\nhello", said_of, said_of]


@conversations
@pytest.mark.parametrize(
    ("content", "read"),
    [
        ({"exit": 0}, ['{"exit":0}']),
        (7, ["7"]),
        ([{"exit": 0}, 7, "x", None], ['{"exit":0}', "7", "x"]),
        ([{"type": "text", "text": 7}], ['{"type":"text","text":7}']),
        (None, []),
        ([], []),
    ],
)
def test_a_result_of_any_form_is_what_a_model_can_read(dialect: str, content: Any, read: list[str]):
    assert texts_of(generate_of(dialect, **resulted(dialect, content)), "tool") == read


@conversations
@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_a_person_sends_that_cannot_be_handed_on_is_refused_by_name(dialect: str, kind: str):
    refusal = refusal_of(dialect, **said(dialect, ["What is this?", {"type": kind, kind: {"data": "AAAA"}}]))

    assert (str(refusal), refusal.param) == (
        f"Parts of type {kind} are not supported.",
        f"{LISTS[dialect]}[0].content[1].type",
    )


@conversations
def test_a_part_of_a_type_that_nobody_knows_is_left_out(dialect: str):
    assert texts_of(generate_of(dialect, **said(dialect, ["hi", {"type": "input_smell", "data": "x"}]))) == ["hi"]


@conversations
def test_a_persons_own_image_is_for_the_engine_to_judge(dialect: str):
    [message] = generate_of(dialect, **said(dialect, IMAGES[dialect][:1])).prompt.messages or ()

    assert [getattr(part, "media_type", None) for part in message.content] == ["image/png"]
