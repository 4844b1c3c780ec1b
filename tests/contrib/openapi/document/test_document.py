"""Documents: accepted and refused forms, and the bounded cost of hostile ones."""

import asyncio
import copy
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import translation
from django.utils.translation import gettext_lazy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_django.contrib.openapi import OpenAPIToolset
from mcp_django.contrib.openapi.document import document as reading
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.primitives.toolset import add_toolset
from tests.contrib.openapi.pets import BASE, document, operation, parameter, tools
from tests.server.client import PipelineClient, make_server

ONE = document({"/pets": {"get": operation(operationId="pets")}})
YAML = """\
openapi: 3.1.0
info: {title: Norway, version: 2024-01-01}
paths:
  /towns:
    get:
      operationId: towns
      parameters:
        - {name: country, in: query, schema: {type: string, enum: [no, "on", 12:30, 2024-01-01, yes]}}
        - {name: size, in: query, schema: {type: integer, default: 010}}
      responses: {200: {description: Towns}}
"""


def registered(source: Any, **options: Any) -> Registry:
    """A registry that records its problems, as that of an alias does."""
    registry = Registry(strict=False)
    add_toolset(registry, OpenAPIToolset(source, **{"base_url": BASE, **options}))
    return registry


def refusal(source: Any, **options: Any) -> str:
    (problem,) = registered(source, **options).problems
    return problem.text


async def test_a_document_is_a_dict_a_text_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(ONE))
    (tmp_path / "api.yaml").write_text(yaml.safe_dump(ONE))
    sources = [ONE, json.dumps(ONE), yaml.safe_dump(ONE), tmp_path / "api.json", str(tmp_path / "api.yaml")]
    for source in [*sources, lambda: ONE]:
        assert list(await tools(source)) == ["pets"]


async def test_yaml_is_read_with_the_types_of_json() -> None:
    properties = (await tools(YAML))["towns"]["inputSchema"]["properties"]
    assert properties["country"]["enum"] == ["no", "on", "12:30", "2024-01-01", "yes"]
    assert properties["size"]["default"] == "010"  # no octal, and no number of JSON's


async def test_python_values_in_a_dict_become_json_values() -> None:
    size = {"type": "number", "maximum": Decimal("90.5"), "description": gettext_lazy("Size of the pet")}
    parameter = {"name": "size", "in": "query", "schema": size}
    found = (await tools(document({"/pets": {"get": operation(operationId="pets", parameters=[parameter])}})))["pets"]
    assert found["inputSchema"]["properties"]["size"] == {
        "type": "number",
        "maximum": 90.5,
        "description": "Size of the pet",
    }


async def test_numbers_outside_of_json_are_harmless() -> None:
    schema = "{type: integer, maximum: 99999999999999999999999, default: 1e999, enum: [" + "9" * 4000 + ", 1]}"
    source = YAML.replace("{type: integer, default: 010}", schema)
    found = (await tools(source))["towns"]["inputSchema"]["properties"]["size"]
    assert found["maximum"] == 1e23


def test_other_values_than_a_document_are_refused(subtests: pytest.Subtests) -> None:
    for source, told in [
        ("https://example.com/openapi.json", "download"),
        ("nowhere.json", "cannot be read"),
        ('{"openapi": ', "is not JSON"),
        ("a: b: c\nd", "neither JSON nor YAML"),
        ("- a\n- b", "root must be an object"),
        ({"swagger": "2.0", "paths": {}}, "convert it to 3.0 or 3.1"),
        ({"openapi": "4.0.0"}, "use 3.0 or 3.1"),
        ({"openapi": 3.0}, "use 3.0 or 3.1"),
        ({"openapi": "3.0.0", "paths": []}, "must be an object"),
        (7, "a dict, a text or a path"),
        ("a: !!python/object/apply:os.system [ls]\nb: 1", "neither JSON nor YAML"),
    ]:
        with subtests.test(source=source, told=told):
            assert told in refusal(source)


def test_yaml_without_pyyaml_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert "mcp-django-channels[openapi]" in refusal(YAML)


