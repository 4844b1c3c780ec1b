"""Forms of the playground: their fields, and the values that the forms of all fixtures send."""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from mcp_django.contrib.playground.forms.argument_errors import find_argument_errors
from mcp_django.contrib.playground.forms.argument_schemas import MAX_DEPTH, MAX_NESTED_FIELDS
from mcp_django.contrib.playground.forms.schema_forms import ArgumentsForm, build_filled_form, iter_leaves
from mcp_django.contrib.playground.primitives import KINDS, list_entries
from mcp_django.contrib.playground.principals import build_principal
from mcp_django.schema import SchemaChecker
from mcp_django.server.primitives.registry import REGISTRIES, Registry
from tests.interaction import handlers, jobs, panels, questions, restricted, sampling, single_use
from tests.interaction.conftest import SERVERS

FIXTURES = (handlers, jobs, panels, questions, restricted, sampling, single_use)
"""Modules whose tools are registered by their import."""
CONFORMANCE = "conformance"
PAGE = "admin:mcp_playground_playground_changelist"
FORMATTED = {
    "date": "2026-05-03",
    "date-time": "2026-05-03T10:00:00Z",
    "time": "10:00:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com/a?b",
    "uuid": "4d3a2c1e-8f6b-4c5d-9e7f-0a1b2c3d4e5f",
    "duration": "P1D",
}


def fill(schema: Any, data: dict[str, Any]) -> dict[str, Any]:
    form = ArgumentsForm(schema, data)
    assert form.is_valid(), form.errors
    return form.build_arguments()


@pytest.mark.parametrize(
    ("schema", "typed", "expected"),
    [
        ({"$ref": "#/$defs/Size"}, '"L"', "L"),
        ({"allOf": [{"$ref": "#/$defs/Size"}]}, '"L"', "L"),
        ({"enum": [1, "1", None]}, "1", 1),
        ({"enum": [1, "1", None]}, "null", None),
        ({"anyOf": [{"enum": [True, 1]}, {"type": "null"}]}, "1", 1),
        ({"anyOf": [{"enum": [True, 1]}, {"type": "null"}]}, "null", None),
        ({"type": ["boolean", "null"]}, "null", None),
        ({"oneOf": [{"const": "a", "title": "The first"}, {"const": 2}]}, "2", 2),
        ({"const": "x"}, '"x"', "x"),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "number"}, "1e400", "1e400"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "integer"}, "007", "007"),
        ({"type": "string", "format": "date"}, "31.12.2026 ", "31.12.2026 "),
        ({"type": "string", "format": "email"}, " ada@bücher.example", " ada@bücher.example"),
        ({"type": "string"}, "a\r\nb", "a\nb"),
        ({"type": "array", "items": {"type": "boolean"}}, "true\nno", [True, "no"]),
        ({"type": "array", "items": {"type": "object"}}, '[{"a": 1}]', [{"a": 1}]),
        ({"type": "array", "items": {"$ref": "#/$defs/Size"}}, ['"S"', '"L"'], ["S", "L"]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, '"a"', "a"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"a": 1}', {"a": 1}),
        ({}, "3", 3),
        (True, "3", 3),
    ],
)
def test_values_keep_the_types_of_the_schema(schema: Any, typed: Any, expected: Any) -> None:
    whole = {"properties": {"a": schema}, "$defs": {"Size": {"enum": ["S", "L"]}}}
    arguments = fill(whole, {"argument-a": typed})
    assert json.dumps(arguments) == json.dumps({"a": expected})
    assert fill(whole, {"argument-a": ""}) == {}
    again = build_filled_form(whole, arguments)
    assert again is not None
    assert json.dumps(again.build_arguments()) == json.dumps(arguments)


