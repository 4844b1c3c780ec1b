"""Schemas with several alternatives, which have one type each."""

from typing import Any

import pytest

from mcp_django.schema import any_of_types, list_types, make_nullable, strip_null

NULL = {"type": "null"}


def test_a_nullable_schema_has_null_as_an_alternative(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"type": "string"}, {"anyOf": [{"type": "string"}, NULL]}),
        (
            {"type": "integer", "minimum": 1, "title": "A"},
            {"anyOf": [{"type": "integer", "minimum": 1}, NULL], "title": "A"},
        ),
        ({"enum": ["a"], "default": "a"}, {"anyOf": [{"enum": ["a"]}, NULL], "default": "a"}),
        ({"$ref": "#/$defs/A"}, {"anyOf": [{"$ref": "#/$defs/A"}, NULL]}),
        (any_of_types("string", "number"), any_of_types("string", "number", "null")),
        (
            {**any_of_types("number", "string"), "maximum": 9},
            {"anyOf": [{**any_of_types("number", "string"), "maximum": 9}, NULL]},
        ),
    ]
    for schema, nullable in cases:
        with subtests.test(schema=schema):
            assert make_nullable(schema) == nullable
            assert make_nullable(nullable) == nullable


def test_a_schema_that_accepts_null_is_unchanged(subtests: pytest.Subtests) -> None:
    for schema in ({}, {"description": "anything"}, {"type": ["string", "null"]}, {"enum": ["a", None]}, NULL):
        with subtests.test(schema=schema):
            assert make_nullable(schema) == schema


def test_the_schema_without_null_is_restored() -> None:
    assert strip_null(make_nullable({"type": "object", "title": "A"})) == {"type": "object"}
    assert strip_null({"type": "string"}) == {"type": "string"}
    assert strip_null(any_of_types("string", "number", "null")) == any_of_types("string", "number", "null")
    assert list_types(any_of_types("string", "null")) == ["string", "null"]
    assert list_types({"type": ["string", "integer"]}) == ["string", "integer"]