def bomb(line: str) -> str:
    """Nine of nine of nine …"""
    lines = ["openapi: 3.0.0", "paths: {}", "x0: &x0 {a: b}"]
    return "\n".join([*lines, *(line.format(n=n, refs=", ".join([f"*x{n - 1}"] * 9)) for n in range(1, 12))])


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for source in [
        bomb("x{n}: &x{n} [{refs}]"),
        "openapi: 3.0.0\nx: &x [*x]",
        "openapi: 3.0.0\nx: " + "[" * 200_000 + "]" * 200_000,
        json.dumps({"openapi": "3.0.0", "x": json.loads("[" * 200 + "]" * 200)}),
    ]:
        with subtests.test(source=source):
            monkeypatch.setattr(reading, "MAX_VALUES", 20_000)
            assert refusal(source)


def test_a_bomb_of_merges_is_refused_or_merges_each_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML merges a key of an alias once since 6.0.4, and nine times before."""
    monkeypatch.setattr(reading, "MAX_VALUES", 20_000)
    source = bomb("x{n}: &x{n} {{<<: [{refs}], k{n}: 1}}")
    values = registered(source).problems or yaml.safe_load(source)["x11"]
    assert len(values) in (1, 12)


def test_the_total_size_of_merges_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_VALUES", 2_000)
    known = "".join(f"  k{number}: 1\n" for number in range(500))
    assert "merges too much" in refusal(f"openapi: 3.0.0\nx-a: &a\n{known}x-b:\n" + "- {<<: *a}\n" * 100)


def test_a_dict_that_contains_itself_is_refused() -> None:
    source: dict[str, Any] = {"openapi": "3.0.0"}
    source["x"] = source
    assert "nested deeper" in refusal(source)


def test_a_text_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "MAX_DOCUMENT_BYTES", 100)
    (tmp_path / "api.json").write_text(json.dumps(ONE))
    assert "larger than" in refusal(tmp_path / "api.json")
    assert "larger than" in refusal(json.dumps(ONE))


def test_a_wrong_reference_leaves_out_the_operation_that_needs_it(subtests: pytest.Subtests) -> None:
    for reference, told in [
        ("other.yaml#/Pet", "another document"),
        ("https://example.com/x.json", "another document"),
        ("file:///etc/passwd", "another document"),
        ("#/components/schemas/Nobody", "refers to nothing"),
        ("#Pet", "invalid JSON pointer"),
        (7, "another document"),
    ]:
        with subtests.test(reference=reference, told=told):
            body = {"content": {"application/json": {"schema": {"$ref": reference}}}}
            source = document({"/bad": {"post": operation(requestBody=body)}, "/good": {"get": operation()}})
            found = registered(source)
            assert [tool.name for tool in found.tools] == ["get_good"]
            assert told in found.problems[0].text
            assert "POST /bad" in found.problems[0].text


async def test_a_pointer_may_be_escaped() -> None:
    source = document(
        {"/a/{b}": {"get": operation(operationId="one")}, "/again": {"$ref": "#/paths/~1a~1%7Bb%7D"}},
    )
    assert list(await tools(source)) == ["one", "one_2"]


def test_references_in_a_circle_are_refused() -> None:
    source = document({"/a": {"$ref": "#/paths/~1b"}, "/b": {"$ref": "#/paths/~1a"}})
    assert ["cycle" in problem.text for problem in registered(source).problems] == [True, True]


def test_the_number_of_operations_is_bounded() -> None:
    source = document({f"/{n}": {"get": operation()} for n in range(3)})
    assert "leave some out" in refusal(source, max_tools=2)


def test_an_invalid_server_url_is_refused(subtests: pytest.Subtests) -> None:
    for servers, options, told in [
        ([], {}, "base_url="),
        ([{"url": "/v1"}], {}, "base_url="),
        ([{"url": "http://169.254.169.254/"}], {}, "https"),
        ([{"url": "https://{region}.example.com"}], {}, "cannot be None"),
        ([{"url": "https://{r}.x.org", "variables": {"r": {"default": "eu", "enum": ["eu"]}}}], {"r": "us"}, "'us'"),
        ([{"url": "https://x.org"}], {"r": "us"}, "no variable 'r'"),
    ]:
        with subtests.test(servers=servers, options=options, told=told):
            assert told in refusal({**ONE, "servers": servers}, base_url=None, variables=options)


def test_an_operation_of_another_server_does_not_get_the_credentials_of_this_one() -> None:
    elsewhere = operation(servers=[{"url": "https://evil.example.org"}])
    source = document({"/pets": {"get": elsewhere}}, servers=[{"url": "https://api.example.com"}])
    assert "another server" in refusal(source, base_url=None)
    assert not registered(source).problems  # base_url wins


def test_a_wrong_base_url_is_refused_at_once(subtests: pytest.Subtests) -> None:
    for url in ["ftp://x.org", "https://", "https://a:b@x.org", "https://x.org/?q=1", "nonsense"]:
        with subtests.test(url=url), pytest.raises(DeclarationError):
            OpenAPIToolset(ONE, base_url=url)


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'permission'"):
        OpenAPIToolset(ONE, base_url=BASE, permision="shop.view_pet")  # type: ignore[call-arg]
    with pytest.raises(DeclarationError, match="write scopes="):
        OpenAPIToolset(ONE, base_url=BASE, scopes="pets")


def test_the_repr_contains_no_secret() -> None:
    assert "s3cr3t" not in repr(OpenAPIToolset(ONE, base_url=BASE, credentials={"key": "s3cr3t"}))


KEYS = (
    "get post parameters requestBody content application/json schema type $ref properties responses 200 in name allOf"
    " items security tags required"
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["get", "/a/{b}", "#/paths", "object", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(paths=st.dictionaries(st.sampled_from(["/a", "/a/{b}", "/{c}"]), ANYTHING, max_size=3), components=ANYTHING)
def test_no_document_breaks_the_import(paths: Any, components: Any) -> None:
    registered({"openapi": "3.0.3", "paths": paths, "components": components, "security": components})


def test_texts_are_in_the_language_of_the_project_for_any_first_caller() -> None:
    source = document({"/pets": {"get": operation(operationId="list", summary=gettext_lazy("Yes"))}})
    with translation.override("de"):
        registry = registered(lambda: source)
    assert [tool.title for tool in registry.tools] == ["Yes"]


WHOLE = {
    "parameters": [parameter("id", "path"), parameter("ids", "query", style="form", explode=False)],
    "servers": [{"url": "https://{place}.example.com", "variables": {"place": {"default": "eu", "enum": ["eu"]}}}],
    "summary": "Pets",
    "post": operation(
        operationId="bad",
        tags=["pets"],
        deprecated=False,
        security=[{"key": []}],
        requestBody={
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}},
                "multipart/form-data": {
                    "schema": {"type": "object", "properties": {"photo": {"type": "string", "format": "binary"}}},
                    "encoding": {"photo": {"contentType": "image/png"}},
                },
            },
        },
    ),
}
"""A path with most members that paths have."""


def list_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each value within a value."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from list_places(item, (*place, key))


ODD_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text() | st.just("\ud800\0"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$ref", "type", "schema", "name", "", "items"]), inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=150)
@given(place=st.sampled_from(list(list_places(WHOLE))), value=ODD_VALUES)
def test_any_value_in_one_path_leaves_the_other_paths_served(place: tuple[Any, ...], value: Any) -> None:
    paths: dict[Any, Any] = {"/bad/{id}": copy.deepcopy(WHOLE), "/good": {"get": operation(operationId="good")}}
    target = paths
    keys = ("/bad/{id}", *place)
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    servers = [{"url": "https://eu.example.com"}]
    registry = registered(document(paths, servers=servers), base_url=None)
    client = PipelineClient(make_server(registry=registry))
    assert "good" in asyncio.run(client.names())


def test_an_operation_on_another_server_is_the_problem_of_that_operation() -> None:
    paths = {"/a": {"get": operation(operationId="a", servers=[{"url": "https://[other"}])}, "/b": {"get": operation()}}
    registry = registered(document(paths, servers=[{"url": BASE}]), base_url=None)
    assert [tool.name for tool in registry.tools] == ["get_b"]
    assert ["another server" in problem.text for problem in registry.problems] == [True]
