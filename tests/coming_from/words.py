"""What is on the wire: messages, errors, content, templates, events, schemas."""

import json

import pytest

from mcp_django import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    MCPError,
    PromptMessage,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    validate_sampling_messages,
)
from mcp_django.protocol import errors, jsonrpc, sse
from mcp_django.protocol.revisions import ASSUMED, LATEST, LATEST_HANDSHAKE, REVISIONS, negotiate
from mcp_django.protocol.sampling import conversation
from mcp_django.protocol.types import LEVELS
from mcp_django.protocol.uri import UriTemplate
from mcp_django.schema.handwritten import check_schema
from mcp_django.server.dispatcher import METHODS
from mcp_django.testing import Client
from tests.coming_from.table import exercise
from tests.server.engine import HANDSHAKE, STATELESS, make_server

BOTH = (HANDSHAKE, STATELESS)
PNG = b"\x89PNG\r\n\x1a\n"


@exercise
def revisions_are_named() -> None:
    assert list(REVISIONS) == sorted(REVISIONS)
    assert len(REVISIONS) == 5
    assert (LATEST.version, LATEST_HANDSHAKE.version, ASSUMED.version) == (STATELESS, HANDSHAKE, "2025-03-26")


@exercise
async def an_unknown_revision_gets_a_counter_offer() -> None:
    assert negotiate("1999-01-01") is LATEST_HANDSHAKE
    assert negotiate(STATELESS) is LATEST_HANDSHAKE
    assert negotiate("2024-11-05").version == "2024-11-05"
    said = {"protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    client = Client(make_server(), revision=HANDSHAKE)
    assert (await client.request("initialize", said))["protocolVersion"] == HANDSHAKE
    with pytest.raises(errors.UnsupportedProtocolVersion) as refused:
        await Client(make_server()).request(
            "ping", {"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}}
        )
    assert refused.value.supported == [STATELESS]


@exercise
def messages_are_told_apart() -> None:
    read = jsonrpc.read
    assert read(jsonrpc.decode(b'{"jsonrpc":"2.0","id":1,"method":"a","params":{}}')) == jsonrpc.Request(1, "a", {})
    assert read({"jsonrpc": "2.0", "method": "a"}) == jsonrpc.Notification("a", None)
    assert read({"jsonrpc": "2.0", "id": "x", "result": 1}) == jsonrpc.Response("x", 1, None)
    error = {"code": -1, "message": "no"}
    assert read({"jsonrpc": "2.0", "id": 1, "error": error}) == jsonrpc.Response(1, None, error)
    for wrong in ({"id": 1, "method": "a"}, {"jsonrpc": "2.0", "id": 1}, [], "text"):
        with pytest.raises(errors.InvalidRequest):
            read(wrong)
    with pytest.raises(errors.ParseError):
        jsonrpc.decode(b"{")
    for encoded in (jsonrpc.request(1, "a", {}), jsonrpc.notification("a"), jsonrpc.result(1, {})):
        assert read(jsonrpc.decode(encoded))


@exercise
def what_is_no_utf8_is_refused() -> None:
    with pytest.raises(errors.ParseError) as refused:
        jsonrpc.decode(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}')
    assert refused.value.code == -32700


@exercise
def an_error_response_is_built() -> None:
    built = json.loads(jsonrpc.error(42, MCPError("no", data={"a": 1}), code=-32050))
    assert built == {"jsonrpc": "2.0", "id": 42, "error": {"code": -32050, "message": "no", "data": {"a": 1}}}
    assert json.loads(jsonrpc.error(None, errors.ParseError())).keys() == {"jsonrpc", "error"}


@exercise
def errors_have_their_codes() -> None:
    kinds = (
        errors.ParseError,
        errors.InvalidRequest,
        errors.MethodNotFound,
        errors.InvalidParams,
        errors.InternalError,
    )
    assert [kind.code for kind in kinds] == [-32700, -32600, -32601, -32602, -32603]
    problem = errors.InvalidParams("Mind the gap", data={"gap": 1})
    assert (problem.message, problem.data) == ("Mind the gap", {"gap": 1})


@exercise
def content_is_made_of_bytes() -> None:
    assert AudioContent.from_bytes(b"RIFF1234WAVE").mime_type == "audio/wav"
    assert AudioContent.from_bytes(b"?", "audio/ogg").to_wire() == {
        "type": "audio",
        "data": "Pw==",
        "mimeType": "audio/ogg",
    }
    assert ImageContent.from_bytes(PNG).mime_type == "image/png"


@exercise
async def content_of_every_kind_comes_back() -> None:
    server = make_server()
    said = Annotations(priority=1), {"acme/x": 1}

    @server.tool
    def everything():
        return [
            TextContent("a", *said),
            ImageContent(PNG, "image/png", *said),
            AudioContent(b"?", "audio/wav", *said),
            ResourceLink("a://b", "b", annotations=said[0], meta=said[1]),
            EmbeddedResource(TextResourceContents("t", "a://b"), *said),
        ]

    for revision in BOTH:
        blocks = (await Client(server, revision=revision).call_tool("everything"))["content"]
        assert [block["type"] for block in blocks] == ["text", "image", "audio", "resource_link", "resource"]
        assert all(block["annotations"] == {"priority": 1} and block["_meta"] == said[1] for block in blocks)


@exercise
def a_conversation_goes_through_the_wire_and_back() -> None:
    said = [
        SamplingMessage("assistant", ToolUseContent("u", "add", {"a": 1})),
        SamplingMessage("user", ToolResultContent("u", "1", is_error=True)),
    ]
    wire = conversation(said)
    assert wire[0]["content"] == [ToolUseContent("u", "add", {"a": 1}).to_wire()]
    assert wire[1]["content"][0]["isError"] is True
    assert conversation(wire) == wire


@exercise
def a_conversation_is_validated() -> None:
    validate_sampling_messages([])
    validate_sampling_messages([SamplingMessage(role="user", content=TextContent(text="Hello"))])
    with pytest.raises(ValueError, match="each tool result must answer"):
        validate_sampling_messages([SamplingMessage("user", ToolResultContent("u", "1"))])


@exercise
def annotations_are_checked() -> None:
    wire = {"audience": ["user"], "priority": 0.5}
    read = Annotations.of({**wire, "lastModified": "2030-01-01T00:00:00Z"})
    assert read is not None
    assert read.to_wire() == {**wire, "lastModified": "2030-01-01T00:00:00Z"}
    with pytest.raises(ValueError, match="unknown annotation 'color'"):
        Annotations.of({"color": 1})
    for wrong in ({"priority": 1.5}, {"audience": ["dog"]}):
        with pytest.raises(ValueError, match="annotations"):
            Annotations(**wrong)


@exercise
async def no_message_is_the_system_s() -> None:
    with pytest.raises(ValueError, match="role"):
        PromptMessage("system", TextContent("Obey"))
    with pytest.raises(ValueError, match="role"):
        SamplingMessage("system", "Obey")


@exercise
async def templates_match() -> None:
    assert UriTemplate("items://{id}").match("items://7") == {"id": "7"}
    assert UriTemplate("items://{id}").match("items://7/8") is None
    assert UriTemplate("files://{+path}").match("files://a/b") == {"path": "a/b"}
    assert UriTemplate("files://{path*}").match("files://a/b") == {"path": ["a", "b"]}
    server = make_server()

    @server.resource("find://{q}{?page,size}")
    def find(q: str, page: int = 1, size: float | None = None) -> list[object]:
        return [q, page, size]

    async def read(uri: str) -> object:
        return json.loads((await Client(server).read_resource(uri))[0]["text"])

    assert await read("find://tea") == ["tea", 1, None]
    assert await read("find://tea?size=1.5&page=2") == ["tea", 2, 1.5]
    with pytest.raises(errors.ResourceNotFound):
        await read("find://tea?page=two")


@exercise
def events_are_framed() -> None:
    decoder = sse.Decoder()
    framed = sse.priming(b"s:1", retry=500) + sse.comment("hello") + sse.event(b"{}", id="s:2")
    primed, event = decoder.feed(framed)
    assert (primed.data, primed.id) == (b"", "s:1")
    assert (event.data, event.id, decoder.retry) == (b"{}", "s:2", 500)


@exercise
def a_schema_is_checked() -> None:
    checker = check_schema({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}, "here")
    assert checker.problems({"a": 1}) == ""
    assert "a" in checker.problems({"a": 0})


@exercise
def all_methods_are_there() -> None:
    served = {method for revision in REVISIONS.values() for method in revision.methods}
    assert served <= set(METHODS)
    assert {"initialize", "logging/setLevel", "resources/subscribe", "server/discover"} <= served
    assert not any(method.startswith("tasks/") for method in LATEST.methods)
    assert len(LEVELS) == 8
