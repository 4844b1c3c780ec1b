"""Declarations of `expose`: actions, names, options, errors and listed tools."""

import json
import subprocess
import sys
from typing import Any

import pytest
from rest_framework import permissions, serializers, versioning, viewsets
from rest_framework.decorators import action, api_view
from rest_framework.response import Response
from rest_framework.views import APIView

from mcp_django import Server
from mcp_django.contrib.rest import expose
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry
from tests.contrib.rest.library_api import api, fill, peer
from tests.library import views
from tests.library.models import Author, Book
from tests.official_schema import validator
from tests.server.client import PipelineClient, make_principal, make_server

urls = pytest.mark.urls("tests.library.urls")


def names(server: Server) -> list[str]:
    return [tool.name for tool in server.registry.tools]


def served(view: Any, **options: Any) -> Server:
    server = make_server()
    expose(view, server=server, **options)
    return server


async def entry(server: Server, name: str) -> dict[str, Any]:
    tools = (await PipelineClient(server).request("tools/list"))["tools"]
    found: dict[str, Any] = next(tool for tool in tools if tool["name"] == name)
    return found


def test_reading_is_exposed_by_default_and_other_actions_by_name() -> None:
    assert names(served(views.BookViewSet)) == ["book_list", "book_retrieve"]
    assert names(served(views.AuthorBooks)) == ["book_list"]
    assert names(served(views.rate)) == ["rate_get"]
    with pytest.raises(DeclarationError, match=r"no reading actions; name the actions to expose: actions=\['post'\]"):
        served(views.Transfer)

    assert names(served(views.BookViewSet, actions=["create", "ban"])) == ["book_ban", "book_create"]
    assert names(served(views.BookViewSet, actions=["notes"])) == ["book_notes_delete", "book_notes_get"]
    assert names(served(views.BookViewSet, actions=["notes_get", "set_notes"])) == ["book_notes_get", "book_set_notes"]
    assert len(names(served(views.BookViewSet, actions="__all__"))) == 18


def test_methods_that_a_viewset_does_not_allow_are_no_tools() -> None:
    class Narrow(views.BookViewSet):
        http_method_names = ["get"]

    assert set(names(served(Narrow, actions="__all__"))).isdisjoint(
        {"book_create", "book_destroy", "book_notes_delete"}
    )
    with pytest.raises(DeclarationError, match="no action 'create'"):
        served(Narrow, actions=["create"])


def test_names_come_from_the_model_the_view_a_prefix_or_one_by_one() -> None:
    server = served(views.BookViewSet, prefix="shelf_", names={"retrieve": "one_book"})
    assert names(server) == ["one_book", "shelf_list"]

    class HTTPStatusView(APIView):
        def get(self, request: Any) -> Response:
            return Response()

    assert names(served(HTTPStatusView)) == ["http_status"]
    assert names(served(views.BookViewSet.as_view({"get": "list", "post": "create"}), actions="__all__")) == [
        "book_create",
        "book_list",
    ]


def test_a_wrong_option_is_refused_in_words(subtests: pytest.Subtests) -> None:
    cases = (
        (views.BookViewSet, {"permision": "a.b"}, "unknown option 'permision'; did you mean 'permission'?"),
        (views.BookViewSet, {"actions": ["lst"]}, "no action 'lst'; did you mean 'list'?"),
        (views.BookViewSet, {"actions": "list"}, r"write actions=\['list'\]"),
        (views.BookViewSet, {"permission": {"create": "a.b"}}, "permission names 'create', which is not exposed"),
        (views.BookViewSet, {"scopes": {"lst": ["a"]}}, "scopes names 'lst', which is not an action of it"),
        (views.BookViewSet, {"names": ["a"]}, "names is a mapping by action"),
        (views.BookViewSet, {"names": {"list": "a b"}}, "the name 'a b' must have"),
        (views.BookViewSet, {"page_size": 0}, "page_size=0 is invalid; give an integer above 0"),
        (views.BookViewSet, {"scopes": "books"}, r"write scopes=\['books'\]"),
        (serializers.Serializer, {}, "takes an APIView or viewset class"),
        (len, {}, "takes an APIView or viewset class"),
    )
    for view, options, complaint in cases:
        with (
            subtests.test(view=view, options=options, complaint=complaint),
            pytest.raises(DeclarationError, match=complaint),
        ):
            served(view, **options)


