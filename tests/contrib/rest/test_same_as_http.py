"""Each request, over HTTP against the routes and as a tool: the same status, body and rows; and HTTP as it was."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction

from mcp_django import Server
from tests.contrib.rest.library_api import LibraryRows, Response, api, call_http, call_tool, fill, peer, rows
from tests.support.savepoints import rolled_back

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.library.urls")]


@dataclass
class Case:
    """One request in both forms."""

    name: str
    method: str
    path: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    data: Any = None
    who: str | None = "ada"
    status: int = 200
    given: dict[str, Any] = field(default_factory=dict)
    """What else the client of HTTP says."""


NEW = {"isbn": "9780000000099", "title": "New", "author": "{author}", "price": "3.20", "reviews": [{"stars": 4}]}
PNG = b"\x89PNG\r\n--b\x00"


def upload(content: bytes = PNG, name: str = "cover.png") -> dict[str, str]:
    return {"name": name, "content": base64.b64encode(content).decode()}


BOOK, OTHER = "{book}", "{other}"
CASES = [
    Case("list", "get", "/api/books/", "book_list"),
    Case("second page", "get", "/api/books/?page=2&page_size=2", "book_list", {"page": 2, "page_size": 2}),
    Case("a page too far", "get", "/api/books/?page=99", "book_list", {"page": 99}, status=404),
    Case("search", "get", "/api/books/?search=austen", "book_list", {"search": "austen"}),
    Case("ordering", "get", "/api/books/?ordering=-title", "book_list", {"ordering": "-title"}),
    Case("filter", "get", "/api/books/?author={author}", "book_list", {"author": "{author}"}),
    Case("filter by number", "get", "/api/books/?min_price=5.5", "book_list", {"min_price": 5.5}),
    Case(
        "filter by range",
        "get",
        "/api/books/?published_after=1820-01-01&published_before=1840-01-01",
        "book_list",
        {"published_after": "1820-01-01", "published_before": "1840-01-01"},
    ),
    Case(
        "filter by several",
        "get",
        "/api/books/?isbn_in=9780000000001,9780000000002",
        "book_list",
        {"isbn_in": ["9780000000001", "9780000000002"]},
    ),
    Case("filter by flag", "get", "/api/books/?dated=false", "book_list", {"dated": False}),
    Case("filter by choices", "get", "/api/books/?genre=n&genre=p", "book_list", {"genre": ["n", "p"]}),
    Case("wrong filter", "get", "/api/books/?genre=x", "book_list", {"genre": ["x"]}, status=400),
    Case("nobody lists", "get", "/api/books/", "book_list", who=None, status=401),
    Case("retrieve", "get", "/api/books/{book}/", "book_retrieve", {"pk": BOOK}),
    Case("retrieve what is not there", "get", "/api/books/0/", "book_retrieve", {"pk": 0}, status=404),
    Case("retrieve by a wrong key", "get", "/api/books/x/", "book_retrieve", {"pk": "x"}, status=404),
    Case("a key that is another route", "get", "/api/books/a/b/", "book_retrieve", {"pk": "a/b"}, status=404),
    Case("create", "post", "/api/books/", "book_create", NEW, NEW, status=201),
    Case("create without all", "post", "/api/books/", "book_create", {"title": "X"}, {"title": "X"}, status=400),
    Case("create by nobody", "post", "/api/books/", "book_create", NEW, NEW, who=None, status=401),
    Case(
        "create what is banned",
        *("post", "/api/books/", "book_create"),
        {**NEW, "title": "Forbidden"},
        {**NEW, "title": "Forbidden"},
        status=400,
    ),
    Case(
        "create with a wrong review",
        *("post", "/api/books/", "book_create"),
        {**NEW, "reviews": [{"stars": 4}, {"stars": 9}]},
        {**NEW, "reviews": [{"stars": 4}, {"stars": 9}]},
        status=400,
    ),
    Case(
        "numbers as text are what DRF takes",
        *("post", "/api/books/", "book_create"),
        {**NEW, "pages": "12"},
        {**NEW, "pages": "12"},
        status=201,
    ),
    Case("update", "put", "/api/books/{book}/", "book_update", {"pk": BOOK, **NEW}, NEW),
    Case("change", "patch", "/api/books/{book}/", "book_partial_update", {"pk": BOOK, "title": "Z2"}, {"title": "Z2"}),
    Case(
        "change another's",
        *("patch", "/api/books/{other}/", "book_partial_update"),
        {"pk": OTHER, "title": "Z2"},
        {"title": "Z2"},
        status=403,
    ),
    Case("delete", "delete", "/api/books/{book}/", "book_destroy", {"pk": BOOK}, status=204),
    Case("delete another's", "delete", "/api/books/{other}/", "book_destroy", {"pk": OTHER}, status=403),
    Case(
        "an action with permissions of its own",
        *("post", "/api/books/{book}/ban/", "book_ban"),
        {"pk": BOOK, "body": {"reason": "rude"}},
        {"reason": "rude"},
        status=403,
    ),
    Case(
        "an action by staff",
        *("post", "/api/books/{other}/ban/", "book_ban"),
        {"pk": OTHER, "body": {"reason": "rude"}},
        {"reason": "rude"},
        "staff",
    ),
    Case("an action of the list", "get", "/api/books/cheapest/", "book_cheapest"),
    Case(
        "an action that filters",
        *("get", "/api/books/cheapest/?min_price=4", "book_cheapest"),
        {"min_price": 4},
    ),
    Case("one action, reading", "get", "/api/books/{book}/notes/", "book_notes_get", {"pk": BOOK}),
    Case("one action, deleting", "delete", "/api/books/{book}/notes/", "book_notes_delete", {"pk": BOOK}, status=204),
    Case(
        "one action, mapped",
        *("put", "/api/books/{book}/notes/", "book_set_notes"),
        {"pk": BOOK, "body": {"a": [1, None]}},
        {"a": [1, None]},
        status=202,
    ),
    Case("text that is no JSON", "get", "/api/books/as-csv/", "book_as_csv"),
    Case("malformed", "get", "/api/books/suspicious/", "book_suspicious", status=400),
    Case("authors by permission", "get", "/api/authors/", "author_list"),
    Case("authors by nobody", "get", "/api/authors/", "author_list", who=None, status=403),
    Case("captured by the path", "get", "/api/authors/{author}/books/", "author_books_list", {"author_pk": "{author}"}),
    Case(
        "pages by offset",
        *("get", "/api/authors/{author}/books/?limit=2&offset=1", "author_books_list"),
        {"author_pk": "{author}", "limit": 2, "offset": 1},
    ),
    Case(
        "a path that takes numbers only",
        *("get", "/api/authors/x/books/", "author_books_list"),
        {"author_pk": "x"},
        status=404,
    ),
    Case(
        "a body beside a path",
        *("post", "/api/authors/{author}/books/", "author_books_create"),
        {"author_pk": "{author}", **NEW},
        NEW,
        status=201,
    ),
    Case(
        "reading is free, writing is not",
        *("post", "/api/authors/{author}/books/", "author_books_create"),
        {"author_pk": "{author}", **NEW},
        NEW,
        None,
        401,
    ),
    Case("version by path", "get", "/api/v2/by-path/", "by_path", {"version": "v2"}),
    Case("no such version", "get", "/api/v3/by-path/", "by_path", {"version": "v3"}, status=404),
    Case(
        "version by media type",
        *("get", "/api/by-accept/", "by_accept", {"version": "2.0"}),
        given={"HTTP_ACCEPT": "application/json; version=2.0"},
    ),
    Case("default version", "get", "/api/by-accept/", "by_accept", given={"HTTP_ACCEPT": "application/json"}),
    Case(
        "no such media type",
        *("get", "/api/by-accept/", "by_accept", {"version": "3.0"}),
        given={"HTTP_ACCEPT": "application/json; version=3.0"},
        status=406,
    ),
    Case("version by query", "get", "/api/by-query/?version=2", "by_query", {"version": "2"}),
    Case("version by namespace", "get", "/n2/which/", "by_namespace", {"version": "n2"}),
    Case("JSON of a vendor", "get", "/rendered/", "rendered", given={"HTTP_ACCEPT": "application/vnd.library+json"}),
    Case("no JSON at all", "get", "/text/", "only_text", given={"HTTP_ACCEPT": "*/*"}),
    Case("an exception handler", "get", "/handled/", "handled", status=418),
    Case("a stricter route", "get", "/strict/", "strict", status=403),
    Case("a stricter route, by staff", "get", "/strict/", "strict", who="staff"),
    Case("a function", "get", "/rate/love/?tag=a&tag=b", "rate_get", {"word": "love", "tag": ["a", "b"]}),
    Case("a function and a path it is not for", "get", "/rate/no%20slug/", "rate_get", {"word": "no slug"}, status=404),
    Case(
        "a function that takes any body",
        *("post", "/rate/love/", "rate_post"),
        {"word": "love", "body": {"stars": 3, "why": ["a"]}},
        {"stars": 3, "why": ["a"]},
        status=201,
    ),
    Case(
        "a function that refuses",
        *("post", "/rate/love/", "rate_post"),
        {"word": "love", "body": {"stars": 6}},
        {"stars": 6},
        status=400,
    ),
    Case("two writes", "post", "/transfer/", "transfer", {"body": {}}, {}, status=201),
    Case(
        "a write and an error",
        "post",
        "/transfer/",
        "transfer",
        {"body": {"fail": "raise"}},
        {"fail": "raise"},
        status=400,
    ),
    Case(
        "a write and a 400",
        "post",
        "/transfer/",
        "transfer",
        {"body": {"fail": "return"}},
        {"fail": "return"},
        status=400,
    ),
]


@pytest.fixture
def library() -> LibraryRows:
    return fill()


def insert_keys(value: Any, library: LibraryRows) -> Any:
    """Replace the placeholders of a value by keys of rows."""
    keys = {"{book}": library.books[0].pk, "{other}": library.books[-1].pk, "{author}": library.authors[0].pk}
    if isinstance(value, dict):
        return {key: insert_keys(item, library) for key, item in value.items()}
    if isinstance(value, list):
        return [insert_keys(item, library) for item in value]
    return keys.get(value, value) if isinstance(value, str) else value


def run_and_roll_back(ask: Callable[[], tuple[Response, Any]]) -> tuple[Response, Any, list[Any]]:
    """Run a request in a transaction that is rolled back. Return its response and the rows after it."""
    cache.clear()
    with transaction.atomic():
        response, more = ask()
        found = rows()
        transaction.set_rollback(True)
    return response, more, found


def without_keys(body: Any) -> Any:
    """A new row's key comes from a sequence."""
    return {k: v for k, v in body.items() if k not in ("id", "url")} if isinstance(body, dict) else body


