"""Values that the schema of a column offers: its form accepts each of them, and refuses others by an error."""

import contextlib
import datetime as dt
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import models
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.orm.codecs import get_codec
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.declaration.writable_form import WritableValue, build_writable_value
from mcp_django.schema import SchemaChecker

CENTS = st.decimals(-9, 9, places=2)
COLUMNS: tuple[tuple[Any, dict[str, Any], st.SearchStrategy[Any]], ...] = (
    (models.CharField, {"max_length": 5}, st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=5)),
    (models.TextField, {}, st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=5)),
    (models.SlugField, {}, st.text("ab-", max_size=3)),
    (models.IntegerField, {}, st.integers(-5, 5)),
    (models.BigIntegerField, {}, st.integers(-(1 << 60), 1 << 60)),
    (models.PositiveSmallIntegerField, {}, st.integers(0, 5)),
    (models.FloatField, {}, st.floats(-9, 9)),
    (models.DecimalField, {"max_digits": 4, "decimal_places": 2}, CENTS),
    (models.DateField, {}, st.dates(dt.date(2000, 1, 1), dt.date(2000, 1, 9))),
    (models.TimeField, {}, st.times()),
    (models.DurationField, {}, st.timedeltas(dt.timedelta(), dt.timedelta(days=3))),
    (models.UUIDField, {}, st.uuids()),
    (models.BooleanField, {}, st.booleans()),
)
WRONG_VALUES = ("", "x", "0", 0, 7, 1.5, True, None, "2000-01-01", "a" * 400, [], {}, [1], "\0")


@st.composite
def column(draw: st.DrawFn) -> tuple[Any, Any, WritableValue]:
    """Draw a column with or without choices, some in groups and some repeated."""
    field_class, options, values = draw(st.sampled_from(COLUMNS))
    listed = draw(st.lists(values, max_size=4))
    pairs: list[Any] = [(value, f"label {number}") for number, value in enumerate(listed)]
    if draw(st.booleans()):
        pairs = [*pairs, ("group", [(value, "again") for value in listed])] if pairs else []
    if pairs and draw(st.booleans()):
        pairs.append((None, "none"))
    field = field_class(**options, choices=pairs or None, null=draw(st.booleans()), blank=draw(st.booleans()))
    field.set_attributes_from_name("column")
    form_field = field.formfield()
    value = build_writable_value(ExposedField(name="column", codec=get_codec(field), model_field=field), form_field)
    assert value is not None
    return field, form_field, value


def list_offered(schema: dict[str, Any]) -> list[Any]:
    """Return the values that a schema lists, and null if it permits null."""
    branches = schema.get("anyOf", [schema])
    offered = [value for branch in branches for value in branch.get("enum", [])]
    return [*offered, None] if {"type": "null"} in branches else offered


def write(field: Any, form_field: Any, value: WritableValue, given: Any) -> Any:
    """Return the value of the row after a client wrote one."""
    cleaned = form_field.clean(None if given is None else value.parse(given))
    if not (field.blank and cleaned in form_field.empty_values):
        cleaned = field.clean(cleaned, None)
    return cleaned


@given(column())
def test_each_offered_value_is_written_and_shown_as_it_was_offered(drawn: tuple[Any, Any, WritableValue]) -> None:
    field, form_field, value = drawn
    offered = list_offered(value.schema)
    if field.null and not form_field.required:
        assert SchemaChecker(value.schema).is_valid(None)
    assert len({(type(one), one) for one in offered}) == len(offered)
    for given_value in offered:
        assert SchemaChecker(value.schema).is_valid(given_value)
        written = write(field, form_field, value, given_value)
        assert written is not None or field.null
        shown = get_codec(field).serialize(field.to_python(written))
        assert shown == given_value or (not shown and not given_value)


@given(column())
def test_each_refused_value_is_an_error_of_its_field(drawn: tuple[Any, Any, WritableValue]) -> None:
    field, form_field, value = drawn
    for given_value in WRONG_VALUES:
        if SchemaChecker(value.schema).is_valid(given_value):
            with contextlib.suppress(ValidationError, ValueError):  # they become errors of the field
                write(field, form_field, value, given_value)


def test_null_is_offered_and_written_for_each_optional_column(subtests: pytest.Subtests) -> None:
    for field_class, options, _ in COLUMNS:
        with subtests.test(field_class=field_class.__name__):
            field = field_class(**options, null=True, blank=True)
            field.set_attributes_from_name("column")
            item = ExposedField(name="column", codec=get_codec(field), model_field=field)
            value = build_writable_value(item, field.formfield())
            assert value is not None
            assert SchemaChecker(value.schema).is_valid(None)
            assert write(field, field.formfield(), value, None) in (None, "")