def test_expose_is_a_decorator_that_reports_problems_to_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRIES", {})

    @expose
    @api_view()
    def moon(request: Any) -> Response:
        """The moon."""
        return Response("full")

    @expose(actions=["reed"], server="inner")
    class Racks(viewsets.ViewSet):
        def list(self, request: Any) -> Response:
            return Response([])

    assert [tool.name for tool in registry.get_registry("default").tools] == ["moon"]
    assert callable(moon)
    assert Racks.__name__ == "Racks"
    (problem,) = registry.collect_problems()
    assert "has no action 'reed'" in problem.text


def test_two_views_of_one_name_are_refused_with_both_sources() -> None:
    server = served(views.BookViewSet)

    class Others(viewsets.ReadOnlyModelViewSet):
        queryset = Book.objects.all()
        serializer_class = views.BookSerializer

    with pytest.raises(
        DeclarationError, match=r"Others\.list is already registered by tests\.library\.views\.BookView"
    ):
        expose(Others, server=server)


def test_exposing_writes_nothing_on_the_class_or_its_queryset() -> None:
    class Named(viewsets.ReadOnlyModelViewSet):
        queryset = Author.objects.all()
        serializer_class = views.AuthorSerializer
        name = "People"

    def written() -> dict[str, Any]:
        # Python adds these names to a class that is asked for its annotations: __annotations__, __annotate_func__.
        return {name: value for name, value in vars(Named).items() if not name.startswith("__annot")}

    before = written()
    assert served(Named).registry.tools.sorted()[0].wire["outputSchema"]
    assert written() == before
    assert "_fetch_all" not in vars(Named.queryset)


@pytest.mark.django_db
@urls
async def test_listed_tools_are_valid() -> None:
    result = await peer(api()).request("tools/list")
    validator("2026-07-28", "ListToolsResult")(result)


@urls
async def test_annotations_come_from_the_http_method() -> None:
    server = api()
    assert (await entry(server, "book_list"))["annotations"] == {"readOnlyHint": True}
    assert (await entry(server, "book_destroy"))["annotations"]["idempotentHint"] is True
    assert (await entry(server, "book_create"))["annotations"]["destructiveHint"] is False
    assert (await entry(server, "book_update"))["annotations"]["destructiveHint"] is True


@urls
async def test_a_description_is_that_of_the_author_or_names_the_rows() -> None:
    server = served(views.BookViewSet, actions=["list", "ban"], descriptions={"list": "Search the library."})
    assert (await entry(server, "book_list"))["description"] == "Search the library."
    assert (await entry(server, "book_ban"))["description"].startswith("Take a book from the shelf.")
    assert (await entry(api(), "book_list"))["description"] == "List books. Books of the library."
    assert (await entry(api(), "rate_get"))["description"] == "Rate a word."


@urls
async def test_permissions_and_scopes_hide_and_step_up_by_action() -> None:
    server = served(
        views.BookViewSet,
        actions=["list", "create"],
        permission={"create": "library.add_book"},
        scopes={"create": ["books:write"]},
    )
    assert await PipelineClient(server, principal=make_principal()).names() == ["book_list"]
    shown = await PipelineClient(server, principal=make_principal("library.add_book")).names()
    assert shown == ["book_create", "book_list"]


@pytest.mark.django_db
@urls
async def test_the_option_hides_actions_that_the_view_would_refuse() -> None:
    from asgiref.sync import sync_to_async

    shelf = await sync_to_async(fill)()
    server = served(views.BookViewSet, actions=["list", "ban"], hide_denied=True)
    expose(views.AuthorViewSet, server=server, hide_denied=True, permission=lambda who: who.user is not None)
    assert await peer(server, shelf.ada).names() == ["author_list", "author_retrieve", "book_list"]
    assert await peer(server, shelf.staff).names() == [*("author_list", "author_retrieve", "book_ban", "book_list")]