def ask_http(case: Case, library: LibraryRows) -> tuple[Response, Any, list[Any]]:
    user = None if case.who is None else getattr(library, case.who)
    path = case.path.format(book=library.books[0].pk, other=library.books[-1].pk, author=library.authors[0].pk)
    given = {} if case.data is None else {"data": insert_keys(case.data, library)}
    return run_and_roll_back(lambda: call_http(user, case.method, path, **given, **case.given))


def ask_tool(case: Case, library: LibraryRows, server: Server) -> tuple[Response, str, list[Any]]:
    client = peer(server, None if case.who is None else getattr(library, case.who))
    return run_and_roll_back(lambda: async_to_sync(call_tool)(client, case.tool, insert_keys(case.arguments, library)))


def without_page_links(body: Any) -> Any:
    """Replace the links to other pages in a body by True or False, because a tool has arguments there."""
    if not isinstance(body, dict):
        return body
    return {name: value is not None if name in ("next", "previous") else value for name, value in body.items()}


def test_requests_have_the_same_answers_over_http_and_as_tools(library: LibraryRows, subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case=case), rolled_back():
            before, http_body, http_rows = ask_http(case, library)
            server = api()
            by_tool, text, tool_rows = ask_tool(case, library, server)
            after = ask_http(case, library)
            assert before.status == case.status
            if case.status == 201:
                before.body, by_tool.body, after[0].body = (
                    without_keys(one.body) for one in (before, by_tool, after[0])
                )
            for one in (before, by_tool, after[0]):
                one.body = without_page_links(one.body)
            assert by_tool == before
            assert tool_rows == http_rows
            assert after[0] == before, "HTTP is not as it was"
            assert after[2] == http_rows
            if case.status >= 400 and isinstance(http_body, dict) and "detail" in http_body:
                assert http_body["detail"] in text


