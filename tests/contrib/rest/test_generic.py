"""Generic tools of exposed views: four tools for all actions of a server."""

from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import Server
from mcp_django.contrib.rest import expose
from mcp_django.models import ToolPolicy
from mcp_django.schema import DeclarationError
from tests.contrib.rest.library_api import fill, peer
from tests.contrib.rest.test_expose import served
from tests.library import views
from tests.library.models import Book
from tests.server.client import PipelineClient, make_principal, make_server

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.library.urls")]


def serve_library(**options: Any) -> Server:
    server = served(views.BookViewSet, actions=["list", "retrieve", "create", "ban"], style="generic", **options)
    expose(views.AuthorViewSet, server=server, style="generic")
    return server


async def search(client: PipelineClient, query: str = "") -> list[str]:
    result = (await client.call("api_search", query=query))["structuredContent"]
    return [operation["name"] for operation in result["operations"]]


async def test_actions_of_all_views_are_found_by_the_tools_of_their_server() -> None:
    client = PipelineClient(serve_library())
    assert await client.names() == ["api_call", "api_describe", "api_read", "api_search"]
    assert await search(client) == [
        *("author_list", "author_retrieve", "book_ban", "book_create", "book_list", "book_retrieve")
    ]
    assert (await search(client, "list books"))[0] == "book_list"


async def test_an_action_is_described_as_its_own_tool_would_be_listed() -> None:
    tool = served(views.BookViewSet).registry.tools.get("book_list")
    assert tool is not None
    entry = tool.wire
    described = (await PipelineClient(serve_library()).call("api_describe", operation="book_list"))["structuredContent"]
    assert described["arguments"] == entry["inputSchema"]
    assert described["result"] == entry["outputSchema"]
    assert (described["request"], described["tool"]) == ("GET", "api_read")


async def test_a_view_runs_for_the_caller_with_its_own_permissions() -> None:
    library = await sync_to_async(fill)()
    server, own = serve_library(), served(views.BookViewSet, actions=["list", "ban"])
    result = await peer(server, library.ada).call("api_read", operation="book_list")
    assert result["structuredContent"] == (await peer(own, library.ada).call("book_list"))["structuredContent"]
    arguments = {"pk": (await Book.objects.alatest("pk")).pk}
    refused = await peer(server, library.ada).error("api_call", operation="book_ban", arguments=arguments)
    assert refused == await peer(own, library.ada).error("book_ban", **arguments)


async def test_an_action_that_is_hidden_from_the_caller_is_unknown() -> None:
    server = serve_library(permission={"create": "library.add_book"})
    reader, writer = (PipelineClient(server, principal=make_principal(*names)) for names in ((), ("library.add_book",)))
    assert "book_create" not in await search(reader)
    assert "book_create" in await search(writer)
    texts = {
        (await reader.error("api_call", operation=name)).replace(name, "?") for name in ("book_create", "book_burn")
    }
    assert texts == {"Unknown operation: ?; find its name with api_search"}


async def test_actions_refused_by_the_view_are_unknown_with_the_option_and_policies_apply() -> None:
    library = await sync_to_async(fill)()
    server = serve_library(hide_denied=True)
    assert "book_ban" not in await search(peer(server, library.ada))
    assert "book_ban" in await search(peer(server, library.staff))
    await ToolPolicy.objects.acreate(tool="book_ban", disabled=True)
    assert "book_ban" not in await search(peer(server, library.staff))


def test_a_second_view_of_one_name_and_an_unknown_style_are_refused() -> None:
    server = serve_library()
    with pytest.raises(DeclarationError, match=r"operation 'author_list' of .* is already registered by"):
        expose(views.AuthorViewSet, server=server, style="generic")
    with pytest.raises(DeclarationError, match="style='all' is invalid"):
        expose(views.AuthorViewSet, server=make_server(), style="all")  # type: ignore[call-overload]