NESTED = {
    "properties": {
        "trip": {"$ref": "#/$defs/Trip"},
        "back": {"anyOf": [{"$ref": "#/$defs/Trip"}, {"type": "null"}]},
        "a/b": {"type": "object", "properties": {"c~d": {"type": "integer"}}},
    },
    "required": ["trip"],
    "$defs": {
        "Trip": {
            "type": "object",
            "properties": {"to": {"type": "string"}, "days": {"type": "integer"}, "stop": {"$ref": "#/$defs/Stop"}},
            "required": ["to"],
        },
        "Stop": {"type": "object", "properties": {"at": {"type": ["string", "null"]}}},
    },
}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, {"trip": {}}),
        ({"argument-trip/days": "2"}, {"trip": {"to": "", "days": 2}}),
        ({"argument-trip/to": "Oslo", "argument-trip/stop/at": "x"}, {"trip": {"to": "Oslo", "stop": {"at": "x"}}}),
        ({"argument-trip/to": "a", "null-trip/stop/at": "on"}, {"trip": {"to": "a", "stop": {"at": None}}}),
        ({"argument-trip/to": "a", "null-back": "on"}, {"trip": {"to": "a"}, "back": None}),
        ({"argument-trip/to": "a", "argument-a~1b/c~0d": "1"}, {"trip": {"to": "a"}, "a/b": {"c~d": 1}}),
    ],
)
def test_objects_are_filled_in_property_by_property(data: dict[str, str], expected: dict[str, Any]) -> None:
    assert fill(NESTED, data) == expected
    assert build_filled_form(NESTED, expected) is not None


def test_untouched_and_cleared_values_are_absent_and_defaults_are_shown_only() -> None:
    schema = {
        "properties": {
            "count": {"type": "integer", "default": 5},
            "size": {"enum": ["S", "L"], "enumNames": ["Small", "Large"], "default": "S"},
            "day": {"type": "string", "format": "date"},
            "is_loud": {"type": "boolean"},
        }
    }
    page = ArgumentsForm(schema).as_div()
    assert 'placeholder="5"' in page
    assert "default: S" in page
    assert "Large (L)" in page
    assert 'data-picker="date"' in page
    assert 'type="date"' not in page  # A browser sends nothing for a date that it does not know.
    names = ("count", "size", "day", "is_loud")
    assert fill(schema, {f"argument-{name}": "" for name in names}) == fill(schema, {}) == {}
    kind = {"properties": {"kind": {"const": "trip"}, "other": {"const": 1}}, "required": ["kind"]}
    assert ArgumentsForm(kind)["argument-kind"].initial == '"trip"'
    assert ArgumentsForm(kind)["argument-other"].initial is None
    hostile = ArgumentsForm(schema, {"argument-size": '"XL"'})
    assert not hostile.is_valid()


def test_arguments_that_no_fields_express_have_no_filled_form() -> None:
    schema = {"properties": {"text": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}}
    for arguments in ({"text": ""}, {"text": 1}, {"tags": []}, {"tags": ["a\nb"]}, {"tags": "a"}, {"other": 1}):
        assert build_filled_form(schema, arguments) is None
    assert build_filled_form(schema, {"text": "1", "tags": ["a", "b"]}) is not None


def test_schemas_without_an_end_and_malformed_ones_have_a_form() -> None:
    deep: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    form = ArgumentsForm({**deep, "$defs": {"Node": deep}})
    (leaf,) = iter_leaves(form.arguments)
    assert len(leaf.path) == MAX_DEPTH + 1
    wide = {"type": "object", "properties": {f"n{number}": {"$ref": "#/$defs/Node"} for number in range(20)}}
    assert len(ArgumentsForm({**wide, "$defs": {"Node": wide}}).fields) < 2 * MAX_NESTED_FIELDS
    circle = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    for schema in (
        circle,
        {"properties": []},
        {"properties": {"a": None}},
        {"properties": {"a": {"type": "object", "properties": 3}}, "required": 1},
        {"properties": {"a": {"enum": {}, "anyOf": [3], "title": 5, "format": [], "items": 7}}},
        {"properties": {"a": {"$ref": "#/nowhere/~2"}, "b": {"$ref": "https://example.com/"}}},
    ):
        assert ArgumentsForm(schema, {}).is_valid()
    nested = ArgumentsForm({"properties": {"a": {}}}, {"argument-a": "[" * 500 + "]" * 500})
    assert "levels" in str(nested.errors)


def test_parts_of_an_error_find_their_arguments() -> None:
    paths = [("count",), ("trip", "to"), ("trip", "stops"), ("list",)]
    text = (
        "count: \"x\" is a string; give an integer; trip: missing key 'to'; trip.stops[0].at: is null; give a string; "
        "missing argument 'list'; unknown argument 'lst'; did you mean 'list'?"
    )
    assert list(find_argument_errors(text, paths)) == [
        (("count",), 'count: "x" is a string; give an integer'),
        (("trip", "to"), "trip: missing key 'to'"),
        (("trip", "stops"), "trip.stops[0].at: is null; give a string"),
        (("list",), "missing argument 'list'"),
    ]
    assert list(find_argument_errors("No: it did not work; sorry", paths)) == []


