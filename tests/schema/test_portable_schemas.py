"""Schemas in the form for clients."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.schema import ANY_VALUE_SCHEMA, SchemaChecker, build_portable_input, build_portable_output
from mcp_django.schema.validation.complexity import iter_subschemas
from mcp_django.server.primitives.decorators import build_tool

Schema = dict[str, Any]
STRING, NUMBER = {"type": "string"}, {"type": "number"}


@dataclass
class Visit:
    at: dt.datetime
    """Without a time zone in some projects."""
    opens: dt.time | None = None


class Place(NamedTuple):
    x: float
    y: float


def visit() -> Visit:
    return Visit(dt.datetime(2026, 1, 2, 3, 4, 5))  # noqa: DTZ001 - projects without time zones


def walk(pair: tuple[int, str], places: list[Place], named: dict[str, tuple[Place, ...]]) -> list[tuple[int, int]]:
    return []


def list_parts(schema: Schema) -> list[Schema]:
    return [part.schema for part in iter_subschemas(schema)]


def test_output_schemas_have_no_formats() -> None:
    wire = build_tool(visit).wire
    assert wire["outputSchema"]["properties"]["at"] == {"type": "string"}
    assert not any("format" in part for part in list_parts(wire["outputSchema"]))


def test_input_schemas_keep_formats_as_hints() -> None:
    def book(day: dt.date) -> None: ...

    assert build_tool(book).wire["inputSchema"]["properties"]["day"] == {"type": "string", "format": "date"}


def test_a_property_named_format_or_without_a_name_is_kept() -> None:
    schema = {"type": "object", "properties": {"format": {"type": "string", "format": "uri"}, "": {"format": "date"}}}
    assert build_portable_output(schema)["properties"] == {"format": {"type": "string"}, "": {}}


def test_examples_and_constants_are_not_treated_as_schemas() -> None:
    schema = {"properties": {"a": {"const": {"format": "date"}, "examples": [{"type": "array"}]}}, "type": "object"}
    assert build_portable_output(schema) is schema


def test_each_array_of_a_signature_has_items() -> None:
    wire = build_tool(walk).wire
    arrays = [part for key in ("inputSchema", "outputSchema") for part in list_parts(wire[key]) if is_array(part)]
    assert len(arrays) >= 6
    assert all(isinstance(part.get("items"), dict) for part in arrays)
    pair = wire["inputSchema"]["properties"]["pair"]
    assert pair["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert pair["prefixItems"] == [{"type": "integer"}, {"type": "string"}]


ARRAYS: list[tuple[Schema, Schema]] = [
    ({"type": "array"}, {"type": "array", "items": ANY_VALUE_SCHEMA}),
    ({"type": "array", "items": True}, {"type": "array", "items": ANY_VALUE_SCHEMA}),
    ({"type": "array", "items": False}, {"type": "array", "items": ANY_VALUE_SCHEMA, "maxItems": 0}),
    (
        {"type": ["array", "null"], "title": "All"},
        {"anyOf": [{"type": "array", "items": ANY_VALUE_SCHEMA}, {"type": "null"}], "title": "All"},
    ),
    ({"type": "array", "items": {}}, {"type": "array", "items": {}}),
    (
        {"type": "array", "prefixItems": [STRING, STRING], "items": False},
        {"type": "array", "prefixItems": [STRING, STRING], "items": STRING, "maxItems": 2},
    ),
    (
        {"type": "array", "prefixItems": [STRING, NUMBER], "maxItems": 2},
        {"type": "array", "prefixItems": [STRING, NUMBER], "maxItems": 2, "items": {"anyOf": [STRING, NUMBER]}},
    ),
    (
        {"type": "array", "prefixItems": [STRING]},
        {"type": "array", "prefixItems": [STRING], "items": ANY_VALUE_SCHEMA},
    ),
]


@pytest.mark.parametrize("build", [build_portable_input, build_portable_output])
def test_arrays_get_items_that_accept_the_same_values(build: Callable[[Schema], Schema]) -> None:
    for given_schema, expected in ARRAYS:
        schema = {"type": "object", "properties": {"a": given_schema}}
        assert build(schema)["properties"]["a"] == expected


TYPES: list[tuple[Schema, Schema]] = [
    ({"type": ["string"], "maxLength": 3}, {"type": "string", "maxLength": 3}),
    (
        {"type": ["string", "null"], "maxLength": 3, "minimum": 1, "enum": ["a", None], "description": "A"},
        {
            "anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}],
            "minimum": 1,
            "enum": ["a", None],
            "description": "A",
        },
    ),
    (
        {"type": ["string", "number"], "maxLength": 3, "minimum": 1},
        {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "number", "minimum": 1}]},
    ),
    (
        {"type": ["object", "null"], "unevaluatedProperties": False},
        {"type": ["object", "null"], "unevaluatedProperties": False},
    ),
]


def test_lists_of_types_become_choices() -> None:
    for given_schema, expected in TYPES:
        schema = {"type": "object", "properties": {"a": given_schema}}
        assert build_portable_input(schema)["properties"]["a"] == expected


def test_an_input_schema_has_properties() -> None:
    assert build_portable_input({"type": "object"}) == {"type": "object", "properties": {}}


def is_array(part: Schema) -> bool:
    return "array" in str(part.get("type"))


def draw_schemas() -> st.SearchStrategy[Schema]:
    leaves = st.sampled_from(
        [STRING, NUMBER, {"type": "null"}, {"type": "string", "format": "email"}, {"type": "array"}, {}]
    )

    def extend(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
        lists = st.lists(inner, min_size=1, max_size=3)
        limits = st.fixed_dictionaries({}, optional={"maxItems": st.integers(0, 3), "items": st.booleans() | inner})
        return st.one_of(
            st.builds(lambda parts, extra: {"type": "array", "prefixItems": parts, **extra}, lists, limits),
            st.builds(lambda extra: {"type": "array", **extra}, limits),
            st.builds(lambda parts: {"anyOf": parts}, lists),
            st.builds(
                lambda kinds, extra: {"type": kinds, **extra},
                st.lists(st.sampled_from(["string", "array", "object", "null", "integer"]), min_size=1, unique=True),
                st.fixed_dictionaries(
                    {},
                    optional={
                        "maxItems": st.integers(0, 3),
                        "items": inner,
                        "maxLength": st.integers(0, 3),
                        "minimum": st.integers(0, 1),
                        "properties": st.dictionaries(st.sampled_from("ab"), inner),
                        "enum": st.just(["", None, 0]),
                    },
                ),
            ),
            st.dictionaries(st.sampled_from("ab"), inner).map(lambda named: {"type": "object", "properties": named}),
        )

    return st.recursive(leaves, extend, max_leaves=6)


def draw_values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.sampled_from(["", "a@b.example", 0, 1.5])
    return st.recursive(
        leaves, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.sampled_from("ab"), v), max_leaves=8
    )


@given(draw_schemas(), draw_values())
def test_portable_schemas_accept_the_same_values(schema: Schema, value: Any) -> None:
    root = {"type": "object", "properties": {"value": schema}}
    for portable in (build_portable_input(root), build_portable_output(root)):
        assert SchemaChecker(portable).is_valid({"value": value}) == SchemaChecker(root).is_valid({"value": value})
        assert all(isinstance(part.get("items"), dict) for part in list_parts(portable) if is_array(part))
        assert not any(isinstance(part.get("type"), list) for part in list_parts(portable))
