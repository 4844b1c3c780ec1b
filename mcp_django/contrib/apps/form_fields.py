"""Form fields in a page: widgets for the browser, and the JSON types of their arguments."""

import copy
from typing import Any, NamedTuple

from django import forms
from django.forms import BoundField

from mcp_django.extensions.conversations import InputUnavailable
from mcp_django.extensions.errors import DeclarationError
from mcp_django.forms.fields import build_property

_BROWSER_WIDGETS: tuple[tuple[type[forms.Widget], str, str], ...] = (
    (forms.DateInput, "date", "%Y-%m-%d"),
    (forms.DateTimeInput, "datetime-local", "%Y-%m-%dT%H:%M:%S"),
    (forms.TimeInput, "time", "%H:%M:%S"),
)
"""Widgets of dates and times, whose values the browser writes in ISO 8601."""


class FieldType(NamedTuple):
    """JSON type of a field's argument."""

    name: str
    omits_empty: bool
    """True if the argument is left out while the control is empty."""


def get_field_type(bound: BoundField) -> FieldType:
    """Return the JSON type of a field. Raises DeclarationError for fields that a tool cannot take."""
    if isinstance(bound.field, forms.ChoiceField):
        is_multiple = isinstance(bound.field, forms.MultipleChoiceField | forms.ModelMultipleChoiceField)
        return FieldType("array" if is_multiple else "string", not is_multiple)
    schema = build_field_schema(bound)
    is_text = schema["type"] == "string" and isinstance(bound.field, forms.CharField)
    return FieldType(str(schema["type"]), not is_text)


def build_field_schema(bound: BoundField) -> dict[str, Any]:
    """Return the JSON Schema of a field, without choices of the database.

    Raises DeclarationError for fields that a tool cannot take.
    """
    field, label = bound.field, str(bound.label)
    if isinstance(field, forms.ModelChoiceField):
        schema: dict[str, Any] = {"type": "string"}
        if isinstance(field, forms.ModelMultipleChoiceField):
            schema = {"type": "array", "items": schema}
        texts = {"title": label, "description": str(field.help_text)}
        return {**schema, **{key: text for key, text in texts.items() if text}}
    where = f"{type(bound.form).__name__}: field '{bound.name}'"
    try:
        found = build_property(field, label, where)
    except InputUnavailable as problem:
        raise DeclarationError(f"{where}: {problem}") from None
    return {"type": "string", "title": label} if found is None else found.schema


def render_widget(bound: BoundField, attributes: dict[str, str | bool]) -> str:
    """Return the HTML of a field's widget, with the browser's controls for dates and times."""
    widget: Any = bound.field.widget
    for kind, input_type, date_format in _BROWSER_WIDGETS:
        if isinstance(widget, kind) and not isinstance(widget, forms.MultiWidget):
            widget = copy.copy(widget)
            widget.input_type = input_type
            widget.format = date_format
            if input_type != "date":
                attributes = {"step": "any", **attributes}  # by default, browsers refuse times with seconds
    return bound.as_widget(widget, attrs=attributes)
