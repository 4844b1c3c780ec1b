"""Arguments of views: filters with names that hosts refuse, and lists with hundreds of filters."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework import filters, pagination, serializers, viewsets
from rest_framework.request import Request

from mcp_django.contrib.rest import expose
from tests.library.models import Author
from tests.server.client import PipelineClient, make_server

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.library.urls")]
LOOKUPS = [f"name__l{number}" for number in range(60)]


class Bracketed(filters.BaseFilterBackend):
    """A filter backend in the style of JSON:API."""

    def filter_queryset(self, request: Request, queryset: Any, view: Any) -> Any:
        names = request.query_params.getlist("filter[name]")
        return queryset.filter(name__in=names) if names else queryset

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        items = {"type": "array", "items": {"type": "string"}}
        return [{"name": "filter[name]", "in": "query", "description": "Its name.", "schema": items}]


class Lookups(filters.BaseFilterBackend):
    """A filter backend with many lookups, of which one works."""

    def filter_queryset(self, request: Request, queryset: Any, view: Any) -> Any:
        return (
            queryset.filter(name=request.query_params["name__l7"]) if "name__l7" in request.query_params else queryset
        )

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [{"name": name, "in": "query", "schema": {"type": "string"}} for name in LOOKUPS]


class Pages(pagination.PageNumberPagination):
    page_size = 1
    page_query_param = "page[number]"


class AuthorSerializer(serializers.ModelSerializer[Author]):
    class Meta:
        model = Author
        fields = ["name"]


class Authors(viewsets.ModelViewSet[Author]):
    queryset = Author.objects.order_by("name")
    serializer_class = AuthorSerializer
    pagination_class = Pages
    filter_backends = [Bracketed]


class ManyFilters(Authors):
    filter_backends = [Lookups]


def client(view: Any) -> PipelineClient:
    server = make_server()
    expose(view, server=server, actions=["list"], prefix="authors_")
    return PipelineClient(server)


async def entry(view: Any) -> dict[str, Any]:
    listed: dict[str, Any] = (await client(view).request("tools/list", {}))["tools"][0]
    return listed


async def call(view: Any, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = await client(view).request("tools/call", {"name": "authors_list", "arguments": arguments})
    return result


@pytest.fixture
def authors() -> None:
    for name in ("Ada", "Bob", "Cy"):
        Author.objects.create(name=name)
    User.objects.create_superuser("ann")


@pytest.mark.usefixtures("authors")
async def test_filters_in_brackets_have_names_that_hosts_accept() -> None:
    properties = (await entry(Authors))["inputSchema"]["properties"]
    assert list(properties) == ["filter_name", "page_number"]
    assert properties["filter_name"]["description"] == 'Its name. Named "filter[name]" in the API.'
    result = await call(Authors, filter_name=["Bob"])
    assert [row["name"] for row in result["structuredContent"]["results"]] == ["Bob"]


@pytest.mark.usefixtures("authors")
async def test_the_next_page_is_given_in_arguments_of_the_tool() -> None:
    page = (await call(Authors, filter_name=["Bob", "Cy"]))["structuredContent"]
    assert page["next"] == {"filter_name": ["Bob", "Cy"], "page_number": 2}
    result = await call(Authors, **page["next"])
    assert [row["name"] for row in result["structuredContent"]["results"]] == ["Cy"]


@pytest.mark.usefixtures("authors")
async def test_many_filters_are_keys_of_one_argument() -> None:
    listed = await entry(ManyFilters)
    assert list(listed["inputSchema"]["properties"]) == ["page_number", "filters"]
    assert len(json.dumps(listed["inputSchema"])) < 1500
    result = await call(ManyFilters, filters={"name__l7": "Cy"})
    assert [row["name"] for row in result["structuredContent"]["results"]] == ["Cy"]
    result = await call(ManyFilters, filters={"name__l99": "Cy"})
    assert "filters: unknown key 'name__l99'" in result["content"][0]["text"]
