"""Serializers, filters and paginators as JSON Schema of arguments and results."""

import re
from decimal import Decimal
from typing import Any, Literal

import pytest
from asgiref.sync import async_to_sync
from django.core import validators
from rest_framework import pagination, serializers, viewsets
from rest_framework.response import Response

from mcp_django.contrib.rest import expose
from mcp_django.contrib.rest.schema.fields import FILE_SCHEMA, convert_to_ecma, is_file
from mcp_django.contrib.rest.schema.serializers import build_body_schema, build_response_schema
from mcp_django.schema import make_nullable
from mcp_django.schema.custom_schema import check_schema
from tests.library.models import Author, Book
from tests.library.views import BookSerializer, Pages
from tests.server.client import PipelineClient, make_server


def given(field: Any) -> Any:
    made = type("Made", (serializers.Serializer,), {"it": field})()
    return build_body_schema(made)["properties"].get("it")


def returned(field: Any) -> Any:
    made = type("Made", (serializers.Serializer,), {"it": field})()
    return build_response_schema(made)["properties"].get("it")


class Inner(serializers.Serializer):
    x = serializers.IntegerField()


class Even(serializers.Field):
    def to_internal_value(self, data: Any) -> Any:
        return data

    def to_representation(self, value: Any) -> int:
        return 2


