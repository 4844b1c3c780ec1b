"""Form fields as properties of elicitation's flat schema, with conversion back.

A field's class determines its property, so custom subclasses are handled like the class they extend. Fields that
clients cannot show, or must not request, raise DeclarationError.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django import forms
from django.forms.utils import from_current_timezone, to_current_timezone
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_duration, parse_time
from django.utils.html import strip_tags

from mcp_django.schema import Choice, DeclarationError
from mcp_django.server.client_requests.conversation import Unanswered

CHOICES = 1000
"""Maximum number of choices of a field."""


class Property(NamedTuple):
    """Form field as the client sees it."""

    schema: dict[str, Any]
    to_python: Callable[[Any], Any]
    """Function from a JSON value of the right type to input of the field.

    Invalid values are returned unchanged, so that the field rejects them.
    """


def property_of(field: forms.Field, label: str, where: str) -> Property | None:
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
        return _choice(field, texts, where)
    for kind, describe in _KINDS:
        if isinstance(field, kind):
            described = None if describe is None else describe(field)
            break
    else:
        described = None

    if described is None:
        raise DeclarationError(
            f"{where} ({type(field).__name__}) does not fit a question, which holds strings, numbers, booleans, dates "
            "and choices; use a page of your site, with ctx.elicit_url"
        )
    return described._replace(schema={**described.schema, **texts})


def default_of(field: forms.Field, schema: dict[str, Any], initial: Any) -> Any:
    """Return a field's initial value as the property's default, if valid."""
    value = field.prepare_value(initial)
    if value is None or value == "":
        return None
    match schema["type"]:
        case "boolean":
            return value if isinstance(value, bool) else None
        case "integer" | "number":
            return _number(value, schema["type"])
        case "array":
            offered = set(_offered(schema["items"]))
            chosen = [str(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else []
            return chosen if chosen and offered.issuperset(chosen) else None

    text = _text(value)
    offered = set(_offered(schema))
    return text if not offered or text in offered else None


def fits(value: Any, schema: dict[str, Any]) -> bool:
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


def _choice(field: forms.ChoiceField, texts: dict[str, Any], where: str) -> Property | None:
    several = isinstance(field, forms.MultipleChoiceField | forms.ModelMultipleChoiceField)
    titles: dict[str, str] = {}
    for value, title in _flat(field.choices):
        titles[value] = title
        if len(titles) > CHOICES:
            raise DeclarationError(
                f"{where} offers more than {CHOICES} choices; narrow down its queryset, or use a text field"
            )

    if not titles:
        if field.required:
            raise Unanswered(f"No choices are available for {texts['title']!r}")
        return None

    named = any(title != value for value, title in titles.items())
    choice = Choice(list(titles), list(titles.values()) if named else None)
    if several:
        least = {"minItems": 1} if field.required else {}
        schema, _ = choice.multiple({**texts, **least}, None)
    else:
        schema, _ = choice.single(texts, None)
    return Property(schema, _as_it_is)


def _flat(choices: Any, group: str = "") -> Iterator[tuple[str, str]]:
    """Yield the choices as value and title.

    Choices of groups are included, the empty choice is left out.
    """
    for value, title in choices:
        if isinstance(title, list | tuple):
            yield from _flat(title, f"{value}: ")
        elif value is not None and str(value) != "":
            yield str(value), f"{group}{title}"


def _offered(schema: dict[str, Any]) -> list[str]:
    options = schema.get("oneOf") or schema.get("anyOf")
    return [option["const"] for option in options] if options else schema.get("enum", [])


def _as_it_is(value: Any) -> Any:
    return value


def _string(field: forms.CharField) -> Property:
    schema: dict[str, Any] = {"type": "string"}
    least = max(field.min_length or 0, 1 if field.required else 0)
    if least:
        schema["minLength"] = least
    if field.max_length is not None:
        schema["maxLength"] = field.max_length
    if isinstance(field, forms.EmailField):
        schema["format"] = "email"
    elif isinstance(field, forms.URLField):
        schema["format"] = "uri"
    return Property(schema, _as_it_is)


def _numeric(field: forms.IntegerField) -> Property:
    # DecimalField and FloatField extend IntegerField.
    fractional = isinstance(field, forms.DecimalField | forms.FloatField)
    schema: dict[str, Any] = {"type": "number" if fractional else "integer"}
    for key, bound in (("minimum", field.min_value), ("maximum", field.max_value)):
        limit = _number(bound() if callable(bound) else bound, "number")
        if limit is not None:
            schema[key] = limit
    return Property(schema, _as_it_is if fractional else _whole)


def _whole(value: Any) -> Any:
    # In JSON Schema 3.0 is an integer.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any, kind: str) -> int | float | None:
    try:
        if isinstance(value, bool):
            return None
        number = float(value)
        return int(value) if number.is_integer() else number if kind == "number" else None
    except (TypeError, ValueError, OverflowError):
        return None


def _boolean(field: forms.BooleanField) -> Property:
    return Property({"type": "boolean"}, _as_it_is)


def _parsed(parse: Callable[[str], Any], schema: dict[str, Any]) -> Property:
    def to_python(value: str) -> Any:
        try:
            parsed = parse(value)
        except ValueError:  # well formed, but nonexistent, such as February 30
            return value
        return value if parsed is None else parsed

    return Property({"type": "string", **schema}, to_python)


def _date(field: forms.DateField) -> Property:
    return _parsed(parse_date, {"format": "date"})


def _date_time(field: forms.DateTimeField) -> Property:
    return _parsed(_moment, {"format": "date-time"})


def _split_date_time(field: forms.SplitDateTimeField) -> Property:
    def parts(value: str) -> list[Any] | None:
        moment = _moment(value)
        if moment is None:
            return None
        local = to_current_timezone(moment)
        return [local.date(), local.time()]

    return _parsed(parts, {"format": "date-time"})


def _time(field: forms.TimeField) -> Property:
    return _parsed(parse_time, {"description": "A time of day, such as 14:30"})


def _duration(field: forms.DurationField) -> Property:
    return _parsed(parse_duration, {"description": "A duration, such as 01:30:00 or P1DT2H"})


def _moment(value: str) -> dt.datetime | None:
    """Parse a date and time for a form field, by default in the current time zone."""
    moment = parse_datetime(value)
    if moment is None:
        day = parse_date(value)
        return None if day is None else dt.datetime.combine(day, dt.time())
    if moment.tzinfo is None or timezone.is_aware(timezone.now()):
        return moment
    # Without USE_TZ all datetimes are naive, in the project's time zone.
    return timezone.make_naive(moment, timezone.get_default_timezone())


def _text(value: Any) -> str:
    """Format an initial value as clients write it."""
    if isinstance(value, dt.datetime):
        return (from_current_timezone(value) if value.tzinfo is None else value).isoformat()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value)


_KINDS: tuple[tuple[type[forms.Field], Callable[[Any], Property] | None], ...] = (
    (forms.FileField, None),
    (forms.JSONField, None),
    (forms.SplitDateTimeField, _split_date_time),
    (forms.MultiValueField, None),
    (forms.BooleanField, _boolean),
    (forms.IntegerField, _numeric),
    (forms.DateTimeField, _date_time),
    (forms.DateField, _date),
    (forms.TimeField, _time),
    (forms.DurationField, _duration),
    (forms.CharField, _string),
)
"""Property builders by field class; subclasses come before their base classes.

None marks fields that clients cannot show.
"""
