"""Form fields as properties of elicitation's flat schema, with conversion back.

A field's class determines its property, so custom subclasses are handled like the class they extend. Fields that
clients cannot show, or must not request, raise DeclarationError.
"""

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from django import forms
from django.forms.utils import from_current_timezone, to_current_timezone
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_duration, parse_time
from django.utils.html import strip_tags

from mcp_django.forms.choices import list_choices
from mcp_django.schema import Choice, DeclarationError
from mcp_django.server.context.conversation import InputUnavailable

MAX_CHOICES = 1000
"""Maximum number of choices of a field."""


class ValueWidget(forms.Widget):
    """Widget that returns a converted value instead of parsing browser input."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        return data.get(name)

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return name not in data


def take_converted_values(field: forms.Field) -> None:
    """Let a bound form's field take a converted value in place of a browser's input.

    The field keeps its widget, which its own validation may use.
    """
    widget, taken = cast(Any, field.widget), ValueWidget()
    widget.value_from_datadict = taken.value_from_datadict
    widget.value_omitted_from_data = taken.value_omitted_from_data


class FormProperty(NamedTuple):
    """Form field as the client sees it."""

    schema: dict[str, Any]
    to_python: Callable[[Any], Any]
    """Function from a JSON value of the right type to input of the field.

    Invalid values are returned unchanged, so that the field rejects them.
    """


def build_property(field: forms.Field, label: str, where: str) -> FormProperty | None:
    """Return the property of a field, or None for an optional choice without options.

    Raises:
        DeclarationError: the field cannot be part of a form for clients.
        Unanswered: a required choice has no options.
    """
    if isinstance(field.widget, forms.PasswordInput):
        raise DeclarationError(
            f"{where} asks for a secret, which must not pass through the client (client/elicitation); "
            "use a page of your site, with ctx.elicit_url"
        )
    texts = {"title": label}
    if help_text := strip_tags(str(field.help_text)).strip():
        texts["description"] = help_text

    if isinstance(field, forms.ChoiceField):
        return _build_choice_property(field, texts, where)
    found = next((found for kind, found in _PROPERTIES if isinstance(field, kind)), None)
    form_property = found if found is None or isinstance(found, FormProperty) else found(field)
    if form_property is None:
        raise DeclarationError(
            f"{where} ({type(field).__name__}) does not fit a question, which holds strings, numbers, booleans, dates "
            "and choices; use a page of your site, with ctx.elicit_url"
        )
    return form_property._replace(schema={**form_property.schema, **texts})


def build_default(field: forms.Field, schema: dict[str, Any], initial: Any) -> Any:
    """Return a field's initial value as the property's default, if valid."""
    value = field.prepare_value(initial)
    if value is None or value == "":
        return None
    match schema["type"]:
        case "boolean":
            return value if isinstance(value, bool) else None
        case "integer" | "number":
            return _to_number(value, schema["type"])
        case "array":
            options = set(_list_option_values(schema["items"]))
            chosen_values = [str(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else []
            return chosen_values if chosen_values and options.issuperset(chosen_values) else None

    text = _format_initial_value(value)
    options = set(_list_option_values(schema))
    return text if not options or text in options else None


def has_property_type(value: Any, schema: dict[str, Any]) -> bool:
    """Return True if a JSON value has the property's type.

    The field validates the rest.
    """
    match schema["type"]:
        case "boolean":
            return isinstance(value, bool)
        case "integer" | "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, str)


def _build_choice_property(field: forms.ChoiceField, texts: dict[str, Any], where: str) -> FormProperty | None:
    is_multiple = isinstance(field, forms.MultipleChoiceField | forms.ModelMultipleChoiceField)
    # Choices of a queryset are read as far as needed. One of them may be the empty choice.
    declared: Any = field.choices
    offered = list_choices(itertools.islice(declared, MAX_CHOICES + 2), str)
    titles = {choice.value: choice.label for choice in offered if choice.value}
    if len(titles) > MAX_CHOICES:
        raise DeclarationError(
            f"{where} offers more than {MAX_CHOICES} choices; narrow down its queryset, or use a text field"
        )

    if not titles:
        if field.required:
            raise InputUnavailable(f"No choices are available for {texts['title']!r}")
        return None

    named = any(title != value for value, title in titles.items())
    choice = Choice(list(titles), list(titles.values()) if named else None)
    if is_multiple:
        item_limit = {"minItems": 1} if field.required else {}
        schema, _ = choice.build_multiple_field({**texts, **item_limit}, None)
    else:
        schema, _ = choice.build_single_field(texts, None)
    return FormProperty(schema, _identity)


def _list_option_values(schema: dict[str, Any]) -> list[str]:
    options = schema.get("oneOf") or schema.get("anyOf")
    return [option["const"] for option in options] if options else schema.get("enum", [])


def _identity(value: Any) -> Any:
    return value


def _build_string_property(field: forms.CharField) -> FormProperty:
    schema: dict[str, Any] = {"type": "string"}
    min_length = max(field.min_length or 0, 1 if field.required else 0)
    if min_length:
        schema["minLength"] = min_length
    if field.max_length is not None:
        schema["maxLength"] = field.max_length
    if isinstance(field, forms.EmailField):
        schema["format"] = "email"
    elif isinstance(field, forms.URLField):
        schema["format"] = "uri"
    return FormProperty(schema, _identity)


def _build_number_property(field: forms.IntegerField) -> FormProperty:
    # DecimalField and FloatField extend IntegerField.
    fractional = isinstance(field, forms.DecimalField | forms.FloatField)
    schema: dict[str, Any] = {"type": "number" if fractional else "integer"}
    for key, bound in (("minimum", field.min_value), ("maximum", field.max_value)):
        limit = _to_number(bound() if callable(bound) else bound, "number")
        if limit is not None:
            schema[key] = limit
    return FormProperty(schema, _identity if fractional else _to_integer)


def _to_integer(value: Any) -> Any:
    # In JSON Schema 3.0 is an integer.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _to_number(value: Any, kind: str) -> int | float | None:
    try:
        if isinstance(value, bool):
            return None
        number = float(value)
        if number.is_integer():
            return int(value)
        return number if kind == "number" else None
    except (TypeError, ValueError, OverflowError):
        return None


def _build_parsed_property(parse: Callable[[str], Any], schema: dict[str, Any]) -> FormProperty:
    def to_python(value: str) -> Any:
        try:
            parsed = parse(value)
        except ValueError:  # well formed, but nonexistent, such as February 30
            return value
        return value if parsed is None else parsed

    return FormProperty({"type": "string", **schema}, to_python)


def _parse_split_datetime(value: str) -> list[Any] | None:
    moment = _parse_form_datetime(value)
    if moment is None:
        return None
    local = to_current_timezone(moment)
    return [local.date(), local.time()]


def _parse_form_datetime(value: str) -> dt.datetime | None:
    """Parse a date and time for a form field, by default in the current time zone."""
    moment = parse_datetime(value)
    if moment is None:
        day = parse_date(value)
        return None if day is None else dt.datetime.combine(day, dt.time())
    if moment.tzinfo is None or timezone.is_aware(timezone.now()):
        return moment
    # Without USE_TZ all datetimes are naive, in the project's time zone.
    return timezone.make_naive(moment, timezone.get_default_timezone())


def _format_initial_value(value: Any) -> str:
    """Format an initial value as clients write it."""
    if isinstance(value, dt.datetime):
        return (from_current_timezone(value) if value.tzinfo is None else value).isoformat()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value)


_PROPERTIES: tuple[tuple[type[forms.Field], FormProperty | Callable[[Any], FormProperty] | None], ...] = (
    (forms.FileField, None),
    (forms.JSONField, None),
    (forms.SplitDateTimeField, _build_parsed_property(_parse_split_datetime, {"format": "date-time"})),
    (forms.MultiValueField, None),
    (forms.BooleanField, FormProperty({"type": "boolean"}, _identity)),
    (forms.IntegerField, _build_number_property),
    (forms.DateTimeField, _build_parsed_property(_parse_form_datetime, {"format": "date-time"})),
    (forms.DateField, _build_parsed_property(parse_date, {"format": "date"})),
    (forms.TimeField, _build_parsed_property(parse_time, {"description": "A time of day, such as 14:30"})),
    (
        forms.DurationField,
        _build_parsed_property(parse_duration, {"description": "A duration, such as 01:30:00 or P1DT2H"}),
    ),
    (forms.CharField, _build_string_property),
)
"""Properties, or their builders, by field class; subclasses come before their base classes.

None marks fields that clients cannot show.
"""
