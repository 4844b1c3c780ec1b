"""The API of the library, called over HTTP and as tools."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.cache import cache as kept
from rest_framework.test import APIClient

from mcp_django import Server
from mcp_django.auth.principal import DjangoPrincipal, local_principal
from mcp_django.contrib.rest import expose
from tests.library import views
from tests.library.models import Author, Book, Review
from tests.server.client import PipelineClient, make_server

STATUS = "mcp-django/status"


@dataclass
class LibraryRows:
    """Users, authors and books."""

    ada: User
    bob: User
    staff: User
    authors: list[Author]
    books: list[Book] = field(default_factory=list)


def fill() -> LibraryRows:
    """Make the rows of every test."""
    kept.clear()
    ada, bob = (User.objects.create_user(name) for name in ("ada", "bob"))
    staff = User.objects.create_user("staff", is_staff=True)
    ada.user_permissions.set(Permission.objects.filter(codename="view_author"))
    authors = [Author.objects.create(name=name, country="GB") for name in ("Jane Austen", "Mary Shelley")]
    library = LibraryRows(ada, bob, staff, authors)
    for number in range(7):
        library.books.append(
            Book.objects.create(
                isbn=f"97800000000{number:02}",
                title=f"Book {'gfedcba'[number]}",
                author=authors[number % 2],
                genre="np"[number % 2],
                price=f"{number + 1}.50",
                published=f"18{number}0-01-01" if number else None,
                owner=ada if number < 4 else bob,
            )
        )
    Review.objects.create(book=library.books[0], stars=5, text="Good")
    return library


@cache
def api() -> Server:
    """Make a server with the whole API."""
    server = make_server()
    expose(views.BookViewSet, server=server, actions="__all__")
    expose(views.AuthorViewSet, server=server)
    expose(views.AuthorBooks, server=server, actions=["list", "create"], prefix="author_books_")
    for view in (views.ByPath, views.ByAccept, views.ByQuery, views.ByNamespace, views.Rendered, views.OnlyText):
        expose(view, server=server)
    expose(views.Upload, server=server, actions="__all__")
    expose(views.Transfer, server=server, actions="__all__")
    expose(views.NonAtomicTransfer, server=server, actions="__all__")
    expose(views.Cached, server=server)
    expose(views.Handled, server=server)
    expose(views.Strict, server=server)
    expose(views.rate, server=server, actions="__all__", parameters={"get": {"tag": {"type": "array"}}})
    return server


def principal(user: User | None) -> DjangoPrincipal:
    """Make the principal of a user, or the local one."""
    if user is None:
        return local_principal()
    return DjangoPrincipal(issuer="tests", subject=str(user.pk), user=user)


def peer(server: Server, user: User | None = None) -> PipelineClient:
    """Make a client of the server."""
    return PipelineClient(server, principal=principal(user))


@dataclass
class Response:
    """A response of a tool or a route."""

    status: int
    body: Any
    """JSON, text, or None where there is an error or nothing."""


async def call_tool(client: PipelineClient, name: str, arguments: Mapping[str, Any]) -> tuple[Response, str]:
    """Call a tool, and return its response and its text."""
    result = await client.call(name, **arguments)
    status = result.get("_meta", {}).get(STATUS, 200)
    text = "\n".join(block.get("text", "") for block in result["content"])
    assert result["isError"] is (status >= 400), result
    if result["isError"]:
        return Response(status, None), text
    if status == 204:
        return Response(status, None), text
    structured = result.get("structuredContent")
    if structured is not None and not text.startswith("{"):
        structured = structured["result"]
    return Response(status, text if structured is None else structured), text


def call_http(user: User | None, method: str, path: str, **given: Any) -> tuple[Response, Any]:
    """Request a route, and return its response and its parsed body."""
    client = APIClient(SERVER_NAME="testserver")
    if user is not None:
        client.credentials(HTTP_X_USER=user.username)
        client.force_login(user)  # for the views that know sessions only
    response = getattr(client, method)(path, **{"format": "json", **given})
    streamed = response.streaming
    content = b"".join(response.streaming_content) if streamed else response.content
    is_json = "json" in response.headers.get("Content-Type", "")
    parsed = response.json() if is_json else content.decode("latin-1")
    if response.status_code >= 400 or response.status_code == 204:
        return Response(response.status_code, None), parsed
    return Response(response.status_code, parsed), parsed


def rows() -> list[Any]:
    """List all rows that calls may have changed, without their generated keys."""
    books = Book.objects.values_list("isbn", "title", "author__name", "genre", "price", "pages", "extra", "owner")
    reviews = Review.objects.values_list("book__isbn", "stars", "text")
    return [sorted(map(str, found)) for found in (books, reviews, Author.objects.values_list("name"))]


def anonymous() -> DjangoPrincipal:
    """Make a principal without a user."""
    return DjangoPrincipal(issuer="tests", subject="nobody", user=AnonymousUser())
