import base64

import pytest

from mcp_django.protocol.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    Role,
    TextContent,
    TextResourceContents,
    assistant,
    is_content,
    is_content_type,
    user,
)
from mcp_django.protocol.types import Icon
from tests.official_schema import definitions, validator

REVISION = "2026-07-28"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "
EXTRAS = {"annotations": Annotations(audience=["user"], priority=1), "meta": {"com.example/x": 1}}

EVERY_BLOCK = [
    (TextContent("hello", **EXTRAS), "TextContent"),
    (ImageContent(PNG, "image/png", **EXTRAS), "ImageContent"),
    (AudioContent(WAV, "audio/wav", **EXTRAS), "AudioContent"),
    (
        ResourceLink(
            "file:///a", "a", title="A", description="An a", mime_type="text/plain", size=3,
            icons=(Icon("https://example.com/i.png"),), **EXTRAS,
        ),
        "ResourceLink",
    ),
    (EmbeddedResource(TextResourceContents("hello", "file:///a", "text/plain"), **EXTRAS), "EmbeddedResource"),
]  # fmt: skip


def test_a_full_block_has_exactly_the_fields_of_the_specification(subtests: pytest.Subtests) -> None:
    for block, definition in EVERY_BLOCK:
        with subtests.test(block=block, definition=definition):
            wire = block.to_wire()
            validator(REVISION, definition)(wire)
            validator(REVISION, "ContentBlock")(wire)
            assert wire.keys() == definitions(REVISION)[definition]["properties"].keys()


def test_omitted_fields_are_left_out(subtests: pytest.Subtests) -> None:
    cases = [
        (TextContent(""), {"type": "text", "text": ""}),
        (ImageContent(b"", "image/png"), {"type": "image", "data": "", "mimeType": "image/png"}),
        (ResourceLink("a:b", "b"), {"type": "resource_link", "uri": "a:b", "name": "b"}),
    ]
    for block, wire in cases:
        with subtests.test(block=block, wire=wire):
            assert block.to_wire() == wire


def test_full_contents_have_exactly_the_fields_of_the_specification(subtests: pytest.Subtests) -> None:
    cases = [
        (TextResourceContents("x", "a:b", "text/plain", {"a": 1}), "TextResourceContents"),
        (BlobResourceContents(b"x", "a:b", "a/b", {"a": 1}), "BlobResourceContents"),
    ]
    for contents, definition in cases:
        with subtests.test(contents=contents, definition=definition):
            wire = contents.to_wire()
            validator(REVISION, definition)(wire)
            assert wire.keys() == definitions(REVISION)[definition]["properties"].keys()


def test_contents_without_a_uri_omit_the_member():
    assert TextResourceContents("x").to_wire() == {"text": "x"}


def test_embedded_contents_need_a_uri():
    with pytest.raises(ValueError, match="need a uri"):
        EmbeddedResource(TextResourceContents("x"))


def test_bytes_and_their_base64_are_equivalent(subtests: pytest.Subtests) -> None:
    for kind in [ImageContent, AudioContent]:
        with subtests.test(kind=kind):
            assert kind(PNG, "a/b").to_wire() == kind(base64.b64encode(PNG).decode(), "a/b").to_wire()


def test_text_that_is_not_base64_is_refused(subtests: pytest.Subtests) -> None:
    for text in ["hello!", "YQ", "Y-_Q", "é", "YQ==\n"]:
        with subtests.test(text=text):
            with pytest.raises(ValueError, match="base64"):
                ImageContent(text, "image/png")
            with pytest.raises(ValueError, match="base64"):
                BlobResourceContents(text)


def test_data_of_another_type_is_refused():
    with pytest.raises(TypeError, match="bytearray"):
        ImageContent(bytearray(PNG), "image/png")


def test_the_type_of_known_formats_is_detected(subtests: pytest.Subtests) -> None:
    cases = [
        (ImageContent, PNG, "image/png"),
        (ImageContent, b"\xff\xd8\xff\xe0", "image/jpeg"),
        (ImageContent, b"GIF89a", "image/gif"),
        (ImageContent, b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (AudioContent, WAV, "audio/wav"),
        (AudioContent, b"OggS", "audio/ogg"),
        (AudioContent, b"fLaC", "audio/flac"),
        (AudioContent, b"ID3\x03", "audio/mpeg"),
    ]
    for kind, data, mime_type in cases:
        with subtests.test(kind=kind, data=data, mime_type=mime_type):
            assert kind.from_bytes(data).mime_type == mime_type
            assert kind.from_bytes(data, "x/y").mime_type == "x/y"


def test_bytes_of_an_unknown_format_need_a_type(subtests: pytest.Subtests) -> None:
    for kind, data in [(ImageContent, WAV), (AudioContent, PNG), (ImageContent, b"")]:
        with subtests.test(kind=kind, data=data), pytest.raises(ValueError, match="pass mime_type"):
            kind.from_bytes(data)


def test_the_type_of_a_file_comes_from_its_name_or_its_bytes(tmp_path):
    for name, mime_type in (("a.webp", "image/webp"), ("a.unknown", "image/png"), ("a.wav", "image/png")):
        (tmp_path / name).write_bytes(PNG)
        assert ImageContent.from_file(tmp_path / name) == ImageContent(PNG, mime_type)
    (tmp_path / "b.wav").write_bytes(WAV)
    assert AudioContent.from_file(str(tmp_path / "b.wav")).mime_type == "audio/wav"


def test_only_blocks_are_content():
    assert all(is_content(block) and is_content_type(type(block)) for block, _ in EVERY_BLOCK)
    strangers = ["text", None, TextContent, TextResourceContents("x"), user("x"), {"type": "text", "text": "x"}]
    assert not any(is_content(value) for value in strangers)
    assert not any(
        is_content_type(value) for value in [str, None, ContentBlock, list[TextContent], TextResourceContents]
    )


def test_messages_have_text_or_a_block(subtests: pytest.Subtests) -> None:
    for make, role in [(user, "user"), (assistant, "assistant")]:
        with subtests.test(make=make, role=role):
            assert make("hi").to_wire() == make(TextContent("hi")).to_wire()
            wire = make("hi").to_wire()
            assert wire == {"role": role, "content": {"type": "text", "text": "hi"}}
            validator(REVISION, "PromptMessage")(wire)
            assert PromptMessage(role, "hi").to_wire() == wire
            assert type(wire["role"]) is str


def test_a_message_without_a_role_or_with_several_blocks_is_refused():
    with pytest.raises(ValueError, match="'user' or 'assistant'"):
        PromptMessage("system", "hi")
    with pytest.raises(TypeError, match="one content block, not list"):
        PromptMessage(Role.USER, [TextContent("hi")])
