"""Examples of messages, content, templates and methods."""

import json

import pytest

from mcp_django.protocol import errors, jsonrpc
from mcp_django.protocol.revisions import LATEST, REVISIONS
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.protocol.uri import UriTemplate
from mcp_django.server.dispatcher import METHODS
from mcp_django.testing import TestClient
from mcp_django.types import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from tests.server.client import HANDSHAKE, STATELESS, make_server

BOTH = (HANDSHAKE, STATELESS)
PNG = b"\x89PNG\r\n\x1a\n"


def test_messages_are_read_and_encoded() -> None:
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


async def test_tools_return_content_of_every_kind() -> None:
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
        blocks = (await TestClient(server, revision=revision).call_tool("everything"))["content"]
        assert [block["type"] for block in blocks] == ["text", "image", "audio", "resource_link", "resource"]
        assert all(block["annotations"] == {"priority": 1} and block["_meta"] == said[1] for block in blocks)


async def test_uri_templates_match() -> None:
    assert UriTemplate("items://{id}").match("items://7") == {"id": "7"}
    assert UriTemplate("items://{id}").match("items://7/8") is None
    assert UriTemplate("files://{+path}").match("files://a/b") == {"path": "a/b"}
    assert UriTemplate("files://{path*}").match("files://a/b") == {"path": ["a", "b"]}
    server = make_server()

    @server.resource("find://{q}{?page,size}")
    def find(q: str, page: int = 1, size: float | None = None) -> list[object]:
        return [q, page, size]

    async def read(uri: str) -> object:
        return json.loads((await TestClient(server).read_resource(uri))[0]["text"])

    assert await read("find://tea") == ["tea", 1, None]
    assert await read("find://tea?size=1.5&page=2") == ["tea", 2, 1.5]
    with pytest.raises(errors.ResourceNotFound):
        await read("find://tea?page=two")


def test_methods_of_all_revisions_are_served() -> None:
    served = {method for revision in REVISIONS.values() for method in revision.methods}
    assert served <= set(METHODS)
    assert {"initialize", "logging/setLevel", "resources/subscribe", "server/discover"} <= served
    assert not any(method.startswith("tasks/") for method in LATEST.methods)
    assert len(LOG_LEVELS) == 8
