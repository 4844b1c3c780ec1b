"""Bodies, in the media types of the document."""

import base64
from email import message_from_bytes
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.contrib.openapi.pets import Api, document, operation, peer, tools

FILE = base64.b64encode(b"\x00\x01").decode()


def posting(contents: Any, *, required: bool = True, **more: Any) -> dict[str, Any]:
    body = {"required": required, "content": contents}
    return document({"/pets": {"post": operation(operationId="post", requestBody=body, **more)}})


def of(schema: Any, media_type: str = "application/json", **more: Any) -> dict[str, Any]:
    return posting({media_type: {"schema": schema, **more}})


OBJECT = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
}


async def sent(source: Any, **arguments: Any) -> Api:
    api = Api()
    result = await peer(source, api).call("post", **arguments)
    assert result["isError"] is False, result
    return api


async def test_members_of_a_json_body_are_arguments() -> None:
    api = await sent(of(OBJECT, "application/merge-patch+json"), name="Rex", tags=["a"])
    assert api.json == {"name": "Rex", "tags": ["a"]}
    assert api.last.headers["content-type"] == "application/merge-patch+json"


async def test_any_other_body_is_one_argument(subtests: pytest.Subtests) -> None:
    for schema in [
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"oneOf": [{"type": "integer"}, OBJECT]},
        {"type": "object", "nullable": True, "properties": {"a": {}}},
    ]:
        with subtests.test(schema=schema):
            listed = (await tools(of(schema)))["post"]["inputSchema"]
            assert (list(listed["properties"]), listed["required"]) == (["body"], ["body"])


async def test_a_body_that_is_a_list() -> None:
    assert (await sent(of({"type": "array"}), body=[1, 2])).json == [1, 2]


async def test_all_of_several_objects_is_merged_into_one_object() -> None:
    source = of(
        {"allOf": [OBJECT, {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}}]}
    )
    listed = (await tools(source))["post"]["inputSchema"]
    assert sorted(listed["required"]) == ["age", "name"]
    assert (await sent(source, name="Rex", age=3)).json == {"name": "Rex", "age": 3}


async def test_an_omitted_optional_body_is_not_sent() -> None:
    source = posting({"application/json": {"schema": OBJECT}}, required=False)
    api = await sent(source)
    assert api.last.content == b""
    assert "content-type" not in api.last.headers
    assert (await sent(source, name="Rex")).json == {"name": "Rex"}


async def test_a_required_body_without_members_is_an_empty_object() -> None:
    assert (await sent(of({"type": "object", "properties": {"a": {}}}))).json == {}


async def test_null_is_sent_as_null_in_json() -> None:
    source = of({"type": "object", "properties": {"a": {"type": "string", "nullable": True}}})
    assert (await sent(source, a=None)).json == {"a": None}


async def test_a_form() -> None:
    api = await sent(of(OBJECT, "application/x-www-form-urlencoded"), name="A & B = C+", tags=["x", "y"])
    assert parse_qs(api.last.content.decode()) == {"name": ["A & B = C+"], "tags": ["x", "y"]}
    assert api.last.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_a_form_is_sent_in_its_declared_encoding() -> None:
    encoding = {"tags": {"style": "form", "explode": False}, "name": {"contentType": "application/json"}}
    source = of(OBJECT, "application/x-www-form-urlencoded", encoding=encoding)
    api = await sent(source, name="Rex", tags=["x", "y"])
    assert api.last.content == b"name=%22Rex%22&tags=x,y"


UPLOAD = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "A picture."},
        "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "about": {"type": "object"},
        "title": {"type": "string"},
    },
}


def parts(api: Api) -> list[tuple[str | None, str | None, str, bytes]]:
    head = b"Content-Type: " + api.last.headers["content-type"].encode() + b"\r\n\r\n"
    found = []
    for part in message_from_bytes(head + api.last.content).get_payload():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        found.append((name, part.get_filename(), part.get_content_type(), content))
    return found


async def test_files_are_parts_of_a_form() -> None:
    given = {"content": FILE, "name": 'a"\r\nX: y.png', "content_type": "image/png\r\nX: y"}
    api = await sent(
        of(UPLOAD, "multipart/form-data"), file=given, more=[FILE, FILE], about={"a": 1}, title="Rex\r\n--x"
    )
    file, *more, about, title = parts(api)
    assert file == ("file", "a%22%0D%0AX: y.png", "image/pngx: y", b"\x00\x01")
    assert more == [("more", "more", "application/octet-stream", b"\x00\x01")] * 2
    assert about == ("about", None, "application/json", b'{"a":1}')
    assert title == ("title", None, "text/plain", b"Rex\r\n--x")


async def test_a_file_argument_describes_its_forms() -> None:
    listed = (await tools(of(UPLOAD, "multipart/form-data")))["post"]["inputSchema"]["properties"]
    assert listed["file"]["description"].startswith("A picture. A file: its bytes in base64")
    assert [branch["type"] for branch in listed["more"]["items"]["anyOf"]] == ["string", "object"]
    assert "base64" in await peer(of(UPLOAD, "multipart/form-data")).error("post", file="not base64!")


async def test_a_file_of_openapi_3_1_is_recognized_by_its_media_type() -> None:
    schema = {"type": "object", "properties": {"file": {"contentMediaType": "image/png"}}}
    source = of(schema, "multipart/form-data", encoding={"file": {"contentType": "image/png"}})
    api = await sent({**source, "openapi": "3.1.0"}, file=FILE)
    assert parts(api) == [("file", "file.png", "image/png", b"\x00\x01")]


async def test_other_media_types(subtests: pytest.Subtests) -> None:
    for media_type, given, content, header in [
        ("text/plain", "hällo", "hällo".encode(), "text/plain; charset=utf-8"),
        ("application/xml", "<a/>", b"<a/>", "application/xml; charset=utf-8"),
        ("application/octet-stream", FILE, b"\x00\x01", "application/octet-stream"),
        ("image/*", FILE, b"\x00\x01", "application/octet-stream"),
        ("image/png", FILE, b"\x00\x01", "image/png"),
        ("*/*", {"a": 1}, b'{"a":1}', "application/json"),
    ]:
        with subtests.test(media_type=media_type, given=given, content=content, header=header):
            api = await sent(of({}, media_type), body=given)
            assert (api.last.content, api.last.headers["content-type"]) == (content, header)


async def test_json_is_chosen_among_several() -> None:
    source = posting({"application/xml": {"schema": {}}, "application/json": {"schema": OBJECT}})
    assert (await sent(source, name="Rex")).json == {"name": "Rex"}
