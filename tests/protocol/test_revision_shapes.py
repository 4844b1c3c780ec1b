"""One rich object, cut down for each revision: valid there, with every field it defines and no others."""

import copy
import json

import pytest

from mcp_django.protocol import meta
from mcp_django.protocol.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    user,
)
from mcp_django.protocol.revisions import LATEST, REVISIONS, Era
from mcp_django.protocol.types import Icon, Implementation
from tests.official_schema import definitions, validator

FIRST, BATCHING, FORMS, HANDSHAKEN, MODERN = REVISIONS.values()

META = {"com.example/mine": [1], "mcp-django/tags": ["a"]}
ANNOTATIONS = Annotations(audience=["user"], priority=0.5, last_modified="2026-07-28T12:00:00Z")
ICON = Icon("https://example.com/i.png", "image/png", ["48x48"], "dark")
EXTRAS = {"annotations": ANNOTATIONS, "meta": META}

IMPLEMENTATION = Implementation("shop", "1", "Shop", "Sells", (ICON,), "https://example.com").to_wire()
TOOL = {
    "name": "add",
    "title": "Add",
    "description": "Adds",
    "inputSchema": {"type": "object", "properties": {"a": True, "b": False, "c": {"type": "string"}}},
    "outputSchema": {
        "type": "object",
        "properties": {"sum": True, "deep": {"type": "object", "properties": {"x": True}}},
    },
    "annotations": {"title": "Add", "readOnlyHint": True, "futureHint": True},
    "icons": [ICON.to_wire()],
    "execution": {"taskSupport": "optional"},
    "_meta": META,
    "unheardOf": 1,
}
PROMPT = {
    "name": "plan",
    "title": "Plan",
    "description": "Plans",
    "arguments": [{"name": "to", "title": "To", "description": "Where to", "required": True}],
    "icons": [ICON.to_wire()],
    "_meta": META,
}
LINK = ResourceLink("file:///a", "a", "A", "An a", "text/plain", 3, ANNOTATIONS, (ICON,), META)
RESOURCE = {key: value for key, value in LINK.to_wire().items() if key != "type"}
TEMPLATE = {"uriTemplate": "file:///{a}", **{k: v for k, v in RESOURCE.items() if k not in ("uri", "size")}}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
    "tasks": {"list": {}},
    "experimental": {"com.example/x": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}, "com.example/ui": {}},
    "ours": {},
}
BLOCKS = {
    "text": TextContent("hi", **EXTRAS),
    "image": ImageContent(b"i", "image/png", **EXTRAS),
    "audio": AudioContent(b"a", "audio/wav", **EXTRAS),
    "resource": EmbeddedResource(TextResourceContents("hi", "file:///a", "text/plain", META), **EXTRAS),
    "resource_link": LINK,
}
CONTENTS = [
    TextResourceContents("hi", "file:///a", "text/plain", META).to_wire(),
    BlobResourceContents(b"hi", "file:///b", "a/b", META).to_wire(),
]
STATELESS_ONLY = {"resultType": "complete", "_meta": {meta.SERVER_INFO: {"name": "shop", "version": "1"}, **META}}
CACHED = {**STATELESS_ONLY, "ttlMs": 0, "cacheScope": "private"}


def fields_of(revision, definition):
    return definitions(revision.version)[definition]["properties"].keys()


def check(revision, definition, shaped, rich):
    """`shaped` is valid, and has those fields of `rich` that the revision defines."""
    validator(revision.version, definition)(shaped)
    assert shaped.keys() == rich.keys() & fields_of(revision, definition)


@pytest.fixture(autouse=True)
def check_inputs_unchanged():
    rich = (IMPLEMENTATION, TOOL, PROMPT, RESOURCE, TEMPLATE, CAPABILITIES, CONTENTS, STATELESS_ONLY, CACHED)
    before = copy.deepcopy(rich)
    yield
    assert rich == before