@urls
async def test_arguments_are_flat_unless_the_names_of_the_body_clash() -> None:
    class Clash(serializers.Serializer):
        pk = serializers.IntegerField()

    class Numbers(viewsets.GenericViewSet):
        @action(detail=True, methods=["post"], serializer_class=Clash)
        def add(self, request: Any, pk: str) -> Response:
            return Response({"sum": int(pk) + request.data["pk"]})

    server = served(Numbers, actions="__all__", prefix="numbers_")
    properties = (await entry(server, "numbers_add"))["inputSchema"]["properties"]
    assert set(properties) == {"pk", "body"}
    assert await PipelineClient(server).text("numbers_add", pk=2, body={"pk": 3}) == '{"sum":5}'


@urls
async def test_a_field_named_as_the_version_takes_the_argument_if_the_version_has_a_default() -> None:
    class Release(serializers.Serializer):
        version = serializers.IntegerField()

    class Releases(viewsets.GenericViewSet):
        class versioning_class(versioning.AcceptHeaderVersioning):  # noqa: N801
            default_version = "2"
            allowed_versions = ("1", "2")

        @action(detail=False, methods=["post"], serializer_class=Release)
        def add(self, request: Any) -> Response:
            return Response({"api": request.version, "field": request.data["version"]})

    server = served(Releases, actions="__all__", prefix="releases_")
    assert (await entry(server, "releases_add"))["inputSchema"]["properties"] == {"version": {"type": "integer"}}
    assert await PipelineClient(server).text("releases_add", version=7) == '{"api":"2","field":7}'


@urls
async def test_a_deletion_with_a_serializer_of_its_own_has_its_fields() -> None:
    class Confirmation(serializers.Serializer):
        password = serializers.CharField()

    class Accounts(viewsets.GenericViewSet):
        def get_serializer_class(self) -> Any:
            return Confirmation if self.action == "destroy" else views.AuthorSerializer

        def destroy(self, request: Any, pk: str) -> Response:
            Confirmation(data=request.data).is_valid(raise_exception=True)
            return Response({"deleted": pk})

    class Plain(Accounts):
        serializer_class = views.AuthorSerializer
        get_serializer_class = viewsets.GenericViewSet.get_serializer_class

    server = served(Accounts, actions=["destroy"], prefix="account_")
    assert set((await entry(server, "account_destroy"))["inputSchema"]["properties"]) == {"pk", "password"}
    assert "password: This field is required" in await PipelineClient(server).error("account_destroy", pk="1")
    assert await PipelineClient(server).text("account_destroy", pk="1", password="x") == '{"deleted":"1"}'
    server = served(Plain, actions=["destroy"], prefix="plain_")
    assert set((await entry(server, "plain_destroy"))["inputSchema"]["properties"]) == {"pk"}


@urls
async def test_an_unknown_argument_is_refused_by_name_before_the_view_is_asked() -> None:
    said = await peer(api()).error("book_create", titel="x")
    assert said == "unknown argument 'titel'; did you mean 'title'?"
    assert "missing argument 'pk'" in await peer(api()).error("book_retrieve")
    assert "id" in await peer(api()).error("book_create", id=3)


@pytest.mark.django_db
@urls
async def test_options_change_lookups_pages_and_parameters() -> None:
    from asgiref.sync import sync_to_async

    shelf = await sync_to_async(fill)()
    server = served(
        views.BookViewSet,
        actions=["list", "retrieve", "cheapest"],
        lookup="book",
        page_size=2,
        parameters={"cheapest": {"min_price": {"type": "number"}}},
    )
    client = peer(server, shelf.ada)
    assert len((await client.call("book_list"))["structuredContent"]["results"]) == 2
    assert len((await client.call("book_list", page_size=4))["structuredContent"]["results"]) == 4
    found = await client.call("book_retrieve", book=shelf.books[1].pk)
    assert found["structuredContent"]["title"] == "Book f"


