"""Descriptions of drf-spectacular are those of tools; the serializers describe the rest."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.core.validators import MaxValueValidator
from django.test import override_settings
from django.utils.translation import gettext_lazy
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from mcp_django.contrib.rest import expose
from mcp_django.contrib.rest.openapi import _SchemaTranslator
from tests.library.models import Book
from tests.library.views import BookFilter, CoverSerializer, DjangoFilterBackend, Pages, ReviewSerializer
from tests.server.client import PipelineClient, make_server

pytestmark = pytest.mark.urls("tests.library.urls")


class DescribedSerializer(serializers.ModelSerializer):
    reviews = ReviewSerializer(many=True, read_only=True)
    score = serializers.SerializerMethodField()

    class Meta:
        model = Book
        fields = ["id", "title", "pages", "genre", "reviews", "score"]

    @extend_schema_field({"type": "number", "minimum": 0})
    def get_score(self, book: Book) -> Any:
        return 1


def described() -> type[viewsets.ModelViewSet]:
    """The class is made where drf-spectacular is the project's schema class, as its decorators want it."""
    with override_settings(REST_FRAMEWORK={"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}):

        class Described(viewsets.ModelViewSet):
            """Books, described."""

            schema = AutoSchema()

            queryset = Book.objects.all()
            serializer_class = DescribedSerializer
            pagination_class = Pages
            filter_backends = [DjangoFilterBackend]
            filterset_class = BookFilter

            @extend_schema(
                parameters=[OpenApiParameter("since", OpenApiTypes.DATE, description="Not before")],
                responses=ReviewSerializer(many=True),
                description="Reviews of all books.",
            )
            @action(detail=False, pagination_class=None, filter_backends=[])
            def reviews(self, request: Any) -> Response:
                return Response([{"stars": 3, "text": request.query_params.get("since", "")}])

            @action(detail=True, methods=["post"])
            def plain(self, request: Any, pk: str) -> Response:
                return Response("anything")

            @extend_schema(request={"multipart/form-data": CoverSerializer})
            @action(detail=True, methods=["post"])
            def cover(self, request: Any, pk: str) -> Response:
                return Response()

    return Described


async def tools() -> tuple[PipelineClient, dict[str, dict[str, Any]]]:
    server = make_server()
    expose(described(), server=server, actions="__all__")
    client = PipelineClient(server)
    return client, {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}


async def test_arguments_and_results_are_those_of_the_operation() -> None:
    _, found = await tools()
    create = found["book_create"]["inputSchema"]
    assert set(create["properties"]) == {"title", "pages", "genre"}, "what is only read is left out"
    assert create["required"] == ["title"]
    assert create["properties"]["pages"]["anyOf"][1:] == [{"type": "null"}]
    row = found["book_retrieve"]["outputSchema"]
    assert row["properties"]["score"]["type"] == "number"
    assert row["properties"]["reviews"]["items"]["properties"]["stars"]["maximum"] == 5
    assert "required" not in row
    listed = found["book_list"]
    assert {"author", "min_price", "published_after", "page", "page_size"} <= set(listed["inputSchema"]["properties"])
    assert set(listed["outputSchema"]["properties"]) == {"count", "next", "previous", "results"}
    assert listed["outputSchema"]["properties"]["next"]["anyOf"] == [{"type": "object"}, {"type": "null"}]
    assert found["book_cover"]["inputSchema"]["properties"]["cover"]["required"] == ["name", "content"]


async def test_the_description_of_extend_schema_is_used() -> None:
    client, found = await tools()
    extended = found["book_reviews"]
    assert extended["description"] == "Reviews of all books."
    assert extended["inputSchema"]["properties"] == {
        "since": {"type": "string", "format": "date", "description": "Not before"}
    }
    assert extended["outputSchema"]["properties"]["result"]["type"] == "array"
    result = await client.call("book_reviews", since="2020-01-01")
    assert result["structuredContent"] == {"result": [{"stars": 3, "text": "2020-01-01"}]}


async def test_a_guessed_schema_of_a_custom_action_is_not_declared() -> None:
    _, found = await tools()
    assert "outputSchema" not in found["book_plain"]
    assert set(found["book_plain"]["inputSchema"]["properties"]) == {"pk", "body"}


def test_schemas_of_openapi_become_json_schema(subtests: pytest.Subtests) -> None:
    cases = (
        ({"type": "string", "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": False}, {"type": "integer", "maximum": 1}),
        ({"oneOf": [{"enum": ["a"]}, {"enum": [""]}]}, {"anyOf": [{"enum": ["a"]}, {"enum": [""]}]}),
        (
            {"allOf": [{"$ref": "#/components/schemas/X"}], "readOnly": True, "example": 1},
            {"type": "object", "properties": {"nullable": {"type": "string"}}, "required": ["nullable"]},
        ),
        (
            {"oneOf": [{"type": "integer"}, {"type": "string", "nullable": True}], "nullable": True, "title": "Key"},
            {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}], "title": "Key"},
        ),
        ({"$ref": "#/components/schemas/Y"}, None),
    )
    for openapi, schema in cases:
        with subtests.test(openapi=openapi, schema=schema):
            components = {
                "X": {
                    "type": "object",
                    "properties": {"nullable": {"type": "string"}, "id": {"type": "integer", "readOnly": True}},
                    "required": ["nullable", "id"],
                },
                "Y": {"type": "object", "properties": {"again": {"$ref": "#/components/schemas/Y"}}},
            }
            found = _SchemaTranslator(components, is_input=True).translate(openapi)
            assert found == schema or (schema is None and str(found).count("again") == 13)


