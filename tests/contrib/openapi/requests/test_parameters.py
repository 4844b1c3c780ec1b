"""Parameters: values are serialized, and none leaves its place."""

from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.contrib.openapi.requests.parameters import PathTemplate
from mcp_django.schema import ArgumentError, DeclarationError
from tests.contrib.openapi.pets import Api, document, operation, parameter, peer, tools

LIST, OBJECT = ["blue", "black"], {"R": 100, "G": 200}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)


def written(style: str, explode: bool, value: Any) -> str:
    """A query string."""
    pairs = OperationParameter("color", "query", {}, style=style, explode=explode).encode_pairs(value)
    return "&".join(f"{name}={text}" for name, text in pairs)


def test_a_query_is_serialized_as_in_openapi(subtests: pytest.Subtests) -> None:
    for style, explode, value, expected in [
        ("form", True, "blue", "color=blue"),
        ("form", True, "", "color="),
        ("form", True, LIST, "color=blue&color=black"),
        ("form", False, LIST, "color=blue,black"),
        ("form", True, OBJECT, "R=100&G=200"),
        ("form", False, OBJECT, "color=R,100,G,200"),
        ("form", False, [], ""),
        ("spaceDelimited", False, LIST, "color=blue%20black"),
        ("pipeDelimited", False, LIST, "color=blue%7Cblack"),
        ("spaceDelimited", False, OBJECT, "color=R%20100%20G%20200"),
        ("deepObject", True, OBJECT, "color%5BR%5D=100&color%5BG%5D=200"),
        ("deepObject", True, {"a": {"b": [1, 2]}}, "color%5Ba%5D%5Bb%5D=1&color%5Ba%5D%5Bb%5D=2"),
        ("form", True, True, "color=true"),
        ("form", True, 1.0, "color=1"),
        ("form", True, "a&b=c#d", "color=a%26b%3Dc%23d"),
        ("form", False, ["a,b", "c"], "color=a%2Cb,c"),
    ]:
        with subtests.test(style=style, explode=explode, value=value, expected=expected):
            assert written(style, explode, value) == expected


def test_a_path_is_serialized_as_in_openapi(subtests: pytest.Subtests) -> None:
    for style, explode, value, expected in [
        ("simple", False, "blue", "blue"),
        ("simple", False, LIST, "blue,black"),
        ("simple", False, OBJECT, "R,100,G,200"),
        ("simple", True, OBJECT, "R=100,G=200"),
        ("label", False, "blue", ".blue"),
        ("label", False, LIST, ".blue,black"),
        ("label", True, LIST, ".blue.black"),
        ("label", True, OBJECT, ".R=100.G=200"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, LIST, ";color=blue,black"),
        ("matrix", True, LIST, ";color=blue;color=black"),
        ("matrix", False, OBJECT, ";color=R,100,G,200"),
        ("matrix", True, OBJECT, ";R=100;G=200"),
    ]:
        with subtests.test(style=style, explode=explode, value=value, expected=expected):
            assert (
                OperationParameter("color", "path", {}, style=style, explode=explode).encode_segment(value) == expected
            )


def test_reserved_characters_are_kept_only_where_they_cannot_end_the_value() -> None:
    (pair,) = OperationParameter("to", "query", {}, allows_reserved=True).encode_pairs("a/b?c:d&e=f#g+h%41")
    assert pair == ("to", "a/b?c:d%26e%3Df%23g%2Bh%2541")


@settings(max_examples=100, deadline=None)
@given(value=JSON, style=st.sampled_from(["form", "deepObject", "pipeDelimited"]), explode=st.booleans())
def test_a_query_value_never_adds_a_parameter(value: Any, style: str, explode: bool) -> None:
    if isinstance(value, dict) and style == "form" and explode:
        return  # its members are parameters
    query = written(style, explode, value)
    assert query.isascii()
    assert not set(query) & set("# \r\n")
    for name, _ in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
        assert name == "color" or name.startswith("color[")


