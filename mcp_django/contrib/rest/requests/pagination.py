"""Pagination of lists: the parameter for the page size, and the schema of a page."""

from typing import Any

from rest_framework.pagination import LimitOffsetPagination

from mcp_django.contrib.rest.schema.fields import Schema, make_nullable


def find_page_size_parameter(view: Any) -> str | None:
    """Return the query parameter for the page size, or None."""
    paginator = getattr(view, "paginator", None)
    name = getattr(paginator, "page_size_query_param", None) or getattr(paginator, "limit_query_param", None)
    return str(name) if name else None


def build_page_schema(view: Any, row: Schema, page_size: int | None) -> Schema | None:
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


def _find_defining_class(paginator: Any, method: str) -> Any:
    return next((cls for cls in type(paginator).__mro__ if method in vars(cls)), None)


def _convert_page_schema(schema: Schema) -> Schema:
    """Convert a page's schema from OpenAPI to JSON Schema, leaving rows unchanged."""
    properties: dict[str, Schema] = {}
    for name, inner in schema.get("properties", {}).items():
        kept = {key: value for key, value in inner.items() if key not in ("nullable", "example")}
        properties[name] = make_nullable(kept) if inner.get("nullable") else kept
    return {"type": "object", "properties": properties}
