"""Tools that return the rows in four ways.

They are a toolset of the model, a viewset, a document of an API, and functions with many types.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.forms.models import model_to_dict
from django.http import HttpRequest, JsonResponse
from rest_framework import serializers, viewsets

from mcp_django import ModelToolset, register, tool
from mcp_django.contrib.openapi import OpenAPIToolset
from mcp_django.contrib.rest import expose
from tests.clients.odd_rows.site.models import Oddity

COLUMNS = [field.name for field in Oddity._meta.concrete_fields if field.name not in ("id", "key")]


@register(Oddity)
class Oddities(ModelToolset):
    fields = [*COLUMNS, "key", "friends"]
    sensitive_fields = ["key"]
    list_filter = ["made", "day", "large", "mood"]
    max_limit = 300
    tools = ["describe", "list", "get", "aggregate", "create", "update"]


class OdditySerializer(serializers.ModelSerializer[Oddity]):
    tags = serializers.ListField(source="list_tags", read_only=True)

    class Meta:
        model = Oddity
        fields = [*(name for name in COLUMNS if name != "content"), "key", "tags"]


Oddity.list_tags = lambda self: [self.label, None, {"n": self.large}]  # type: ignore[attr-defined]


class OddityViewSet(viewsets.ReadOnlyModelViewSet[Oddity]):
    queryset = Oddity.objects.all()
    serializer_class = OdditySerializer


expose(OddityViewSet, prefix="view_")


class Size(NamedTuple):
    width: float
    unit: str | None


@dataclass
class Description:
    made: dt.datetime | None
    opens: dt.time | None
    takes: dt.timedelta | None
    day: dt.date | None
    key: UUID
    price: Decimal
    size: Size
    pair: tuple[int, str]
    sizes: dict[str, tuple[Size, ...]]
    data: Any
    rest: dict[str, Any]


@tool
def describe_row(pk: int, near: tuple[int, str] | None = None, sizes: dict[str, Size] | None = None) -> Description:
    """Describe a row by a dataclass."""
    row = Oddity.objects.get(pk=pk)
    size = Size(row.ratio or 0, row.mood)
    return Description(
        row.made,
        row.opens,
        row.takes,
        row.day,
        row.key,
        row.price,
        size,
        (row.large, row.label),
        {row.label: (size, size)},
        row.data,
        {"large": row.large, "data": [row.data]},
    )


@tool(
    output_schema={
        "type": "object",
        "properties": {
            "email": {"type": "string", "format": "email"},
            "made": {"type": "string", "format": "date-time"},
            "all": {"type": "array"},
        },
    }
)
def show_row(pk: int) -> dict[str, Any]:
    """Show a row by a schema that promises too much."""
    row = Oddity.objects.get(pk=pk)
    return {"email": row.email, "made": str(row.made), "all": [row.label, row.large, None, [row.data]]}


def serve_row(request: HttpRequest, pk: int) -> JsonResponse:
    """Serve a row as lax APIs do.

    Dates have a space, addresses may be blank, and some members may have any value.
    """
    row = Oddity.objects.get(pk=pk)
    body: Mapping[str, Any] = model_to_dict(row, ["email", "address", "label", "large", "data"])
    return JsonResponse({**body, "made": str(row.made), "day": str(row.day), "tags": [row.label, row.large, None]})


def _describe(**kinds: str) -> dict[str, Any]:
    return {name: {"type": "string", "format": kind, "nullable": True} for name, kind in kinds.items()}


ROW = {
    **_describe(email="email", address="uri", made="date-time", day="date"),
    "large": {"type": "integer", "format": "int32"},
    "tags": {"type": "array"},
    "data": {},
}
DOCUMENT = {
    "openapi": "3.0.3",
    "info": {"title": "Rows", "version": "1"},
    "paths": {
        "/rows/{pk}": {
            "get": {
                "operationId": "row",
                "parameters": [
                    {"name": "pk", "in": "path", "required": True, "schema": {"type": "integer"}},
                    {"name": "any", "in": "query", "schema": {"type": "array"}},
                ],
                "responses": {
                    "200": {
                        "description": "A row.",
                        "content": {"application/json": {"schema": {"type": "object", "properties": ROW}}},
                    }
                },
            }
        }
    },
}
register(OpenAPIToolset.from_urlconf(DOCUMENT, root="/api", prefix="api"))
