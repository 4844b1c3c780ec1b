"""Handwritten schemas: served unchanged, or refused at registration."""

from copy import deepcopy
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import Field

from mcp_django.schema import ArgumentError, CompiledParameters, DeclarationError, compile_parameters
from mcp_django.schema.custom_schema import MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS

RICH: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#addressDef"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["name"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {},
    "additionalProperties": False,
    "x-unknown": [1],
}


def anything(**arguments: Any) -> None: ...


def compile_handwritten(schema: Any, fn: Any = anything) -> CompiledParameters:
    return compile_parameters(fn, is_injected=lambda annotation: False, input_schema=schema)


def refusal(schema: Any, fn: Any = anything) -> str:
    with pytest.raises(DeclarationError) as caught:
        compile_handwritten(schema, fn)
    return str(caught.value)


def test_a_schema_is_served_unchanged() -> None:
    before = deepcopy(RICH)
    parameters = compile_handwritten(RICH)
    assert parameters.schema is RICH
    assert before == RICH
    assert list(parameters.schema) == list(before)


def test_arguments_are_checked_against_every_keyword() -> None:
    parameters = compile_handwritten(RICH)
    parameters.check({"name": "x", "address": {"street": "y"}})
    for wrong in ({"contactMethod": "phone", "name": "x"}, {}, {"name": "x", "address": {"city": 5}}):
        with pytest.raises(ArgumentError):
            parameters.check(wrong)


def test_keyword_arguments_accept_every_property() -> None:
    given = {"not a name": 1, "b": [2]}
    assert compile_handwritten({"type": "object"}).convert(given) == given


def test_named_parameters_are_converted_and_others_passed_unchanged() -> None:
    from_schema = {"type": "object", "properties": {"day": {"type": "string"}, "n": {}}}

    def tool(day: "__import__('datetime').date", **rest: Any) -> None: ...  # type: ignore[valid-type]

    converted = compile_handwritten(from_schema, tool).convert({"day": "2024-05-01", "n": "1"})
    assert str(converted["day"]) == "2024-05-01"
    assert not isinstance(converted["day"], str)
    assert converted["n"] == "1"


def test_arguments_that_the_function_does_not_accept_are_refused() -> None:
    def tool(a: int = 0) -> None: ...

    parameters = compile_handwritten({"type": "object", "properties": {"a": {}}}, tool)
    with pytest.raises(ArgumentError, match="unknown argument 'b'"):
        parameters.convert({"b": 1})


def test_many_unknown_arguments_are_refused_with_a_few_of_them() -> None:
    def tool(a: int = 0) -> None: ...

    parameters = compile_handwritten({"type": "object"}, tool)
    with pytest.raises(ArgumentError) as caught:
        parameters.convert({f"name_{n}": n for n in range(100_000)})
    assert str(caught.value).count("unknown argument") == 5


def test_a_handwritten_schema_describes_the_alias() -> None:
    def tool(page_size: Annotated[int, Field(alias="pageSize")]) -> None: ...

    schema = {"type": "object", "properties": {"pageSize": {"type": "integer"}}, "additionalProperties": False}
    assert compile_handwritten(schema, tool).convert({"pageSize": 5}) == {"page_size": 5}


def test_a_property_without_a_parameter_is_refused() -> None:
    def tool(a: int) -> None: ...

    assert "has the property 'b', which no parameter takes" in refusal(
        {"type": "object", "properties": {"a": {}, "b": {}}}, tool
    )


def test_a_parameter_without_a_property_is_refused() -> None:
    def tool(a: int) -> None: ...

    assert "parameter 'a' has no default and no property" in refusal(
        {"type": "object", "additionalProperties": False}, tool
    )


def test_a_root_that_is_not_an_object_is_refused(subtests: pytest.Subtests) -> None:
    cases = [{}, {"type": "array"}, {"type": ["object", "null"]}, {"properties": {}}]
    for schema in cases:
        with subtests.test(schema=schema):
            assert "anything(): input_schema: the root must have 'type': 'object'" in refusal(schema)


def test_a_schema_that_is_not_a_dict_is_refused(subtests: pytest.Subtests) -> None:
    for schema in ["{}", ["type"], True]:
        with subtests.test(schema=schema):
            assert "the schema must be a dict" in refusal(schema)


def test_an_invalid_schema_is_refused_with_the_path(subtests: pytest.Subtests) -> None:
    cases = [
        {"properties": {"a": {"type": "strnig"}}},
        {"properties": {"a": 5}},
        {"required": "a"},
        {"properties": {"a": {"minimum": "1"}}},
        {"properties": {"a": {"pattern": "["}}},
    ]
    for keywords in cases:
        with subtests.test(keywords=keywords):
            assert "input_schema: not a valid JSON Schema at " in refusal({"type": "object", **keywords})


def test_a_declared_known_dialect_is_used(subtests: pytest.Subtests) -> None:
    cases = [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ]
    for dialect in cases:
        with subtests.test(dialect=dialect):
            compile_handwritten({"$schema": dialect, "type": "object"})


def test_an_array_of_items_schemas_means_a_tuple_in_its_own_dialect() -> None:
    items = {"properties": {"a": {"items": [{"type": "integer"}]}}, "type": "object"}
    compile_handwritten({"$schema": "http://json-schema.org/draft-07/schema#", **items}).check({"a": [1, "x"]})
    assert "not a valid JSON Schema" in refusal(items)


