"""Query parameters of a view, from its filter backends and its paginator.

If a backend describes itself (`get_schema_operation_parameters`), that description is used. django-filter's backend is
inspected through its filterset. Both packages are optional.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from rest_framework import filters
from rest_framework.request import Request

from mcp_django.contrib.rest.schema.fields import Schema, column_schema
from mcp_django.schema import to_json


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """Query parameter of a view."""

    name: str
    schema: Schema
    required: bool = False
    joined: bool = False
    """True if a list is sent as one text with commas.

    Otherwise each item is sent as a parameter.
    """

    def encode(self, value: Any) -> Iterator[tuple[str, str]]:
        """Yield the pairs of a query string; none for null."""
        if isinstance(value, list):
            texts = [_text(item) for item in value if item is not None]
            yield from [(self.name, ",".join(texts))] if self.joined else [(self.name, text) for text in texts]
        elif value is not None:
            yield self.name, _text(value)


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def parameters_of(view: Any, request: Request) -> dict[str, Parameter]:
    """Return the parameters of a view's filters and paginator.

    The view is prepared for a list.
    """
    found: dict[str, Parameter] = {}
    for backend in getattr(view, "filter_backends", None) or ():
        for parameter in _filtering(backend(), view, request):
            found[parameter.name] = parameter
    paginator = getattr(view, "paginator", None)
    if paginator is not None:
        for entry in paginator.get_schema_operation_parameters(view):
            parameter = from_openapi(entry)
            found.setdefault(parameter.name, parameter)
    return found


def from_openapi(entry: Mapping[str, Any]) -> Parameter:
    """Convert an OpenAPI parameter object."""
    schema = dict(entry.get("schema", {}))
    if entry.get("description"):
        schema["description"] = str(entry["description"])
    joined = entry.get("explode") is False or entry.get("style") in ("spaceDelimited", "pipeDelimited")
    return Parameter(entry["name"], schema, bool(entry.get("required")), joined)


def _filtering(backend: Any, view: Any, request: Request) -> Iterable[Parameter]:
    if isinstance(backend, filters.SearchFilter):
        fields = backend.get_search_fields(view, request)
        if not fields:
            return []
        searched = ", ".join(str(name).lstrip("^=@$") for name in fields)
        text = f"Rows that have these words in {searched}"
        return [Parameter(backend.search_param, {"type": "string", "description": text})]

    if isinstance(backend, filters.OrderingFilter):
        names = _orderings(backend, view, request)
        text = (
            f"What to order by: {', '.join(names)}; with - before a name from the last to the first, several by commas"
        )
        return [Parameter(backend.ordering_param, {"type": "string", "description": text})] if names else []

    if hasattr(backend, "get_filterset_class"):
        return _filterset(backend.get_filterset_class(view, _queryset(view)))
    describe = getattr(backend, "get_schema_operation_parameters", None)
    return [from_openapi(entry) for entry in describe(view)] if describe is not None else []


def _queryset(view: Any) -> Any:
    try:
        return view.get_queryset()
    except Exception:
        # A real request is needed, for a user or a parent row. The model is sufficient here.
        return getattr(view, "queryset", None)


def _orderings(backend: Any, view: Any, request: Request) -> list[str]:
    queryset = _queryset(view)
    try:
        found = backend.get_valid_fields(queryset, view, {"request": request})
    except Exception:
        return [str(name) for name in getattr(view, "ordering_fields", None) or ()]
    return [str(name) for name, _ in found]


def _filterset(filterset: Any) -> Iterator[Parameter]:
    for name, declared in {} if filterset is None else filterset.base_filters.items():
        field = declared.field
        is_joined = hasattr(declared, "base_field_class")
        label = str((not is_joined and declared.extra.get("help_text")) or declared.label or "")
        told = {"description": label} if label and label != "[invalid name]" else {}
        required = bool(declared.extra.get("required"))

        suffixes = getattr(field.widget, "suffixes", None)
        if isinstance(suffixes, list | tuple) and hasattr(field, "fields"):
            # A range, or a value with a lookup, takes one parameter per subfield.
            for suffix, part in zip(suffixes, field.fields, strict=False):
                yield Parameter(f"{name}_{suffix}" if suffix else name, {**_form_field(part), **told}, False)
        elif is_joined:
            items = {key: value for key, value in _form_field(field).items() if key == "enum"}
            yield Parameter(
                name, {"type": "array", "items": items or {"type": "string"}, **told}, required, joined=True
            )
        else:
            yield Parameter(name, {**_form_field(field), **told}, required)


def _form_field(field: Any) -> Schema:
    """Return the schema of a form field's input."""
    if isinstance(field, forms.ModelMultipleChoiceField | forms.MultipleChoiceField):
        return {"type": "array", "items": _one_of(field)}
    if isinstance(field, forms.ModelChoiceField | forms.ChoiceField):
        return _one_of(field)

    if isinstance(field, forms.NullBooleanField | forms.BooleanField):
        return {"type": "boolean"}
    if isinstance(field, forms.FloatField | forms.DecimalField):
        return {"type": "number"}
    if isinstance(field, forms.IntegerField):
        return {"type": "integer"}

    for kind, form in ((forms.DateTimeField, "date-time"), (forms.DateField, "date"), (forms.TimeField, "time")):
        if isinstance(field, kind):
            return {"type": "string", "format": form}
    return {"type": "string", "format": "uuid"} if isinstance(field, forms.UUIDField) else {"type": "string"}


def _one_of(field: Any) -> Schema:
    if isinstance(field, forms.ModelChoiceField):
        model = getattr(field.queryset, "model", None)
        if model is None:
            return {}
        name = field.to_field_name
        return column_schema(model._meta.get_field(name) if name else model._meta.pk)
    values = []
    for value, label in field.choices:
        inner = label if isinstance(label, list | tuple) else [(value, label)]
        values += [to_json(one) for one, _ in inner if one not in ("", None)]
    return {"enum": values} if values else {"type": "string"}
