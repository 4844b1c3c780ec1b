"""`expose_router`: every view of a router by one line, reading only unless asked."""

from typing import Any

import pytest
from django.urls import include, path
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter, SimpleRouter
from rest_framework.views import APIView

from mcp_django import Server
from mcp_django.contrib.rest import expose, expose_router
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry as registries
from mcp_django.server.primitives.registry import Registry, get_registry
from tests.library.models import Author, Book
from tests.server.client import PipelineClient, make_server


class BookSerializer(serializers.ModelSerializer):
    class Meta:
        model = Book
        fields = ["id", "title"]


class BookViewSet(viewsets.ModelViewSet):
    queryset = Book.objects.all()
    serializer_class = BookSerializer

    @action(detail=False)
    def newest(self, request: Any, **kwargs: Any) -> Response:
        return Response({"newest": sorted(kwargs)})

    @action(detail=True, methods=["post"])
    def lend(self, request: Any, pk: str) -> Response:
        return Response({"lent": pk})


class TokenViewSet(viewsets.ViewSet):
    def list(self, request: Any) -> Response:
        return Response(["secret"])


class ImportViewSet(viewsets.ViewSet):
    def create(self, request: Any) -> Response:
        return Response()


class EndpointViewSet(viewsets.GenericViewSet):
    """A view without standard actions, as some routers of others have them."""

    def listing_view(self, request: Any) -> Response:
        return Response({"via": request.endpoint})


class EndpointRouter:
    """A router of another kind: named endpoints, whose views it wraps."""

    @property
    def urls(self) -> Any:
        def call_with_endpoint(request: Any) -> Any:
            request.endpoint = "router"
            return view(request)

        view = EndpointViewSet.as_view({"get": "listing_view"})
        call_with_endpoint.__dict__.update(view.__dict__)
        call_with_endpoint.__wrapped__ = view  # type: ignore[attr-defined]
        inner = path("", call_with_endpoint, name="listing")
        return [path("pages/", include(([inner], "pages"), namespace="pages"))], "api", "api"


router = DefaultRouter()
router.register("books", BookViewSet)
router.register("rare-books", BookViewSet, basename="rare-book")
router.register("tokens", TokenViewSet, basename="token")
router.register("imports", ImportViewSet, basename="import/all")
nested = SimpleRouter()
nested.register("books", BookViewSet)
urlpatterns = [path("api/", include(router.urls)), path("shelves/<int:shelf>/", include(nested.urls))]
pytestmark = pytest.mark.urls(__name__)


def served(router: Any, **options: Any) -> Server:
    server = make_server()
    expose_router(router, server=server, **options)
    return server


def names(server: Server) -> list[str]:
    return [tool.name for tool in server.registry.tools]


def test_every_view_of_a_router_is_read_under_its_basename() -> None:
    reading = ["book_list", "book_retrieve", "rare_book_list", "rare_book_retrieve", "token_list"]
    assert names(served(router)) == reading
    assert names(served(f"{__name__}.router", prefix="shop_")) == [f"shop_{name}" for name in reading]


def test_writing_and_custom_actions_are_exposed_by_name_only() -> None:
    assert "book_newest" in names(served(router, actions="__all__"))
    assert "book_lend" not in names(served(router, actions="__all__"))
    writing = names(served(router, read_only=False))
    assert {"book_create", "book_destroy", "import_all_create"} <= {*writing}
    assert "book_lend" not in writing
    assert "book_lend" in names(served(router, read_only=False, actions="__all__"))
    assert names(served(router, actions=["list", "newest"], exclude=["rare-*", TokenViewSet])) == [
        "book_list",
        "book_newest",
    ]


def test_options_by_action_apply_to_the_views_that_have_the_action() -> None:
    server = served(router, descriptions={"retrieve": "Get one."}, permission={"list": "library.view_book"})
    tools = {tool.name: tool for tool in server.registry.tools}
    assert (tools["book_retrieve"].description, tools["token_list"].permission) == ("Get one.", "library.view_book")
    assert tools["book_retrieve"].permission is None