def test_an_unknown_dialect_is_refused(subtests: pytest.Subtests) -> None:
    cases = ["https://example.com/schema", 5, "", "https://json-schema.org/draft/2019-13/schema"]
    for dialect in cases:
        with subtests.test(dialect=dialect):
            assert "is not supported; use JSON Schema 2020-12" in refusal({"$schema": dialect, "type": "object"})


def test_a_reference_to_another_document_is_refused(subtests: pytest.Subtests) -> None:
    cases_1 = [
        "https://example.com/s.json",
        "http://127.0.0.1:9/s",
        "file:///etc/passwd",
        "other.json#/a",
        "#/$defs/none",
        "#none",
    ]
    for keyword in ["$ref", "$dynamicRef"]:
        for reference in cases_1:
            with subtests.test(keyword=keyword, reference=reference):
                schema = {"type": "object", "properties": {"a": {keyword: reference}}}
                assert "input_schema: not a valid JSON Schema" in refusal(schema)


def test_a_reference_to_an_embedded_document_is_resolved() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "https://example.com/inner"}},
        "$defs": {"inner": {"$id": "https://example.com/inner", "type": "integer"}},
    }
    with pytest.raises(ArgumentError):
        compile_handwritten(schema).check({"a": "x"})


def test_a_schema_may_refer_to_itself() -> None:
    parameters = compile_handwritten(
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    )
    parameters.check({"next": {"next": {}}})
    with pytest.raises(ArgumentError, match=r"^next\.next: unknown key 'a'"):
        parameters.check({"next": {"next": {"a": 1}}})


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_depth_is_bounded() -> None:
    compile_handwritten(nested(MAX_SCHEMA_DEPTH))
    assert f"nested deeper than {MAX_SCHEMA_DEPTH}" in refusal(nested(MAX_SCHEMA_DEPTH + 1))


def test_size_is_bounded() -> None:
    many = {str(n): {"type": "string"} for n in range(MAX_SUBSCHEMAS - 1)}
    compile_handwritten({"type": "object", "properties": many})
    assert f"more than {MAX_SUBSCHEMAS} schemas" in refusal({"type": "object", "properties": {**many, "x": {}}})


def test_a_schema_nested_without_end_is_refused() -> None:
    endless: dict[str, Any] = {"type": "object"}
    endless["default"] = [endless]
    deep: dict[str, Any] = nested(5000)
    shared: Any = []
    for _ in range(200):
        shared = [shared, shared]
    for schema in (endless, deep, {"type": "object", "examples": shared}):
        found = refusal(schema)
        assert "nested deeper than" in found
        assert "JSON" not in found


def test_a_schema_that_is_not_json_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[Any, Any], str]] = [
        ({1: "a"}, "the root has the key 1, not a text"),
        ({"properties": {"a": {None: 1}}}, "properties/a has the key None, not a text"),
        ({"a": {1}}, "a is a value of type set, which is not JSON"),
        ({"default": object()}, "default is a value of type object, which is not JSON"),
        ({"enum": (1, 2)}, "enum is a value of type tuple, which is not JSON"),
        ({"properties": {"a": {"enum": [1, Decimal(2)]}}}, "properties/a/enum/1 is a value of type Decimal"),
    ]
    for value, problem in cases:
        with subtests.test(value=value):
            found = refusal({"type": "object", **value})
            assert problem in found
            assert "nested" not in found


def test_formats_are_not_asserted() -> None:
    compile_handwritten({"type": "object", "properties": {"a": {"type": "string", "format": "email"}}}).check(
        {"a": "x"}
    )


def test_a_pattern_with_look_around_works_and_is_bounded() -> None:
    properties = {"a": {"pattern": "^(?=.*[0-9]).+$"}, "b": {"pattern": "^(?=a)(a+)+$"}}
    parameters = compile_handwritten({"type": "object", "properties": properties})
    parameters.check({"a": "x1"})
    for wrong in ({"a": "x"}, {"b": "a" * 40 + "b"}):
        with pytest.raises(ArgumentError):
            parameters.check(wrong)


def test_a_mirrored_argument_outside_of_properties_is_refused(subtests: pytest.Subtests) -> None:
    cases = [
        {"properties": {"a": {"items": {"x-mcp-header": "A", "type": "string"}}}},
        {"properties": {"a": {"anyOf": [{"x-mcp-header": "A", "type": "string"}]}}},
        {"$defs": {"a": {"type": "string", "x-mcp-header": "A"}}, "properties": {"a": {"$ref": "#/$defs/a"}}},
        {"if": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
        {"not": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
        {"x-mcp-header": "A"},
        {"patternProperties": {"a": {"type": "string", "x-mcp-header": "A"}}},
        {"additionalProperties": {"type": "string", "x-mcp-header": "A"}},
    ]
    for inner in cases:
        with subtests.test(inner=inner):
            assert "reached through 'properties' alone" in refusal({"type": "object", **inner})


def test_mirrored_arguments_may_be_nested_in_properties() -> None:
    inner = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    parameters = compile_handwritten(
        {"type": "object", "properties": {"where": inner, "properties": {"type": "string"}}}
    )
    assert parameters.header_params == ((("where", "region"), b"mcp-param-region"),)


def test_a_property_with_the_name_of_the_keyword_is_a_property() -> None:
    assert (
        compile_handwritten({"type": "object", "properties": {"x-mcp-header": {"type": "string"}}}).header_params == ()
    )
