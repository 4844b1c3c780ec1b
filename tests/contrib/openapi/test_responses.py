"""Answers: results, and errors in words."""

import base64
import json
import logging
from typing import Any

import httpx
import pytest

from tests.contrib.openapi.pets import Api, document, operation, peer, tools

PNG = b"\x89PNG\r\n\x1a\n"


def answering(status: int = 200, schema: Any = None, media_type: str = "application/json") -> dict[str, Any]:
    content = {"content": {media_type: {"schema": schema}}} if schema is not None else {}
    return document(
        {"/x": {"get": operation(operationId="get", responses={str(status): {"description": "", **content}})}}
    )


async def result(source: Any, response: httpx.Response) -> dict[str, Any]:
    return await peer(source, Api(lambda request, response=response: response)).call("get")


PET = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "tags": {"type": "array"}}}


async def test_an_object_is_the_structured_content() -> None:
    found = await result(answering(schema=PET), httpx.Response(200, json={"id": 1, "more": 2}))
    assert found["structuredContent"] == {"id": 1, "more": 2}
    assert found["content"] == [{"type": "text", "text": '{"id":1,"more":2}'}]


async def test_a_list_is_wrapped() -> None:
    source = answering(schema={"type": "array", "items": {"type": "integer"}})
    found = await result(source, httpx.Response(200, json=[1, 2]))
    assert found["structuredContent"] == {"result": [1, 2]}
    assert json.loads(found["content"][0]["text"]) == [1, 2]
    assert (await tools(source))["get"]["outputSchema"]["properties"] == {
        "result": {"type": "array", "items": {"type": "integer"}}
    }


async def test_values_that_violate_the_schema_are_in_the_text_only(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for value, kept in [
        ({"id": "seven", "tags": ["a"]}, {"tags": ["a"]}),
        ({"id": 1, "tags": None}, {"id": 1}),
        ({"tags": []}, {"tags": []}),
        ("sorry", {}),
        ([1], {}),
        (None, {}),
    ]:
        with subtests.test(value=value, kept=kept):
            caplog.clear()
            with caplog.at_level(logging.WARNING, logger="mcp_django.providers"):
                body = json.dumps(value)
                found = await result(
                    answering(schema=PET), httpx.Response(200, text=body, headers={"content-type": "a/b+json"})
                )
            assert found["structuredContent"] == kept
            assert json.loads(found["content"][0]["text"]) == value
            assert ("violates its document" in caplog.text) == (value != {"tags": []})


async def test_a_violation_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    client = peer(answering(schema=PET), Api("no object"))
    with caplog.at_level(logging.WARNING, logger="mcp_django.providers"):
        await client.call("get")
        await client.call("get")
    assert caplog.text.count("violates its document") == 1


async def test_the_validation_of_a_large_invalid_response_is_bounded() -> None:
    rows = [{"id": str(number)} for number in range(20_000)]
    source = answering(schema={"type": "object", "properties": {"rows": {"type": "array", "items": PET}, "n": {}}})
    found = await result(source, httpx.Response(200, json={"rows": rows, "n": 1}))
    assert found["structuredContent"] == {"rows": [{}] * 20_000, "n": 1}


async def test_the_default_response_counts_as_success_without_another_one() -> None:
    source = document(
        {
            "/x": {
                "get": operation(
                    operationId="get",
                    responses={"default": {"content": {"application/json": {"schema": PET}}}, "404": {}},
                )
            }
        }
    )
    assert "outputSchema" in (await tools(source))["get"]


async def test_without_a_schema_json_is_text() -> None:
    found = await result(answering(), httpx.Response(200, json={"a": 1}))
    assert "structuredContent" not in found
    assert found["content"][0]["text"] == '{"a":1}'


async def test_no_content() -> None:
    found = await result(answering(204), httpx.Response(204))
    assert found["content"] == [{"type": "text", "text": "No Content."}]
    assert found["_meta"]["mcp-django/status"] == 204


async def test_other_media_types(subtests: pytest.Subtests) -> None:
    for media_type, body, block in [
        ("text/plain; charset=latin-1", "hällo".encode("latin-1"), {"type": "text", "text": "hällo"}),
        ("application/json", b"{broken", {"type": "text", "text": "{broken"}),
        ("image/png", PNG, {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}),
        ("audio/wav", b"RIFF", {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}),
        (
            "application/pdf",
            b"%PDF",
            {
                "type": "resource",
                "resource": {"uri": "data:application/pdf", "mimeType": "application/pdf", "blob": "JVBERg=="},
            },
        ),
    ]:
        with subtests.test(media_type=media_type, body=body, block=block):
            found = await result(answering(), httpx.Response(200, content=body, headers={"content-type": media_type}))
            assert found["content"] == [block]


async def test_an_error_is_described_in_words(subtests: pytest.Subtests) -> None:
    for response, told in [
        (
            httpx.Response(
                409,
                json={"type": "about:blank", "title": "Out of stock", "detail": "None left.", "trace": "x"},
                headers={"content-type": "application/problem+json"},
            ),
            "409 Conflict\nOut of stock\nNone left.",
        ),
        (httpx.Response(400, json={"error": "bad", "error_description": "Very."}), "400 Bad Request\nbad\nVery."),
        (httpx.Response(400, json={"detail": [{"loc": ["x"]}]}), '400 Bad Request\n{"detail":[{"loc":["x"]}]}'),
        (httpx.Response(400, json={"name": ["Taken."]}), '400 Bad Request\n{"name":["Taken."]}'),
        (
            httpx.Response(500, text="<h1>Traceback</h1>", headers={"content-type": "text/html"}),
            "500 Internal Server Error",
        ),
        (httpx.Response(503, text="Busy."), "503 Service Unavailable\nBusy."),
        (
            httpx.Response(401),
            "401 Unauthorized\nThe credentials are missing or were rejected.",
        ),
        (httpx.Response(404), "404 Not Found\nNot found, or not visible with these credentials."),
        (httpx.Response(429, headers={"retry-after": "7"}), "429 Too Many Requests\nTry again in 7 seconds."),
        (httpx.Response(302, headers={"location": "https://x"}), "302 Found: the server sends the request elsewhere."),
        (httpx.Response(599, content=b"\xff\x00"), "599 Status unknown"),
    ]:
        with subtests.test(response=response, told=told):
            assert await peer(answering(), Api(lambda request, response=response: response)).error("get") == told


async def test_the_text_of_an_error_is_short() -> None:
    long = httpx.Response(400, text="\n".join(["x" * 500] * 100))
    assert len(await peer(answering(), Api(lambda request: long)).error("get")) < 2100


async def test_a_response_that_is_too_large_is_refused() -> None:
    api = Api(lambda request: httpx.Response(200, content=b"x" * 2000))
    assert "larger than 1000 bytes" in await peer(answering(), api, max_size=1000).error("get")
