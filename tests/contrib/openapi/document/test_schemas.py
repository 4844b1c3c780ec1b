"""Schemas of OpenAPI as those of tools."""

from typing import Any

import pytest

from tests.contrib.openapi.pets import Api, document, operation, parameter, peer, tools


async def given(schema: Any, version: str = "3.0.3", **schemas: Any) -> dict[str, Any]:
    """Convert the schema of a query parameter to the schema of its argument."""
    entry = parameter("x", "query", schema=schema)
    source = document(
        {"/": {"get": operation(operationId="get", parameters=[entry])}}, version, components={"schemas": schemas}
    )
    source["paths"]["/"]["get"]["responses"] = {}
    found: dict[str, Any] = (await tools(source))["get"]["inputSchema"]
    return {**found["properties"]["x"], **({"$defs": found["$defs"]} if "$defs" in found else {})}


async def test_a_schema_is_translated(subtests: pytest.Subtests) -> None:
    for schema, expected in [
        ({"type": "string", "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        ),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 0}),
        ({"type": "integer", "maximum": 9, "exclusiveMaximum": False}, {"type": "integer", "maximum": 9}),
        ({"type": "integer", "exclusiveMaximum": 9}, {"type": "integer", "exclusiveMaximum": 9}),
        ({"type": "string", "example": "a", "xml": {"name": "x"}}, {"type": "string", "examples": ["a"]}),
        (
            {"type": "string", "default": "a", "enum": ["a", "b"]},
            {"type": "string", "default": "a", "enum": ["a", "b"]},
        ),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"anyOf": [{"type": "integer"}, {"type": "number"}]}),
        ({"type": ["integer", "null"], "const": 3}, {"anyOf": [{"type": "integer"}, {"type": "null"}], "const": 3}),
        ({"type": "file", "required": True, "minLength": -1, "enum": []}, {}),
        ({"type": "string", "pattern": "(?<n"}, {"type": "string"}),
        ({"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^a+$"}),
        (True, {}),
        ("nonsense", {}),
    ]:
        with subtests.test(schema=schema, expected=expected):
            assert await given(schema) == expected


async def test_a_nullable_reference() -> None:
    found = await given({"nullable": True, "allOf": [{"$ref": "#/components/schemas/A"}]}, A={"type": "integer"})
    assert found["anyOf"] == [{"allOf": [{"$ref": "#/$defs/A"}]}, {"type": "null"}]


async def test_a_discriminator_selects_the_alternative() -> None:
    cat, dog = {"type": "object", "properties": {"kind": {}}}, {"type": "object", "properties": {"kind": {}}}
    schema = {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"meow": "#/components/schemas/Cat"}},
    }
    first, second = (await given(schema, Cat=cat, Dog=dog))["anyOf"]
    assert first == {"$ref": "#/$defs/Cat", "properties": {"kind": {"enum": ["meow"]}}, "required": ["kind"]}
    assert second["properties"] == {"kind": {"enum": ["Dog"]}}


async def test_read_only_fields_are_no_arguments_and_write_only_fields_no_results() -> None:
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
    listed = (await tools(document({"/pets": {"post": operation(operationId="add", requestBody=body)}})))["add"]
    assert set(listed["inputSchema"]["properties"]) == {"name", "secret", "mother"}
    assert listed["inputSchema"]["required"] == ["name"]
    inner = listed["inputSchema"]["$defs"]["Pet"]
    assert (set(inner["properties"]), inner["required"]) == ({"name", "secret", "mother"}, ["name"])
    answer = listed["outputSchema"]["$defs"]["Pet"]
    assert set(answer["properties"]) == {"id", "name", "mother"}
    assert "required" not in answer


async def test_definitions_with_equal_last_names_are_made_unique() -> None:
    source = document({"/": {"get": operation(operationId="get")}})
    source["paths"]["/"]["get"]["parameters"] = [
        parameter("a", "query", schema={"$ref": "#/components/schemas/A"}),
        parameter("b", "query", schema={"$ref": "#/components/parameters/A/schema"}),
    ]
    source["components"] |= {
        "schemas": {**source["components"]["schemas"], "A": {"type": "integer"}},
        "parameters": {"A/schema": {}, "A": {"schema": {"type": "string"}}},
    }
    found = (await tools(source))["get"]["inputSchema"]
    assert found["$defs"] == {"A": {"type": "integer"}, "schema": {"type": "string"}}


async def test_a_schema_that_is_too_large_is_cut_at_a_depth() -> None:
    wide = {
        f"S{n}": {
            "type": "object",
            "properties": {f"p{i}": {"$ref": f"#/components/schemas/S{n + 1}"} for i in range(60)},
        }
        for n in range(60)
    }
    wide["S60"] = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1900)}}
    found = await given({"$ref": "#/components/schemas/S55"}, **wide)
    assert 0 < len(found["$defs"]) < 5


async def test_a_schema_with_too_many_descriptions_is_cut_at_a_depth() -> None:
    long = {"type": "object", "properties": {f"p{n}": {"type": "string", "enum": ["x" * 900]} for n in range(400)}}
    found = await given({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Long"}}}, Long=long)
    assert found == {"type": "object", "properties": {"a": {"type": "object"}}}


async def test_an_endlessly_recursive_schema_permits_any_value() -> None:
    found = await given({"$ref": "#/components/schemas/A"}, A={"allOf": [{"$ref": "#/components/schemas/A"}]})
    assert "$defs" not in found


async def test_arguments_are_validated_before_the_request() -> None:
    api = Api()
    entry = parameter("n", "query", schema={"type": "integer", "minimum": 1})
    source = document({"/": {"get": operation(operationId="get", parameters=[entry])}})
    assert "n" in await peer(source, api).error("get", n=0)
    assert "n" in await peer(source, api).error("get", n="1")
    assert api.requests == []


async def test_descriptions_and_names_come_from_the_document() -> None:
    source = document(
        {
            "/pets/{id}/toys": {
                "get": operation(summary="Toys", description="All toys of a pet.", tags=["toys"]),
                "post": operation(operationId="add toy!", deprecated=True),
                "put": operation(operationId="x" * 80),
            }
        }
    )
    found = await tools(source, prefix="api", deprecated=True)
    toys = found["api_get_pets_by_id_toys"]
    assert toys["title"] == "Toys"
    assert toys["description"] == "Toys\n\nAll toys of a pet."
    assert toys["annotations"] == {"readOnlyHint": True, "openWorldHint": True}
    assert found["api_add_toy"]["description"].startswith("Deprecated.")
    assert found["api_add_toy"]["annotations"]["idempotentHint"] is False
    (long,) = [name for name in found if "xxx" in name]
    assert len(long) == 64
    assert found[long]["annotations"]["destructiveHint"] is True
