"""Pages of lists: a model gets the arguments of the next page, because it cannot open a URL."""

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from rest_framework import filters, pagination, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from mcp_django.contrib.rest import expose
from mcp_django.schema.alternatives import list_types
from mcp_django.schema.custom_schema import check_schema
from tests.library.models import Author
from tests.server.client import PipelineClient, make_server

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.library.urls")]
NAMES = ["Ada", "Bob", "Cy", "Dan", "Eve"]


class Numbers(pagination.PageNumberPagination):
    page_size = 2
    page_size_query_param = "size"


class Offsets(pagination.LimitOffsetPagination):
    default_limit = 2


class Cursors(pagination.CursorPagination):
    page_size = 2
    ordering = "pk"


class Nested(Numbers):
    """A paginator of the project, which describes no schema."""

    def get_paginated_response(self, data: Any) -> Response:
        links = {
            "next": self.get_next_link(),
            "previous": self.get_previous_link(),
            "help": "https://help.example/?page=2",
        }
        return Response({"links": links, "rows": data})


class Relative(Numbers):
    """A paginator of the project whose links are relative."""

    def get_next_link(self) -> str | None:
        return f"?page={self.page.next_page_number()}" if self.page.has_next() else None


class Undescribed(Numbers):
    """A paginator of the project whose parameter is not described."""

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return []


class AuthorSerializer(serializers.ModelSerializer[Author]):
    class Meta:
        model = Author
        fields = ("name",)


def serve(paginator: Any, **options: Any) -> PipelineClient:
    class Authors(viewsets.ReadOnlyModelViewSet[Author]):
        queryset = Author.objects.order_by("pk")
        serializer_class = AuthorSerializer
        pagination_class = paginator
        filter_backends = (filters.SearchFilter,)
        search_fields = ("name",)
        permission_classes = ()

        @action(detail=False)
        def latest(self, request: Any) -> Response:
            page = self.paginate_queryset(self.get_queryset().order_by("-pk"))
            return self.get_paginated_response(AuthorSerializer(page, many=True).data)

    for name in NAMES:
        Author.objects.create(name=name)
    server = make_server()
    expose(Authors, server=server, actions=["list", "latest"], **options)
    return PipelineClient(server)


def call(peer: PipelineClient, tool: str = "author_list", **arguments: Any) -> dict[str, Any]:
    """Call a tool; its structured content, which its text repeats and its output schema allows."""
    result = async_to_sync(peer.call)(tool, **arguments)
    page: dict[str, Any] = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == page
    tools = {one["name"]: one for one in async_to_sync(peer.request)("tools/list")["tools"]}
    if "outputSchema" in tools[tool]:
        assert check_schema(tools[tool]["outputSchema"], "outputSchema").is_valid(page)
    return page


def names(page: dict[str, Any]) -> list[str]:
    return [row["name"] for row in page.get("results", page.get("rows"))]


def test_the_next_page_is_called_with_the_arguments_of_the_page_before(subtests: pytest.Subtests) -> None:
    for paginator in (Numbers, Offsets, Cursors, Relative):
        with subtests.test(paginator=paginator):
            Author.objects.all().delete()
            peer = serve(paginator)
            first = call(peer)
            second = call(peer, **first["next"])
            last = call(peer, **second["next"])
            assert [names(first), names(second), names(last)] == [NAMES[:2], NAMES[2:4], NAMES[4:]]
            assert (first["previous"], last["next"]) == (None, None)
            assert names(call(peer, **last["previous"])) == NAMES[2:4]
            assert names(call(peer, **second["previous"])) == NAMES[:2]


def test_the_arguments_are_those_of_the_paginator(subtests: pytest.Subtests) -> None:
    cases: Any = [(Numbers, {"page": 2}, {"page": 1}), (Offsets, {"limit": 2, "offset": 2}, {"limit": 2, "offset": 0})]
    for paginator, following, previous in cases:
        with subtests.test(paginator=paginator):
            Author.objects.all().delete()
            peer = serve(paginator)
            found = call(peer)["next"]
            assert found == following
            assert call(peer, **found)["previous"] == previous


def test_other_arguments_are_kept() -> None:
    peer = serve(Numbers, page_size=1)
    found = call(peer, search="a")["next"]
    assert found == {"search": "a", "page": 2}
    assert names(call(peer, **found)) == ["Dan"]
    assert call(peer, search="a", size=1)["next"] == {"search": "a", "size": 1, "page": 2}


def test_the_output_schema_has_arguments(subtests: pytest.Subtests) -> None:
    for paginator, kinds in ((Numbers, ["object", "null"]), (Relative, ["object", "string", "null"])):
        with subtests.test(paginator=paginator):
            tools = async_to_sync(serve(paginator).request)("tools/list")["tools"]
            properties = next(one for one in tools if one["name"] == "author_list")["outputSchema"]["properties"]
            assert list_types(properties["next"]) == list_types(properties["previous"]) == kinds
            assert properties["next"]["description"].startswith("Arguments of this tool")
            assert properties["count"] == {"type": "integer"}


def test_pages_of_other_actions_and_of_paginators_of_the_project_have_arguments() -> None:
    peer = serve(Nested)
    page = call(peer, "author_latest")
    assert page["links"] == {"next": {"page": 2}, "previous": None, "help": "https://help.example/?page=2"}
    assert names(call(peer, "author_latest", **page["links"]["next"])) == ["Cy", "Bob"]


def test_a_link_without_matching_arguments_is_kept() -> None:
    assert "page=2" in call(serve(Undescribed))["next"]


def test_a_declared_type_is_kept() -> None:
    declared = {"type": "object", "properties": {"next": {"type": ["string", "null"]}}}
    found = call(serve(Numbers, outputs={"list": declared}))
    assert "page=2" in found["next"]
    assert found["previous"] is None


def test_rows_keep_their_links(django_user_model: type[User]) -> None:
    """A row is in a list, and a link in it is the row's own."""

    class Linked(serializers.BaseSerializer[Author]):
        def to_representation(self, instance: Author) -> dict[str, str]:
            request = self.context["request"]
            return {"name": instance.name, "all": request.build_absolute_uri("?page=2")}

    class Authors(viewsets.ReadOnlyModelViewSet[Author]):
        queryset = Author.objects.order_by("pk")
        serializer_class = Linked
        pagination_class = Numbers
        permission_classes = ()

    Author.objects.create(name="Ada")
    server = make_server()
    expose(Authors, server=server, actions=["list"])
    (row,) = async_to_sync(PipelineClient(server).call)("author_list")["structuredContent"]["results"]
    assert row["all"].endswith("?page=2")