class SiteSerializer(serializers.Serializer):
    """Fields whose descriptions by drf-spectacular have lazy texts and Decimals."""

    name = serializers.CharField(max_length=20, help_text=gettext_lazy("Name of the site"))
    latitude = serializers.DecimalField(
        max_digits=8, decimal_places=6, min_value=Decimal("-90.5"), max_value=Decimal(90), coerce_to_string=False
    )
    opened = serializers.DateField(validators=[MaxValueValidator(date(2030, 1, 1))])
    status = serializers.SerializerMethodField()

    @extend_schema_field({"type": "string", "enum": [gettext_lazy("Active"), gettext_lazy("Planned")]})
    def get_status(self, site: Any) -> str:
        return "Active"


class SiteViewSet(viewsets.ModelViewSet):
    schema = AutoSchema()
    queryset = Book.objects.all()
    serializer_class = SiteSerializer


async def test_lazy_texts_and_decimals_of_a_description_become_json(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()
    expose(SiteViewSet, server=server, actions=["create", "retrieve"])
    found = {tool["name"]: tool for tool in (await PipelineClient(server).request("tools/list"))["tools"]}
    arguments = found["book_create"]["inputSchema"]["properties"]
    assert arguments["name"] == {"type": "string", "maxLength": 20, "description": "Name of the site"}
    assert (arguments["latitude"]["minimum"], arguments["latitude"]["maximum"]) == (-90.5, 90)
    assert "maximum" not in arguments["opened"]
    assert found["book_retrieve"]["outputSchema"]["properties"]["status"]["enum"] == ["Active", "Planned"]
    assert not [record for record in caplog.records if record.name == "mcp_django.rest"]


class OneOrMany(AutoSchema):
    """Schema of views that create an object or a list of objects."""

    def _get_request_for_media_type(self, serializer: Any, direction: str = "request") -> Any:
        schema, required = super()._get_request_for_media_type(serializer, direction)
        return {"oneOf": [schema, {"type": "array", "items": schema}]}, required


class RackSerializer(serializers.Serializer):
    name = serializers.CharField(max_length=20, help_text="Name of the rack.")
    note = serializers.CharField(required=False)


class CrateSerializer(serializers.Serializer):
    items = serializers.IntegerField()


class RackViewSet(viewsets.GenericViewSet):
    schema = OneOrMany()
    queryset = Book.objects.all()
    serializer_class = RackSerializer

    def create(self, request: Any) -> Response:
        is_list = isinstance(request.data, list)
        RackSerializer(data=request.data, many=is_list).is_valid(raise_exception=True)
        return Response({"data": request.data})

    @action(detail=False, methods=["post"], serializer_class=CrateSerializer, schema=OneOrMany())
    def crate(self, request: Any) -> Response:
        return Response({"data": request.data})


def racks() -> PipelineClient:
    server = make_server()
    expose(RackViewSet, server=server, actions="__all__", prefix="rack_")
    return PipelineClient(server)


async def test_a_body_of_one_object_or_a_list_has_the_fields_and_items_for_several() -> None:
    client = racks()
    found = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}["rack_create"]["inputSchema"]
    assert found["properties"]["name"]["description"] == "Name of the rack. Required without `items`."
    assert "description" not in found["properties"]["note"]
    assert "required" not in found, "neither the fields nor items are required alone"
    assert found["properties"]["items"]["items"] == {"type": "object", "required": ["name"]}

    assert await client.text("rack_create", name="a") == '{"data":{"name":"a"}}'
    assert await client.text("rack_create", items=[{"name": "a"}, {"name": "b"}]) == (
        '{"data":[{"name":"a"},{"name":"b"}]}'
    )
    assert "name: This field is required" in await client.error("rack_create")
    assert "[1].name: This field is required" in await client.error("rack_create", items=[{"name": "a"}, {}])
    assert "items replaces name" in await client.error("rack_create", name="a", items=[{"name": "b"}])
    assert "items: 1 is an integer; give a list" in await client.error("rack_create", items=1)


async def test_a_field_named_items_separates_both_forms_of_the_body() -> None:
    client = racks()
    found = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}["rack_crate"]["inputSchema"]
    one, several = found["properties"]["body"]["anyOf"]
    assert one["required"] == ["items"]
    assert several == {"type": "array", "items": one}
    assert await client.text("rack_crate", body=[{"items": 1}]) == '{"data":[{"items":1}]}'
