"""Return values of handlers, in the form of the protocol."""

import base64
import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest
from django.utils.translation import gettext_lazy

from mcp_django import MCPError, ToolResult
from mcp_django.protocol import jsonrpc
from mcp_django.schema import OutputError
from mcp_django.server.primitives.decorators import build_prompt, build_tool
from mcp_django.server.primitives.results import (
    build_completion_result,
    build_prompt_result,
    build_read_result,
    build_tool_result,
)
from mcp_django.types import (
    AudioContent,
    BlobResourceContents,
    Completion,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    PromptResult,
    ResourceLink,
    ResourceResult,
    TextContent,
    TextResourceContents,
)
from tests.server.client import PipelineClient, make_server

PNG = b"\x89PNG"
B64 = base64.b64encode(PNG).decode()
URI = "test://x"


@dataclass
class Point:
    x: int
    y: int


class Figure:
    """Shows itself as notebooks ask for it."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def _repr_png_(self) -> Any:
        return self.data


class Photo:
    def _repr_jpeg_(self) -> bytes:
        return PNG


def untyped() -> Any: ...


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


IMAGE = {"type": "image", "data": B64, "mimeType": "image/png"}


def test_every_value_of_a_tool_is_converted(subtests: pytest.Subtests) -> None:
    cases = [
        (None, []),
        ("hello", [text("hello")]),
        ("", [text("")]),
        (3, [text("3")]),
        (1.5, [text("1.5")]),
        (True, [text("true")]),
        ({"a": 1}, [text('{"a":1}')]),
        ([1, 2], [text("[1,2]")]),
        (["a", "b"], [text('["a","b"]')]),
        (Point(1, 2), [text('{"x":1,"y":2}')]),
        ([Point(1, 2)], [text('[{"x":1,"y":2}]')]),
        (TextContent("hi"), [text("hi")]),
        ([TextContent("hi"), "and", 3], [text("hi"), text("and"), text("3")]),
        ((TextContent("hi"), None), [text("hi"), text("null")]),
        (ImageContent(PNG, "image/png"), [IMAGE]),
        (AudioContent(PNG, "audio/wav"), [{"type": "audio", "data": B64, "mimeType": "audio/wav"}]),
        (ResourceLink(URI, "x"), [{"type": "resource_link", "uri": URI, "name": "x"}]),
        (
            EmbeddedResource(TextResourceContents("a", uri=URI)),
            [{"type": "resource", "resource": {"uri": URI, "text": "a"}}],
        ),
        (Figure(PNG), [IMAGE]),
        (Figure(B64), [IMAGE]),
        (Photo(), [{**IMAGE, "mimeType": "image/jpeg"}]),
        ([Figure(PNG), "caption"], [IMAGE, text("caption")]),
    ]
    for value, content in cases:
        with subtests.test(value=value, content=content):
            assert build_tool_result(build_tool(untyped), value) == {"content": content, "isError": False}


def test_bytes_of_a_tool_are_an_embedded_resource(subtests: pytest.Subtests) -> None:
    for value in [PNG, bytearray(PNG), memoryview(PNG)]:
        with subtests.test(value=value):
            (block,) = build_tool_result(build_tool(untyped), value)["content"]
            assert block["type"] == "resource"
            assert block["resource"]["blob"] == B64


def test_an_object_with_a_schema_is_structured_and_repeated_as_text() -> None:
    def point() -> Point: ...

    result = build_tool_result(build_tool(point), Point(1, 2))
    assert result == {"content": [text('{"x":1,"y":2}')], "structuredContent": {"x": 1, "y": 2}, "isError": False}


def test_a_value_with_a_schema_is_wrapped_but_not_in_its_text() -> None:
    def numbers() -> list[int]: ...
    def word() -> str: ...

    assert build_tool_result(build_tool(numbers), [1])["structuredContent"] == {"result": [1]}
    assert build_tool_result(build_tool(numbers), [1])["content"] == [text("[1]")]
    assert build_tool_result(build_tool(word), "hi")["content"] == [text("hi")]


def test_a_tool_result_is_sent_unchanged() -> None:
    full = ToolResult(["a", TextContent("b")], {"n": Point(1, 2)}, True, {"example.com/a": 1})
    assert build_tool_result(build_tool(untyped), full) == {
        "content": [text("a"), text("b")],
        "structuredContent": {"n": {"x": 1, "y": 2}},
        "isError": True,
        "_meta": {"example.com/a": 1},
    }
    assert build_tool_result(build_tool(untyped), ToolResult()) == {"content": [], "isError": False}
    assert build_tool_result(build_tool(untyped), ToolResult("a")) == {"content": [text("a")], "isError": False}


def test_structured_content_without_text_is_repeated_as_text() -> None:
    def point() -> Point: ...

    result = build_tool_result(build_tool(point), ToolResult(structured=Point(1, 2)))
    assert (result["content"], result["structuredContent"]) == ([text('{"x":1,"y":2}')], {"x": 1, "y": 2})
    own = build_tool_result(build_tool(point), ToolResult("one and two", structured=Point(1, 2)))
    assert own["content"] == [text("one and two")]
    failed = build_tool_result(build_tool(point), ToolResult("no", is_error=True))
    assert failed == {"content": [text("no")], "isError": True}


def test_a_tool_result_without_the_structured_content_of_its_schema_is_a_bug() -> None:
    def point() -> Point: ...

    with pytest.raises(OutputError):
        build_tool_result(build_tool(point), ToolResult("text"))


def test_every_value_of_a_resource_is_converted(subtests: pytest.Subtests) -> None:
    cases = [
        ("a", [{"uri": URI, "mimeType": "text/plain", "text": "a"}]),
        (PNG, [{"uri": URI, "mimeType": "application/octet-stream", "blob": B64}]),
        (bytearray(PNG), [{"uri": URI, "mimeType": "application/octet-stream", "blob": B64}]),
        ({"a": 1}, [{"uri": URI, "mimeType": "application/json", "text": '{"a":1}'}]),
        ([1], [{"uri": URI, "mimeType": "application/json", "text": "[1]"}]),
        ([], [{"uri": URI, "mimeType": "application/json", "text": "[]"}]),
        (Point(1, 2), [{"uri": URI, "mimeType": "application/json", "text": '{"x":1,"y":2}'}]),
        (TextResourceContents("a"), [{"uri": URI, "text": "a"}]),
        (BlobResourceContents(PNG, uri="test://y"), [{"uri": "test://y", "blob": B64}]),
        (
            [TextResourceContents("a"), BlobResourceContents(PNG, mime_type="image/png")],
            [{"uri": URI, "text": "a"}, {"uri": URI, "mimeType": "image/png", "blob": B64}],
        ),
        (ResourceResult([TextResourceContents("a")]), [{"uri": URI, "text": "a"}]),
        (
            ResourceResult(["a", PNG]),
            [
                {"uri": URI, "mimeType": "text/plain", "text": "a"},
                {"uri": URI, "mimeType": "application/octet-stream", "blob": B64},
            ],
        ),
        (ResourceResult([]), []),
    ]
    for value, contents in cases:
        with subtests.test(value=value, contents=contents):
            assert build_read_result(URI, None, value) == {"contents": contents}


def test_contents_have_the_mime_type_that_was_declared(subtests: pytest.Subtests) -> None:
    for value in ["a", PNG, {"a": 1}, TextResourceContents("a")]:
        with subtests.test(value=value):
            (contents,) = build_read_result(URI, "text/x-own", value)["contents"]
            assert contents["mimeType"] == "text/x-own"


def test_a_resource_result_may_have_meta() -> None:
    result = build_read_result(URI, None, ResourceResult([TextResourceContents("a")], meta={"example.com/a": 1}))
    assert result["_meta"] == {"example.com/a": 1}


def user(value: str) -> dict[str, Any]:
    return {"role": "user", "content": text(value)}


def test_every_value_of_a_prompt_is_converted(subtests: pytest.Subtests) -> None:
    cases = [
        ("hi", [user("hi")]),
        (["hi", "ho"], [user("hi"), user("ho")]),
        (PromptMessage("assistant", TextContent("hi")), [{"role": "assistant", "content": text("hi")}]),
        (["a", PromptMessage("assistant", TextContent("b"))], [user("a"), {"role": "assistant", "content": text("b")}]),
        (TextContent("hi"), [user("hi")]),
        (ImageContent(PNG, "image/png"), [{"role": "user", "content": IMAGE}]),
        ({"a": 1}, [user('{"a":1}')]),
        ([], []),
    ]
    for value, messages in cases:
        with subtests.test(value=value, messages=messages):
            built = build_prompt(untyped, "p", description="D")
            assert build_prompt_result(built, value) == {"messages": messages, "description": "D"}


def test_a_prompt_result_may_have_a_description_and_meta() -> None:
    built = build_prompt(untyped, "p", description="D")
    result = build_prompt_result(built, PromptResult("hi", description="other", meta={"example.com/a": 1}))
    assert result == {"messages": [user("hi")], "description": "other", "_meta": {"example.com/a": 1}}
    assert build_prompt_result(built, PromptResult("hi"))["description"] == "D"


MANY = [str(n) for n in range(250)]


def test_a_hundred_values_of_a_completion_are_sent_at_most(subtests: pytest.Subtests) -> None:
    cases = [
        (None, {"values": []}),
        ([], {"values": []}),
        (("a", "b"), {"values": ["a", "b"]}),
        ((word for word in "ab"), {"values": ["a", "b"]}),
        ([gettext_lazy("a")], {"values": ["a"]}),
        (map(str, itertools.count()), {"values": MANY[:100], "hasMore": True}),
        (MANY[:100], {"values": MANY[:100]}),
        (MANY[:101], {"values": MANY[:100], "total": 101, "hasMore": True}),
        (MANY, {"values": MANY[:100], "total": 250, "hasMore": True}),
        (Completion(["a"], total=9, has_more=True), {"values": ["a"], "total": 9, "hasMore": True}),
        (Completion(["a"], has_more=False), {"values": ["a"], "hasMore": False}),
        (Completion(MANY, total=1000), {"values": MANY[:100], "total": 1000, "hasMore": True}),
    ]
    for value, completion in cases:
        with subtests.test(value=value, completion=completion):
            assert build_completion_result(value) == {"completion": completion}


def test_a_completer_that_returns_no_list_is_a_bug(subtests: pytest.Subtests) -> None:
    odd: Any = [["a", 7], [b"a"], Completion(["a"], total="9"), Completion(["a"], has_more=1)]  # type: ignore[arg-type]  # values of wrong types
    for value in ["text", 7, object(), Completion("text"), *odd]:
        with subtests.test(value=value), pytest.raises(TypeError):
            build_completion_result(value)


async def test_a_completer_that_returns_no_list_is_reported_without_details() -> None:
    server = make_server()
    server.prompt(lambda x: x, name="p")
    server.completion("p", "x")(lambda value: "text")
    asked = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "x", "value": ""}}
    with pytest.raises(MCPError, match=r"^Internal error \(reference"):
        await PipelineClient(server).request("completion/complete", asked)


async def test_an_argument_without_completion_has_no_values() -> None:
    server = make_server()
    server.prompt(lambda x: x, name="p")
    server.completion("p", "y")(lambda value: ["a"])
    asked = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "x", "value": ""}}
    assert (await PipelineClient(server).request("completion/complete", asked))["completion"] == {"values": []}


def test_not_a_number_is_refused_by_a_schema_and_null_without_one() -> None:
    def measure_any() -> Any: ...
    def measure_all() -> dict[str, Any]: ...
    def measure() -> float: ...
    def measure_maybe() -> float | None: ...
    def measure_each() -> dict[str, float]: ...

    for number in (math.nan, math.inf):
        for fn, value in ((measure_any, {"n": number}), (measure_all, {"n": [number]})):
            encoded = jsonrpc.dumps(build_tool_result(build_tool(fn), value))
            assert b"null" in encoded
            assert b"NaN" not in encoded
        for strict, value in ((measure, number), (measure_maybe, number), (measure_each, {"n": number})):
            with pytest.raises(OutputError, match=strict.__name__):
                build_tool_result(build_tool(strict), value)
