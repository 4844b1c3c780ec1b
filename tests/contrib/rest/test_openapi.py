"""What drf-spectacular says of a view is what its tools say; what it says nothing of, the serializers do."""

from typing import Any

import pytest
from django.test import override_settings
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


async def test_an_action_that_was_extended_keeps_what_was_said() -> None:
    client, found = await tools()
    extended = found["book_reviews"]
    assert extended["description"] == "Reviews of all books."
    assert extended["inputSchema"]["properties"] == {
        "since": {"type": "string", "format": "date", "description": "Not before"}
    }
    assert extended["outputSchema"]["properties"]["result"]["type"] == "array"
    result = await client.call("book_reviews", since="2020-01-01")
    assert result["structuredContent"] == {"result": [{"stars": 3, "text": "2020-01-01"}]}


async def test_a_guess_about_an_action_of_the_projects_own_is_not_promised() -> None:
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
            {"allOf": [{"type": "object", "properties": {"nullable": {"type": "string"}}, "required": ["nullable"]}]},
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