@settings(max_examples=100, deadline=None)
@given(TEXT, st.booleans())
def test_a_text_survives_the_encoding(value: str, reserved: bool) -> None:
    (pair,) = OperationParameter("q", "query", {}, allows_reserved=reserved).encode_pairs(value)
    assert unquote_plus(pair[1]) == value


@settings(max_examples=200, deadline=None)
@given(
    value=JSON | st.sampled_from(["..", ".", "../..", "a/../b", "..\\x", "%2e%2e", "a?b", "a#b", "//x.org", ""]),
    style=st.sampled_from(["simple", "label", "matrix"]),
    explode=st.booleans(),
)
def test_a_path_value_never_leaves_its_segment(value: Any, style: str, explode: bool) -> None:
    one = OperationParameter("id", "path", {}, style=style, explode=explode)
    try:
        path = PathTemplate("/pets/{id}/toys").fill({"id": one.encode_segment(value)})
    except ArgumentError:
        return
    found = urlsplit(f"https://api.example.com{path}")
    assert (found.netloc, found.query, found.fragment) == ("api.example.com", "", "")
    segments = found.path.split("/")
    assert (segments[:2], segments[3:]) == (["", "pets"], ["toys"])
    assert segments[2]
    assert not {".", ".."} & set(unquote(segments[2]).replace("\\", "/").split("/"))


async def test_a_value_with_dot_segments_is_refused_before_the_request(subtests: pytest.Subtests) -> None:
    for value in [
        *("", "..", ".", "x/../../admin", "..\\..\\admin", "../"),
        *("..;", "..;a=b/admin", "x/..;/admin", "%2e%2e", "..%2fadmin", "%252e%252e%255cadmin", "..%3b/admin"),
    ]:
        with subtests.test(value=value):
            api = Api()
            source = document(
                {"/pets/{id}": {"delete": operation(operationId="drop", parameters=[parameter("id", "path")])}}
            )
            assert await peer(source, api).error("drop", id=value)
            assert api.requests == []


async def test_a_value_that_makes_the_path_of_another_operation_is_refused() -> None:
    api = Api()
    paths = {
        "/pets/{id}": {"get": operation(operationId="pet", parameters=[parameter("id", "path")])},
        "/pets/all": {"get": operation(operationId="all"), "delete": operation()},
    }
    told = await peer(document(paths), api).error("pet", id="all")
    assert told == "These values make the path of another operation"
    assert api.requests == []


@settings(max_examples=100, deadline=None)
@given(JSON, st.booleans())
def test_a_header_value_is_one_line(value: Any, explode: bool) -> None:
    try:
        line = OperationParameter("X-Tag", "header", {}, style="simple", explode=explode).encode_header(value)
    except ArgumentError:
        return
    assert not any(ord(char) < 32 and char != "\t" for char in line)
    assert "\x7f" not in line


async def test_a_header_with_a_line_break_is_refused() -> None:
    source = document({"/pets": {"get": operation(operationId="pets", parameters=[parameter("X-Tag", "header")])}})
    api = Api()
    assert "control characters" in await peer(source, api).error("pets", **{"X-Tag": "a\r\nHost: evil"})
    await peer(source, api).call("pets", **{"X-Tag": "Käse"})
    assert api.last.headers["x-tag"] == "Käse"


async def test_a_header_of_the_http_client_is_no_argument(subtests: pytest.Subtests) -> None:
    for name in [
        *("Host", "Authorization", "Content-Length", "X-Forwarded-For", "Accept", "Cookie", "X_Real_IP"),
        *("X-Forwarded-User", "X_Remote_User", "Remote-User", "X-Auth-Request-Email", "True-Client-IP"),
    ]:
        with subtests.test(name=name):
            source = document({"/pets": {"get": operation(operationId="pets", parameters=[parameter(name, "header")])}})
            assert (await tools(source))["pets"]["inputSchema"]["properties"] == {}