def test_an_implementation(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            shaped = revision.shape_implementation(IMPLEMENTATION)
            check(revision, "Implementation", shaped, IMPLEMENTATION)


def test_a_tool(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            rich = {key: value for key, value in TOOL.items() if key != "execution"}
            shaped = revision.shape_tool(TOOL)
            check(revision, "Tool", shaped, rich)
            if "annotations" in shaped:
                assert shaped["annotations"] == {"title": "Add", "readOnlyHint": True}
            if "_meta" in shaped:
                assert shaped["_meta"] is META


def test_boolean_property_schemas_become_objects_before_the_stateless_era(
    subtests: pytest.Subtests,
) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            shaped = revision.shape_tool(TOOL)
            newest = revision is LATEST
            spelled = (
                TOOL["inputSchema"]["properties"] if newest else {"a": {}, "b": {"not": {}}, "c": {"type": "string"}}
            )
            assert shaped["inputSchema"]["properties"] == spelled
            if "outputSchema" in shaped:
                properties = shaped["outputSchema"]["properties"]
                assert properties["sum"] == (True if newest else {})
                assert properties["deep"] == TOOL["outputSchema"]["properties"]["deep"]


def test_an_output_schema_of_anything_but_an_object_is_left_out_before_the_stateless_era(
    subtests: pytest.Subtests,
) -> None:
    for output in [{"type": "array", "items": {}}, {"anyOf": [{"type": "object"}]}, {}]:
        for revision in REVISIONS.values():
            with subtests.test(output=output, revision=revision):
                shaped = revision.shape_tool({**TOOL, "outputSchema": output})
                assert shaped.get("outputSchema") == (output if revision is LATEST else None)
                validator(revision.version, "Tool")(shaped)


def test_other_schema_keywords_are_kept(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            schema = {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": {"a": {"$anchor": "a"}},
                "properties": {"x": {"$ref": "#a"}},
                "allOf": [{"if": True, "then": {}}],
                "additionalProperties": False,
            }
            assert revision.shape_tool({"name": "x", "inputSchema": schema})["inputSchema"] is schema


def test_a_prompt(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            shaped = revision.shape_prompt(PROMPT)
            check(revision, "Prompt", shaped, PROMPT)
            check(revision, "PromptArgument", shaped["arguments"][0], PROMPT["arguments"][0])
            assert revision.shape_prompt({"name": "a"}) == {"name": "a"}


def test_a_resource_and_a_template(subtests: pytest.Subtests) -> None:
    for kind in ["resource", "template"]:
        for revision in REVISIONS.values():
            with subtests.test(kind=kind, revision=revision):
                rich = {"resource": RESOURCE, "template": TEMPLATE}[kind]
                shaped = getattr(revision, f"shape_{kind}")(rich)
                check(revision, {"resource": "Resource", "template": "ResourceTemplate"}[kind], shaped, rich)
                assert shaped["annotations"].keys() == {"audience", "priority"} | (
                    set() if revision in (FIRST, BATCHING) else {"lastModified"}
                )


def test_annotations_that_would_be_empty_are_left_out(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            only_new = {"uri": "a:b", "name": "b", "annotations": {"lastModified": "2026-07-28"}}
            assert ("annotations" in revision.shape_resource(only_new)) == (revision not in (FIRST, BATCHING))


def test_capabilities(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            shaped = revision.shape_capabilities(CAPABILITIES)
            validator(revision.version, "ServerCapabilities")(shaped)
            expected = dict(CAPABILITIES)
            if not revision.core_tasks:
                del expected["tasks"]
            if revision is FIRST:
                del expected["completions"]
            if revision.era is Era.HANDSHAKE:
                expected["extensions"] = {"com.example/ui": {}}
            assert shaped == expected


def test_capabilities_without_extensions_omit_the_member(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            shaped = revision.shape_capabilities({"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
            assert ("extensions" in shaped) == (revision.era is Era.STATELESS)


def test_every_content_block_is_valid_in_every_revision(subtests: pytest.Subtests) -> None:
    for kind in BLOCKS:
        for revision in REVISIONS.values():
            with subtests.test(kind=kind, revision=revision):
                rich = BLOCKS[kind].to_wire()
                shaped = revision.shape_content(rich)
                validator(revision.version, "PromptMessage")({"role": "user", "content": shaped})
                definition = {"text": "TextContent", "image": "ImageContent", "audio": "AudioContent"}.get(
                    shaped["type"]
                )
                definition = (
                    definition or {"resource": "EmbeddedResource", "resource_link": "ResourceLink"}[shaped["type"]]
                )
                if shaped["type"] == kind:
                    check(revision, definition, shaped, rich)
                else:
                    assert shaped.keys() <= fields_of(revision, definition)
                if "resource" in shaped:
                    assert ("_meta" in shaped["resource"]) == (kind == "resource" and revision not in (FIRST, BATCHING))


def test_audio_becomes_an_embedded_resource_where_there_is_none():
    assert FIRST.shape_content(AudioContent(b"a", "audio/wav", **EXTRAS).to_wire()) == {
        "type": "resource",
        "resource": {"uri": "data:audio/wav", "mimeType": "audio/wav", "blob": "YQ=="},
        "annotations": {"audience": ["user"], "priority": 0.5},
    }
    assert BATCHING.shape_content(BLOCKS["audio"].to_wire())["type"] == "audio"


def test_a_resource_link_becomes_text_with_its_name_and_uri_where_there_is_none(subtests: pytest.Subtests) -> None:
    for revision in [FIRST, BATCHING]:
        with subtests.test(revision=revision):
            shaped = revision.shape_content(BLOCKS["resource_link"].to_wire())
            assert (shaped["type"], shaped["text"]) == ("text", "A: file:///a\nAn a")
            assert revision.shape_content(ResourceLink("file:///a", "a").to_wire()) == {
                "type": "text",
                "text": "a: file:///a",
            }


def test_an_unknown_block_is_a_bug():
    with pytest.raises(ValueError, match="'video'"):
        FIRST.shape_content({"type": "video"})


def test_a_read_result(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            rich = {"contents": CONTENTS, **CACHED}
            shaped = revision.shape_read_result(rich)
            check(revision, "ReadResourceResult", shaped, rich)
            assert revision.shape_contents(CONTENTS) == shaped["contents"]
            for contents, full in zip(shaped["contents"], CONTENTS, strict=True):
                assert contents.keys() == full.keys() & revision.contents_fields


def test_a_prompt_result(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            rich = {
                "messages": [user(block).to_wire() for block in BLOCKS.values()],
                "description": "Plans",
                **STATELESS_ONLY,
            }
            shaped = revision.shape_prompt_result(rich)
            check(revision, "GetPromptResult", shaped, rich)
            assert [message["content"] for message in shaped["messages"]] == [
                revision.shape_content(block.to_wire()) for block in BLOCKS.values()
            ]


def test_a_call_result(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            rich = {
                "content": [block.to_wire() for block in BLOCKS.values()],
                "structuredContent": {"sum": 3},
                "isError": False,
                **STATELESS_ONLY,
            }
            shaped = revision.shape_call_result(rich)
            check(revision, "CallToolResult", shaped, rich)
            texts = [block["text"] for block in shaped["content"] if block["type"] == "text"]
            assert ('{"sum":3}' in texts) == (revision in (FIRST, BATCHING))


def test_structured_content_other_than_objects_is_text_before_the_stateless_era(subtests: pytest.Subtests) -> None:
    for value in [[1, 2], 0, "", "text", False, None, 0.5]:
        for revision in REVISIONS.values():
            with subtests.test(value=value, revision=revision):
                shaped = revision.shape_call_result(
                    {"content": [], "structuredContent": value, "resultType": "complete"}
                )
                validator(revision.version, "CallToolResult")(shaped)
                if revision is LATEST:
                    assert shaped["structuredContent"] == value
                    assert shaped["content"] == []
                else:
                    assert "structuredContent" not in shaped
                    assert [json.loads(block["text"]) for block in shaped["content"]] == [value]


def test_structured_content_is_not_repeated_if_a_text_has_it(subtests: pytest.Subtests) -> None:
    cases = [
        ('{"b": 2, "a": 1}', {"a": 1, "b": 2}, True),
        ("true", True, True),
        ("hello", "hello", True),
        ('"hello"', "hello", True),
        ("hello", {"a": 1}, False),
        ("1", True, False),
        ('{"a":1}', {"a": True}, False),
        ("", None, False),
    ]
    for text, value, repeated in cases:
        with subtests.test(text=text, value=value, repeated=repeated):
            shaped = FIRST.shape_call_result({"content": [{"type": "text", "text": text}], "structuredContent": value})
            assert len(shaped["content"]) == (1 if repeated else 2)


def test_an_empty_result_is_exactly_empty_before_the_stateless_era(subtests: pytest.Subtests) -> None:
    for revision in [FIRST, BATCHING, FORMS, HANDSHAKEN]:
        with subtests.test(revision=revision):
            rich = {"resultType": "complete", "_meta": {meta.SERVER_INFO: {"name": "shop", "version": "1"}}}
            assert revision.shape_result(rich) == {}
            assert revision.shape_result({**rich, "ttlMs": 1, "cacheScope": "public", "tools": []}) == {"tools": []}
            assert LATEST.shape_result(rich) is rich


def test_the_meta_of_the_author_is_kept_in_results(subtests: pytest.Subtests) -> None:
    for revision in [FIRST, BATCHING, FORMS, HANDSHAKEN]:
        with subtests.test(revision=revision):
            assert revision.shape_result(CACHED) == {"_meta": META}


def test_a_valid_object_is_returned_unchanged():
    tool = {"name": "a", "inputSchema": {"type": "object", "properties": {"x": {}}}, "annotations": {"title": "A"}}
    result = {"content": [{"type": "text", "text": "hi"}], "isError": False}
    for revision in (BATCHING, FORMS, HANDSHAKEN, MODERN):
        assert revision.shape_tool(tool) is tool
        assert revision.shape_call_result(result) is result
        assert revision.shape_capabilities(result) is result
    rich = {"content": [block.to_wire() for block in BLOCKS.values()], "structuredContent": None, **STATELESS_ONLY}
    assert MODERN.shape_call_result(rich) is rich
    assert MODERN.shape_content(rich["content"][0]) is rich["content"][0]
    assert MODERN.shape_contents(CONTENTS) is CONTENTS
    assert MODERN.shape_resource(RESOURCE) is RESOURCE
    assert MODERN.shape_prompt(PROMPT) is PROMPT
    read, got = {"contents": CONTENTS}, {"messages": [user("hi").to_wire()]}
    assert MODERN.shape_read_result(read) is read
    assert MODERN.shape_prompt_result(got) is got