STRING, NULLABLE = {"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}
FIELDS = [
    (serializers.CharField(), {"type": "string", "minLength": 1}, STRING),
    (
        serializers.CharField(allow_blank=True, max_length=3, allow_null=True, help_text="Say"),
        {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "description": "Say"},
        {**NULLABLE, "description": "Say"},
    ),
    (serializers.CharField(read_only=True), None, NULLABLE),
    (serializers.CharField(write_only=True), {"type": "string", "minLength": 1}, None),
    (serializers.HiddenField(default=1), None, None),
    (serializers.CharField(default="a"), {"type": "string", "minLength": 1, "default": "a"}, NULLABLE),
    (
        serializers.RegexField(r"^[a-z]+\Z"),
        {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
        STRING,
    ),
    (
        serializers.EmailField(),
        {"type": "string", "format": "email", "minLength": 1},
        {"type": "string", "format": "email"},
    ),
    (serializers.UUIDField(), {"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}),
    (serializers.BooleanField(), {"type": "boolean"}, {"type": "boolean"}),
    (
        serializers.IntegerField(min_value=1, max_value=9),
        {"type": "integer", "minimum": 1, "maximum": 9},
        {"type": "integer"},
    ),
    (
        serializers.FloatField(validators=[validators.MinValueValidator(0.5)]),
        {"type": "number", "minimum": 0.5},
        {"type": "number"},
    ),
    (
        serializers.DecimalField(5, 2, max_value=Decimal("9.5")),
        {
            "anyOf": [{"type": "number"}, {"type": "string"}],
            "description": "A decimal number, up to 5 digits, 2 of them after the point",
            "maximum": 9.5,
        },
        STRING,
    ),
    (
        serializers.DecimalField(None, None, coerce_to_string=False),
        {"anyOf": [{"type": "number"}, {"type": "string"}], "description": "A decimal number"},
        {"type": "number"},
    ),
    (serializers.DateField(), {"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
    (
        serializers.DateField(input_formats=["%d.%m.%Y"], format="%d.%m.%Y"),
        {"type": "string", "description": "As %d.%m.%Y (strftime)"},
        STRING,
    ),
    (serializers.DurationField(), STRING, STRING),
    (
        serializers.ChoiceField(["a", ("b", "Bee")], allow_blank=True),
        {"enum": ["a", "b", ""], "description": "b (Bee)"},
        {"type": "string", "description": "b (Bee)"},
    ),
    (
        serializers.ChoiceField([1, 2], allow_null=True),
        {"anyOf": [{"enum": [1, 2]}, {"type": "null"}]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    ),
    (
        serializers.MultipleChoiceField(choices=["a"], allow_empty=False),
        {"type": "array", "items": {"enum": ["a"]}, "minItems": 1},
        {"type": "array"},
    ),
    (
        serializers.ListField(child=serializers.IntegerField(), max_length=2),
        {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
        {"type": "array", "items": {"type": "integer"}},
    ),
    (
        serializers.DictField(child=serializers.CharField(allow_blank=True)),
        {"type": "object", "additionalProperties": STRING},
        {"type": "object"},
    ),
    (serializers.JSONField(), {}, {}),
    (serializers.FileField(), FILE_SCHEMA, NULLABLE),
    (serializers.ImageField(allow_null=True), {"anyOf": [FILE_SCHEMA, {"type": "null"}]}, NULLABLE),
    (
        serializers.PrimaryKeyRelatedField(queryset=Author.objects.all(), many=True),
        {"type": "array", "items": {"type": "integer", "description": "Primary key: author"}},
        {"type": "array", "items": {"type": "integer", "description": "Primary key: author"}},
    ),
    (
        serializers.SlugRelatedField(slug_field="isbn", queryset=Book.objects.all(), required=True),
        {"type": "string", "description": "isbn: book"},
        {"type": "string", "description": "isbn: book"},
    ),
    (serializers.StringRelatedField(), None, NULLABLE),
    (
        Inner(many=True, allow_empty=False),
        {
            "type": "array",
            "items": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            "minItems": 1,
        },
        {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    ),
    (Even(), {}, {"type": "integer"}),
]


def test_a_field_is_described_both_ways(subtests: pytest.Subtests) -> None:
    for field, into, out in FIELDS:
        with subtests.test(field=field, into=into, out=out):
            assert given(field) == into
            assert returned(field) == out


def test_methods_are_described_by_their_return_annotation() -> None:
    class Methods(serializers.Serializer):
        one = serializers.SerializerMethodField()
        two = serializers.SerializerMethodField()
        three = serializers.SerializerMethodField()

        def get_one(self, obj: Any) -> list[int] | None: ...

        def get_two(self, obj: Any) -> Literal["a", "b"]:
            return "a"

        def get_three(self, obj):  # type: ignore[no-untyped-def]
            return 1

    assert build_response_schema(Methods())["properties"] == {
        "one": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "two": {"enum": ["a", "b"]},
        "three": {},
    }


def test_a_serializer_inside_itself_is_described_to_a_depth() -> None:
    class Tree(serializers.Serializer):
        def get_fields(self) -> Any:
            return {"child": Tree(required=False)}

    assert str(build_body_schema(Tree())).count("child") == 6
    check_schema(build_body_schema(Tree()), "tree")


def test_a_serializer_with_its_own_representation_has_no_schema() -> None:
    class Own(BookSerializer):
        def to_representation(self, instance: Any) -> Any:
            return "anything"

        def to_internal_value(self, data: Any) -> Any:
            return data

    assert build_response_schema(Own()) == {}
    assert build_body_schema(Own())["additionalProperties"] is True


def test_only_patterns_with_equal_meaning_in_ecmascript_are_converted(subtests: pytest.Subtests) -> None:
    cases = (
        (r"^\d+\Z", 0, r"^\d+$"),
        (r"\Aab$", 0, "^ab$"),
        ("a|b", 0, "a|b"),
        ("^a$", re.IGNORECASE, None),
        ("(?P<x>a)", 0, None),
        (r"(?<=a)b", 0, None),
        (r"a\Z|b", 0, None),
    )
    for pattern, flags, ported in cases:
        with subtests.test(pattern=pattern, flags=flags, ported=ported):
            assert convert_to_ecma(re.compile(pattern, flags)) == ported


class Odd(Pages):
    def get_paginated_response(self, data: Any) -> Response:
        return Response({"rows": data})


class Optional(pagination.LimitOffsetPagination):
    default_limit = None


class Cursor(pagination.CursorPagination):
    page_size = 2
    ordering = "pk"


@pytest.mark.urls("tests.library.urls")
def test_a_list_is_described_as_its_paginator_makes_it(subtests: pytest.Subtests) -> None:
    async def check(paginator: Any, options: Any, keys: Any) -> None:
        class Rows(viewsets.ReadOnlyModelViewSet):
            queryset = Author.objects.all()
            serializer_class = type(
                "S", (serializers.ModelSerializer,), {"Meta": type("Meta", (), {"model": Author, "fields": ["name"]})}
            )
            pagination_class = paginator

        server = make_server()
        expose(Rows, server=server, actions=["list"], **options)
        (tool,) = (await PipelineClient(server).request("tools/list"))["tools"]
        schema = tool.get("outputSchema")
        assert (schema if schema is None else list(schema["properties"])) == keys

    cases = (
        (None, {}, ["result"]),
        (Pages, {}, ["count", "next", "previous", "results"]),
        (Cursor, {}, ["next", "previous", "results"]),
        (Odd, {}, None),
        (Optional, {}, None),
        (Optional, {"page_size": 5}, ["count", "next", "previous", "results"]),
    )
    for paginator, options, keys in cases:
        with subtests.test(paginator=paginator, options=options, keys=keys):
            async_to_sync(check)(paginator, options, keys)


@pytest.mark.urls("tests.library.urls")
async def test_page_size_is_refused_where_callers_cannot_choose() -> None:
    class Rows(viewsets.ReadOnlyModelViewSet):
        queryset = Author.objects.all()
        serializer_class = BookSerializer
        pagination_class = Cursor

    server = make_server()
    expose(Rows, server=server, page_size=3)
    assert "Internal error" in await PipelineClient(server).error("author_list")


@pytest.mark.urls("tests.library.urls")
async def test_a_view_that_cannot_be_described_outside_a_request_is_served() -> None:
    class Shy(viewsets.ModelViewSet):
        queryset = Author.objects.all()

        def get_serializer_class(self) -> Any:
            return {"x": BookSerializer}[self.request.headers["X-Kind"]]

    server = make_server()
    expose(Shy, server=server, actions=["create", "list"])
    tools = (await PipelineClient(server).request("tools/list"))["tools"]
    assert [tool["name"] for tool in tools] == ["author_create", "author_list"]


def test_nullable_files_are_recognized() -> None:
    items = make_nullable(FILE_SCHEMA)
    files = [FILE_SCHEMA, items, {"type": "array", "items": items}, make_nullable({"type": "array", "items": items})]
    assert [is_file(schema) for schema in files] == [True] * 4
    assert not is_file(make_nullable({"type": "object", "properties": {}}))