@pytest.mark.django_db
@urls
async def test_a_path_can_be_filled_by_the_server() -> None:
    from asgiref.sync import sync_to_async

    shelf = await sync_to_async(fill)()
    server = served(views.AuthorBooks, kwargs={"author_pk": lambda ctx: shelf.authors[1].pk}, host="localhost")
    assert "author_pk" not in (await entry(server, "book_list"))["inputSchema"]["properties"]
    found = await peer(server, shelf.ada).call("book_list")
    rows = found["structuredContent"]["result"]
    assert {row["author_name"] for row in rows} == {"Mary Shelley"}
    assert rows[0]["url"].startswith("http://localhost/api/books/")


@urls
async def test_no_value_of_a_client_moves_into_a_part_of_the_path_that_the_server_fills() -> None:
    client = PipelineClient(served(views.Filed, kwargs={"tenant": "ours"}))
    found = await client.call("filed", name="a/b")
    assert '"tenant":"ours","name":"a/b"' in found["content"][0]["text"]
    for name in ("theirs/filed/b", "/filed/b"):
        assert "Not found" in await client.error("filed", name=name)


@urls
async def test_a_version_can_be_chosen_for_all_calls() -> None:
    server = served(views.ByAccept, version="2.0")
    assert (await entry(server, "by_accept"))["inputSchema"]["properties"] == {}
    assert '"version":"2.0"' in await PipelineClient(server).text("by_accept")


@urls
async def test_the_option_outputs_replaces_the_schema_of_the_serializer(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object", "properties": {"version": {"type": "integer"}}}
    server = served(views.ByQuery, outputs={"get": schema})
    assert (await entry(server, "by_query"))["outputSchema"] == schema
    result = await PipelineClient(server).call("by_query")
    assert result["structuredContent"] == {"user": True}, "clients refuse a result that violates its schema"
    assert json.loads(result["content"][0]["text"]) == {"version": "1", "user": True}, "the view's answer is the truth"
    await PipelineClient(server).call("by_query")
    assert [record.message.count("version") for record in caplog.records if record.name == "mcp_django.rest"] == [1]


@urls
async def test_a_decorator_of_a_route_is_not_bypassed(caplog: pytest.LogCaptureFixture) -> None:
    from mcp_django.contrib.rest.tools import check_exposed_views

    class Front(views.Versioned):
        pass

    server = served(views.Versioned)
    assert "Internal error" in await PipelineClient(server).error("versioned")
    assert "user_passes_test" in caplog.text
    (found,) = [message for message in check_exposed_views(None) if "Versioned.get" in message.msg]
    assert found.id == "mcp_django.E020"
    assert "version" in await PipelineClient(served(views.Versioned, decorated=True)).text("versioned")
    assert "version" in await PipelineClient(served(Front)).text("front")


@urls
async def test_a_route_is_chosen_by_name() -> None:
    from django.test import override_settings

    class Lists:
        """Two routes with different permissions."""

        from django.urls import path

        urlpatterns = [
            path("all/", views.Strict.as_view(), name="free"),
            path("staff/", views.Strict.as_view(permission_classes=[permissions.IsAdminUser]), name="strict"),
        ]

    with override_settings(ROOT_URLCONF=Lists):
        assert "Internal error" in await PipelineClient(served(views.Strict)).error("strict")
        assert await PipelineClient(served(views.Strict, route="free")).text("strict") == '{"strict":true}'
        assert "credentials" in await PipelineClient(served(views.Strict, route="strict")).error("strict")
        assert "Internal error" in await PipelineClient(served(views.Strict, route="none")).error("strict")


def test_without_drf_the_import_names_the_package_to_install() -> None:
    code = "import sys; sys.modules['rest_framework'] = None\nimport mcp_django\nimport mcp_django.contrib.rest"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert "mcp_django.contrib.rest needs Django REST framework; install it with pip install" in ran.stderr
