"""Elicitation forms, written in the newest way and cut down for the revisions that have them."""

import copy

import pytest

from mcp_django.protocol.revisions import REVISIONS
from tests.official_schema import definitions, validator

FIRST, BATCHING, FORMS, HANDSHAKEN, MODERN = REVISIONS.values()

TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]
PROPERTIES = {
    "name": {"type": "string", "title": "Name", "description": "Yours", "minLength": 1, "maxLength": 9, "default": "a"},
    "mail": {"type": "string", "format": "email", "pattern": "@"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 18},
    "share": {"type": "number", "title": "Share", "minimum": 0.5, "default": 0.5},
    "sure": {"type": "boolean", "description": "Really?", "default": False},
    "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
    "colour": {"type": "string", "title": "Colour", "oneOf": TITLED, "default": "g"},
    "old": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": PROPERTIES,
    "required": ["name"],
}
SEVERAL = {
    "titled": {"type": "array", "items": {"anyOf": TITLED}, "default": ["r"]},
    "untitled": {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1},
}


def form(schema):
    return {
        "method": "elicitation/create",
        "jsonrpc": "2.0",
        "id": 1,
        "params": {"message": "?", "requestedSchema": schema},
    }


def test_there_are_no_forms_before_elicitation(subtests: pytest.Subtests) -> None:
    for revision in [FIRST, BATCHING]:
        with subtests.test(revision=revision), pytest.raises(ValueError, match="no elicitation forms"):
            revision.requested_schema(SCHEMA)


def test_newer_revisions_use_the_schema_unchanged(subtests: pytest.Subtests) -> None:
    for revision in [HANDSHAKEN, MODERN]:
        with subtests.test(revision=revision):
            schema = {**SCHEMA, "properties": PROPERTIES | SEVERAL}
            assert revision.requested_schema(schema) is schema
            validator(revision.version, "ElicitRequest")(form(schema))


def test_the_first_revision_of_forms_omits_unsupported_keywords():
    before = copy.deepcopy(SCHEMA)
    shaped = FORMS.requested_schema(SCHEMA)
    assert before == SCHEMA
    assert shaped == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "description": "Yours", "minLength": 1, "maxLength": 9},
            "mail": {"type": "string", "format": "email"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "share": {"type": "number", "title": "Share", "minimum": 0.5},
            "sure": {"type": "boolean", "description": "Really?", "default": False},
            "size": {"type": "string", "enum": ["s", "m"]},
            "colour": {"type": "string", "title": "Colour", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
            "old": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
        },
        "required": ["name"],
    }
    validator(FORMS.version, "ElicitRequest")(form(shaped))


def test_the_first_revision_of_forms_has_no_fields_beyond_its_schema():
    kinds = {"string": "StringSchema", "number": "NumberSchema", "integer": "NumberSchema", "boolean": "BooleanSchema"}
    for name, field in FORMS.requested_schema(SCHEMA)["properties"].items():
        definition = "EnumSchema" if "enum" in field else kinds[field["type"]]
        assert field.keys() <= definitions(FORMS.version)[definition]["properties"].keys(), name


def test_a_multiple_choice_is_refused_by_name_where_unsupported(subtests: pytest.Subtests) -> None:
    for name in SEVERAL:
        with subtests.test(name=name), pytest.raises(ValueError, match=f"'{name}'.*'array'"):
            FORMS.requested_schema({"type": "object", "properties": {**PROPERTIES, name: SEVERAL[name]}})


def test_an_empty_form_is_unchanged():
    empty = {"type": "object", "properties": {}}
    assert FORMS.requested_schema(empty) == empty