def test_options_that_match_no_view_are_refused(subtests: pytest.Subtests) -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"exclude": ["tokens"]}, "exclude names 'tokens', which no view of the router has; it has book, import/all"),
        ({"actions": ["create"]}, "actions names 'create'.*need read_only=False"),
        ({"actions": "list"}, r"write actions=\['list'\]"),
        ({"descriptions": {"lst": "x"}}, "descriptions names 'lst'"),
        ({"names": {"list": "x"}}, "unknown option 'names'"),
        ({"router": SimpleRouter()}, "the router has no view"),
        ({"router": "tests.nowhere.router"}, "cannot be imported"),
        ({"router": 7}, "URL patterns as its urls"),
    )
    for options, problem in cases:
        with subtests.test(options=options), pytest.raises(DeclarationError, match=problem):
            served(**{"router": router, **options})


def test_a_view_that_cannot_be_exposed_takes_no_other_away() -> None:
    mixed = SimpleRouter()
    mixed.register("a", TokenViewSet, basename="a" * 70)
    mixed.register("books", BookViewSet)
    registry = Registry(strict=False)
    server = make_server(registry=registry)
    expose_router(mixed, server=server)
    assert names(server) == ["book_list", "book_retrieve"]
    assert [problem.names for problem in registry.problems] == [("a" * 70 + "_list",)]

    server = make_server()
    with pytest.raises(DeclarationError, match="1 to 64"):
        expose_router(mixed, server=server)
    assert names(server) == ["book_list", "book_retrieve"]


async def test_a_view_of_two_routers_is_called_at_the_path_of_each_router() -> None:
    server = served(router, actions=["newest"], exclude=["rare-*"])
    expose_router(nested, server=server, actions=["newest"], prefix="shelf_")
    client = PipelineClient(server)
    tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
    assert not tools["book_newest"]["inputSchema"]["properties"]
    assert set(tools["shelf_book_newest"]["inputSchema"]["properties"]) == {"shelf"}
    assert await client.text("shelf_book_newest", shelf=3) == '{"newest":["shelf"]}'


async def test_views_of_another_kind_of_router_are_named_after_their_namespace() -> None:
    def set_endpoint(request: Any) -> None:
        request.endpoint = "prepared"

    server = served(EndpointRouter(), decorated=True, prepare=set_endpoint)
    assert names(server) == ["pages_listing_view"]
    assert await PipelineClient(server).text("pages_listing_view") == '{"via":"prepared"}'


def test_a_router_may_get_views_until_the_project_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "REGISTRIES", {})
    late = SimpleRouter()
    registry = get_registry("late")
    expose_router(late, server="late")
    late.register("books", BookViewSet)
    assert names(make_server(registry=registry)) == ["book_list", "book_retrieve"]


def test_a_view_without_any_action_is_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    class Silent(APIView):
        pass

    mapping = r"expose\(EndpointViewSet.as_view\(\{'get': 'listing_view'\}\), actions=\['listing_view'\]\)"
    cases: tuple[tuple[Any, Any, str], ...] = (
        (EndpointViewSet, "__all__", f"no actions that a router .* finds .*{mapping}"),
        (EndpointViewSet, None, mapping),
        (Silent, "__all__", "has no method for get, post"),
    )
    for view, actions, problem in cases:
        with subtests.test(view=view, actions=actions), pytest.raises(DeclarationError, match=problem):
            expose(view, server=make_server(), **({} if actions is None else {"actions": actions}))


async def test_a_method_that_as_view_maps_is_a_tool_with_the_parameters_of_a_list() -> None:
    class Authors(EndpointViewSet):
        queryset = Author.objects.all()
        pagination_class = None

        class SearchBackend:
            def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
                return [{"name": "q", "schema": {"type": "string"}}]

        filter_backends = (SearchBackend,)

    server = make_server()
    expose(Authors.as_view({"get": "listing_view"}), server=server, actions=["listing_view"])
    (tool,) = (await PipelineClient(server).request("tools/list"))["tools"]
    assert (tool["name"], tool["inputSchema"]["properties"]) == ("author_listing_view", {"q": {"type": "string"}})