UPLOADS = {
    "a form": ("post", "/api/books/{book}/cover/", "book_cover", {"cover": upload(), "title": 'T "x"'}),
    "a bare file": ("put", "/upload/", "upload", {"file": upload()}),
}


def test_files_arrive_the_same_over_http_and_as_tools(library: LibraryRows, subtests: pytest.Subtests) -> None:
    for kind in UPLOADS:
        with subtests.test(kind=kind), rolled_back():
            method, path, tool, arguments = UPLOADS[kind]
            sent: dict[str, Any] = {
                "a form": {"data": {"cover": SimpleUploadedFile("cover.png", PNG, "image/png"), "title": 'T "x"'}},
                "a bare file": {
                    "data": PNG,
                    "content_type": "image/png",
                    "HTTP_CONTENT_DISPOSITION": 'attachment; filename="cover.png"',
                },
            }[kind]
            sent["format"] = "multipart" if kind == "a form" else None
            response, _ = call_http(library.ada, method, path.format(book=library.books[0].pk), **sent)
            given = {**arguments, **({"pk": library.books[0].pk} if "{book}" in path else {})}
            by_tool, _ = async_to_sync(call_tool)(peer(api(), library.ada), tool, given)
            assert response.status == 200
            assert response.body["bytes"] == PNG.hex()
            assert by_tool == response