async def test_parameters_are_sent_in_their_places() -> None:
    api = Api()
    entries = [
        parameter("id", "path", schema={"type": "integer"}),
        parameter("limit", "query", schema={"type": "integer"}),
        parameter("X-Trace", "header"),
        parameter("theme", "cookie"),
        parameter("filter", "query", content={"application/json": {"schema": {"type": "object"}}}),
    ]
    source = document({"/pets/{id}": {"get": operation(operationId="pet", parameters=entries)}})
    arguments = {"id": 7, "limit": 5, "X-Trace": "abc", "theme": "dark; a=b", "filter": {"a": [1]}}
    await peer(source, api).call("pet", **arguments)
    assert api.path == "/pets/7?limit=5&filter=%7B%22a%22%3A%5B1%5D%7D"
    assert api.last.headers["x-trace"] == "abc"
    assert api.last.headers["cookie"] == "theme=dark%3B%20a=b"


async def test_a_parameter_of_an_operation_replaces_that_of_its_path() -> None:
    item = {
        "parameters": [parameter("id", "path"), parameter("q", "query", schema={"type": "string"})],
        "get": operation(operationId="pet", parameters=[parameter("q", "query", schema={"type": "integer"})]),
    }
    properties = (await tools(document({"/pets/{id}": item})))["pet"]["inputSchema"]["properties"]
    assert properties == {"id": {"type": "string"}, "q": {"type": "integer"}}


async def test_clashing_names_get_their_place_as_prefix() -> None:
    api = Api()
    body = {"required": True, "content": {"application/json": {"schema": {"properties": {"id": {}, "name": {}}}}}}
    entries = [parameter("id", "path"), parameter("id", "query"), parameter("id", "header")]
    source = document({"/pets/{id}": {"put": operation(operationId="put", parameters=entries, requestBody=body)}})
    await peer(source, api).call("put", id="p", query_id="q", header_id="h", body_id="b", name="n")
    assert api.path == "/pets/p?id=q"
    assert api.last.headers["id"] == "h"
    assert api.json == {"id": "b", "name": "n"}


async def test_a_path_of_the_document_is_percent_encoded() -> None:
    api = Api()
    source = document({"/küche/a b/{x}?y": {"get": operation(operationId="get", parameters=[parameter("x", "path")])}})
    await peer(source, api).call("get", x="1")
    assert api.path == "/k%C3%BCche/a%20b/1%3Fy"


def test_a_path_of_the_document_cannot_leave_the_base_url(subtests: pytest.Subtests) -> None:
    for path in ["/../admin", "/a/./b", "/%2e%2e/admin"]:
        with subtests.test(path=path), pytest.raises(DeclarationError, match="invalid path of an operation"):
            peer(document({path: {"get": operation()}}))


async def test_examples_of_a_parameter_are_listed() -> None:
    entries = [
        parameter("a", "query", example="x", description="An a.", deprecated=True),
        parameter("b", "query", examples={"one": {"value": 1}, "other": {"externalValue": "https://x"}}),
    ]
    source = document({"/pets": {"get": operation(operationId="pets", parameters=entries)}})
    assert (await tools(source))["pets"]["inputSchema"]["properties"] == {
        "a": {"type": "string", "description": "An a.", "examples": ["x"], "deprecated": True},
        "b": {"type": "string", "examples": [1]},
    }


async def test_an_undeclared_variable_of_the_path_is_a_string() -> None:
    source = document({"/pets/{id}": {"get": operation(operationId="pet")}})
    assert (await tools(source))["pet"]["inputSchema"]["required"] == ["id"]


async def test_unknown_arguments_are_refused_by_name() -> None:
    source = document({"/pets": {"get": operation(operationId="pets")}})
    assert "admin" in await peer(source).error("pets", admin="1")