@pytest.fixture
def conformance() -> Iterator[None]:
    """The tools of the fixtures server of the conformance suite, under an alias of their own."""
    own = REGISTRIES["default"]
    REGISTRIES["default"] = Registry("default", strict=False)
    before = set(sys.modules)
    try:
        importlib.import_module("tests.conformance.mcp_tools")
        REGISTRIES[CONFORMANCE] = REGISTRIES["default"]
    finally:
        REGISTRIES["default"] = own
        for name in set(sys.modules) - before:
            if name.startswith("tests.conformance"):
                del sys.modules[name]
    yield
    del REGISTRIES[CONFORMANCE]


@pytest.mark.django_db
@pytest.mark.usefixtures("conformance")
def test_every_tool_of_the_fixtures_has_a_form_that_sends_what_is_filled_in(
    settings: Any, subtests: pytest.Subtests
) -> None:
    servers = {alias: each for alias, each in SERVERS.items() if alias != "tenants"}
    settings.MCP = {
        "AUTH": "none",
        "SERVERS": {**servers, CONFORMANCE: {}, "default": {}},
        "PLAYGROUND": {"ENABLED": True},
        "RECORD": {"ROLLUPS": False, "CALLS": "none", "RUNNING": False},
    }
    boss = User.objects.create_superuser("boss")
    browser = Client()
    browser.force_login(boss)
    seen: set[str] = set()
    for alias in settings.MCP["SERVERS"]:
        for number, entry in enumerate(list_entries(alias, build_principal(boss, boss), KINDS["tools"])):
            if (text := json.dumps([entry.key, entry.raw["inputSchema"]])) in seen:
                continue
            seen.add(text)
            with subtests.test(f"{alias} {entry.key}"):
                schema = dict(entry.build_schema())
                arguments = make_sample(schema, schema)
                assert SchemaChecker(schema).describe_problems(arguments) == ""
                form = build_filled_form(schema, arguments)
                assert form is not None, arguments
                assert json.dumps(form.build_arguments()) == json.dumps(arguments)
                if number == 0:
                    url = reverse(PAGE, query={"server": alias, "name": entry.key})
                    page = browser.post(url, {**form.data, "act": "show"})
                    assert json.loads(page.context["message"])["params"]["arguments"] == arguments
                    assert json.loads(page.context["arguments"]) == arguments
    assert len(seen) >= 140


def make_sample(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a value of a schema, with all properties."""
    if not isinstance(schema, dict) or not schema:
        return {"any": [1, None]}
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return make_sample({**target, **{key: value for key, value in schema.items() if key != "$ref"}}, root, depth)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            others = [each for each in schema[key] if each.get("type") != "null"]
            around = {name: value for name, value in schema.items() if name != key}
            return make_sample({**others[0], **around}, root, depth)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][-1]
    kinds = schema.get("type", "object")
    kind = next(each for each in kinds if each != "null") if isinstance(kinds, list) else kinds
    return _SAMPLES[kind](schema, root, depth)


def _sample_object(schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    required = schema.get("required", ())
    found = {
        name: make_sample(inner, root, depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or depth < 3
    }
    if not schema.get("properties") and schema.get("additionalProperties") is not False and depth:
        extra = schema.get("additionalProperties", {})
        found["key"] = make_sample(extra if isinstance(extra, dict) else {}, root, depth + 1)
    return found


def _sample_string(schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> str:
    text = FORMATTED.get(schema.get("format", ""), "a b")
    return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", len(text) + 1000)]


def _sample_number(schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    return min(low, schema.get("maximum", low)) + (0.0 if schema.get("type") == "integer" else 0)


def _sample_array(schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> list[Any]:
    first = make_sample(schema.get("items", {"type": "string"}), root, depth + 1)
    return [first for _ in range(max(1, schema.get("minItems", 1)))]


_SAMPLES = {
    "object": _sample_object,
    "string": _sample_string,
    "integer": lambda schema, root, depth: int(_sample_number(schema, root, depth)),
    "number": _sample_number,
    "boolean": lambda schema, root, depth: True,
    "array": _sample_array,
    "null": lambda schema, root, depth: None,
}
