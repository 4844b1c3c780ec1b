"""Query parameters of a view, from its filter backends and its paginator; the schema of a page.

If a backend describes itself (`get_schema_operation_parameters`), that description is used. django-filter's backend is
inspected through its filterset. Both packages are optional.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from rest_framework import filters
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.contrib.rest.schema.fields import get_column_schema
from mcp_django.extensions.schemas import JSONMapping, make_nullable, to_json

_FORM_FIELD_SCHEMAS: tuple[tuple[type[forms.Field], Schema], ...] = (
    (forms.BooleanField, {"type": "boolean"}),
    (forms.FloatField, {"type": "number"}),
    (forms.DecimalField, {"type": "number"}),
    (forms.IntegerField, {"type": "integer"}),
    (forms.DateTimeField, {"type": "string", "format": "date-time"}),
    (forms.DateField, {"type": "string", "format": "date"}),
    (forms.TimeField, {"type": "string", "format": "time"}),
    (forms.UUIDField, {"type": "string", "format": "uuid"}),
)


def collect_parameters(view: object, request: Request) -> dict[str, OperationParameter]:
    """Return the parameters of a view's filters and paginator.

    The view is prepared for a list.
    """
    parameters: dict[str, OperationParameter] = {}
    for backend in getattr(view, "filter_backends", None) or ():
        for parameter in _describe_backend(backend(), view, request):
            parameters[parameter.name] = parameter
    paginator = getattr(view, "paginator", None)
    if paginator is not None:
        for entry in paginator.get_schema_operation_parameters(view):
            parameter = parse_openapi_parameter(entry)
            parameters.setdefault(parameter.name, parameter)
    return parameters


def parse_openapi_parameter(entry: JSONMapping) -> OperationParameter:
    """Convert an OpenAPI parameter object."""
    schema = dict(entry.get("schema", {}))
    if entry.get("description"):
        schema["description"] = str(entry["description"])
    joined = entry.get("explode") is False or entry.get("style") in ("spaceDelimited", "pipeDelimited")
    return OperationParameter(
        entry["name"], "query", schema, is_required=bool(entry.get("required")), explode=not joined
    )


def _describe_backend(backend: object, view: object, request: Request) -> Iterable[OperationParameter]:
    if isinstance(backend, filters.SearchFilter):
        fields = backend.get_search_fields(view, request)
        if not fields:
            return []
        searched = ", ".join(str(name).lstrip("^=@$") for name in fields)
        text = f"Rows that have these words in {searched}"
        return [OperationParameter(backend.search_param, "query", {"type": "string", "description": text})]

    if isinstance(backend, filters.OrderingFilter):
        names = _list_orderings(backend, view, request)
        text = (
            f"What to order by: {', '.join(names)}; with - before a name from the last to the first, several by commas"
        )
        schema = {"type": "string", "description": text}
        return [OperationParameter(backend.ordering_param, "query", schema)] if names else []

    if hasattr(backend, "get_filterset_class"):
        return _describe_filterset(backend.get_filterset_class(view, _get_queryset(view)))
    describe = getattr(backend, "get_schema_operation_parameters", None)
    return [parse_openapi_parameter(entry) for entry in describe(view)] if describe is not None else []


def _get_queryset(view: Any) -> Any:
    try:
        return view.get_queryset()
    except Exception:
        # A real request is needed, for a user or a parent row. The model is sufficient here.
        return getattr(view, "queryset", None)


def _list_orderings(backend: Any, view: Any, request: Request) -> list[str]:
    queryset = _get_queryset(view)
    try:
        found = backend.get_valid_fields(queryset, view, {"request": request})
    except Exception:
        return [str(name) for name in getattr(view, "ordering_fields", None) or ()]
    return [str(name) for name, _ in found]


def _describe_filterset(filterset: Any) -> Iterator[OperationParameter]:
    for name, declared in {} if filterset is None else filterset.base_filters.items():
        field = declared.field
        is_joined = hasattr(declared, "base_field_class")
        label = str((not is_joined and declared.extra.get("help_text")) or declared.label or "")
        description = {"description": label} if label and label != "[invalid name]" else {}
        required = bool(declared.extra.get("required"))

        suffixes = getattr(field.widget, "suffixes", None)
        if isinstance(suffixes, list | tuple) and hasattr(field, "fields"):
            # A range, or a value with a lookup, takes one parameter per subfield.
            for suffix, part in zip(suffixes, field.fields, strict=False):
                schema = {**_build_form_field_schema(part), **description}
                yield OperationParameter(f"{name}_{suffix}" if suffix else name, "query", schema)
        elif is_joined:
            items = {key: value for key, value in _build_form_field_schema(field).items() if key == "enum"}
            schema = {"type": "array", "items": items or {"type": "string"}, **description}
            yield OperationParameter(name, "query", schema, is_required=required, explode=False)
        else:
            schema = {**_build_form_field_schema(field), **description}
            yield OperationParameter(name, "query", schema, is_required=required)


def _build_form_field_schema(field: object) -> Schema:
    """Return the schema of a form field's input."""
    if isinstance(field, forms.ModelMultipleChoiceField | forms.MultipleChoiceField):
        return {"type": "array", "items": _build_choice_schema(field)}
    if isinstance(field, forms.ModelChoiceField | forms.ChoiceField):
        return _build_choice_schema(field)

    return dict(next((schema for kind, schema in _FORM_FIELD_SCHEMAS if isinstance(field, kind)), {"type": "string"}))


def _build_choice_schema(field: Any) -> Schema:
    if isinstance(field, forms.ModelChoiceField):
        model = getattr(field.queryset, "model", None)
        if model is None:
            return {}
        name = field.to_field_name
        return get_column_schema(model._meta.get_field(name) if name else model._meta.pk)
    values = []
    for value, label in field.choices:
        inner = label if isinstance(label, list | tuple) else [(value, label)]
        values += [to_json(one) for one, _ in inner if one not in ("", None)]
    return {"enum": values} if values else {"type": "string"}


def find_page_size_parameter(view: object) -> str | None:
    """Return the query parameter that sets the size of a page; None if pages have a fixed size."""
    paginator = getattr(view, "paginator", None)
    name = getattr(paginator, "page_size_query_param", None) or getattr(paginator, "limit_query_param", None)
    return str(name) if name else None


def build_page_schema(view: object, row: Schema, page_size: int | None) -> Schema | None:
    """Return the schema of a list's response, or None if its pagination is unknown."""
    rows: Schema = {"type": "array", "items": row}
    paginator = getattr(view, "paginator", None)
    if paginator is None:
        return rows

    size = (
        paginator.default_limit if isinstance(paginator, LimitOffsetPagination) else getattr(paginator, "page_size", 1)
    )
    if not (size or page_size):
        return None if find_page_size_parameter(view) else rows

    if _find_defining_class(paginator, "get_paginated_response") is not _find_defining_class(
        paginator, "get_paginated_response_schema"
    ):
        return None  # the project overrides only one of the two methods
    return _convert_page_schema(paginator.get_paginated_response_schema(rows))


def _find_defining_class(paginator: object, method: str) -> object:
    return next((cls for cls in type(paginator).__mro__ if method in vars(cls)), None)


def _convert_page_schema(schema: Schema) -> Schema:
    """Convert a page's schema from OpenAPI to JSON Schema, leaving rows unchanged."""
    properties: dict[str, Schema] = {}
    for name, inner in schema.get("properties", {}).items():
        kept = {key: value for key, value in inner.items() if key not in ("nullable", "example")}
        properties[name] = make_nullable(kept) if inner.get("nullable") else kept
    return {"type": "object", "properties": properties}
