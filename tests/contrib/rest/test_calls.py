"""The request that a view sees in a call: user, address and transaction; and failures of views."""

import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection, transaction
from django.test import RequestFactory
from django.urls import include, path
from oauth2_provider.contrib.rest_framework import TokenHasScope
from rest_framework import permissions
from rest_framework.authentication import SessionAuthentication
from rest_framework.response import Response
from rest_framework.versioning import NamespaceVersioning
from rest_framework.views import APIView

from mcp_django.auth.principal import DjangoPrincipal, local_principal
from mcp_django.contrib.rest import expose
from mcp_django.server.calls.call import Connection
from tests.contrib.rest.library_api import STATUS, api, call_http, fill, peer, principal
from tests.library import views
from tests.library.models import Author
from tests.server.client import PipelineClient, make_server
from tests.support.savepoints import rolled_back

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.library.urls")]


class HTTPPeer(PipelineClient):
    """A client whose calls came over HTTP."""

    request_of: Any = None

    def _handle(self, message: dict[str, Any], outbox: Any) -> Any:
        asked = Connection(self.principal, make_request=lambda who: self.request_of)
        return self.pipeline.handle(self.pipeline.stateless, message, asked, outbox)


def call(client: PipelineClient, tool: str, **arguments: Any) -> dict[str, Any]:
    return async_to_sync(client.call)(tool, **arguments)


def error(client: PipelineClient, tool: str, **arguments: Any) -> str:
    return async_to_sync(client.error)(tool, **arguments)


def status(result: dict[str, Any]) -> int:
    """Return the HTTP status of a result."""
    found: int = result["_meta"].get(STATUS, 200)
    return found


def seen_by(view: Any, who: Any, **options: Any) -> dict[str, Any]:
    """Call a view with one method as a principal. Return the result."""
    server = make_server()
    expose(view, server=server, names={"get": "see"}, **options)
    return call(PipelineClient(server, principal=who), "see")


class Mirror(APIView):
    """A view that returns facts of its request."""

    authentication_classes = [SessionAuthentication]
    permission_classes: list[Any] = []

    def get(self, request: Any) -> Response:
        auth = request.auth
        return Response(
            {
                "user": str(request.user),
                "auth": None if auth is None else [auth.scope, auth.allow_scopes(["a"]), repr(auth)],
                "by": type(request.successful_authenticator).__name__,
                "django": str(request._request.user),
            }
        )


def caller(user: User | None, *scopes: str, **given: Any) -> DjangoPrincipal:
    return DjangoPrincipal(issuer="tests", subject="x", user=user, scopes=frozenset(scopes), **given)


def test_user_and_delegation_come_from_the_principal() -> None:
    ada = User.objects.create_user("ada")
    seen = seen_by(Mirror, caller(ada, "b", "a", token_id=7))["structuredContent"]
    assert seen["user"] == seen["django"] == "ada"
    assert seen["by"] == "PrincipalAuthentication"
    assert seen["auth"][:2] == ["a b", True]


def test_callers_without_a_user_are_anonymous_and_have_scopes_only() -> None:
    assert seen_by(Mirror, local_principal())["structuredContent"] == {
        "user": "AnonymousUser",
        "django": "AnonymousUser",
        "auth": None,
        "by": "NoneType",
    }
    seen = seen_by(Mirror, caller(None, "a"))["structuredContent"]
    assert (seen["user"], seen["auth"][0]) == ("AnonymousUser", "a")


def test_views_without_authentication_get_no_user() -> None:
    class Public(Mirror):
        authentication_classes: list[Any] = []

    ada = User.objects.create_user("ada")
    assert seen_by(Public, caller(ada))["structuredContent"]["user"] == "AnonymousUser"

    class Closed(Public):
        permission_classes = [permissions.IsAuthenticated]

    assert status(seen_by(Closed, caller(ada))) == 403


def test_authenticators_chosen_by_a_view_are_replaced() -> None:
    class Choosy(Mirror):
        permission_classes = [permissions.IsAuthenticated]

        def get_authenticators(self) -> list[Any]:
            return [views.HeaderAuthentication()]

    ada = User.objects.create_user("ada")
    assert seen_by(Choosy, caller(ada))["structuredContent"]["user"] == "ada"
    assert status(seen_by(Choosy, local_principal())) == 401


def test_an_inactive_user_is_refused_as_by_drf() -> None:
    ada = User.objects.create_user("ada", is_active=False)
    result = seen_by(Mirror, caller(ada))
    assert result["content"][0]["text"] == "User inactive or deleted."


def test_scopes_of_the_call_count_for_permission_classes_of_oauth_toolkit() -> None:
    class Scoped(Mirror):
        permission_classes = [TokenHasScope]
        required_scopes = ["books"]

    ada = User.objects.create_user("ada")
    assert seen_by(Scoped, caller(ada, "books"))["isError"] is False
    assert status(seen_by(Scoped, caller(ada, "films"))) == 403


def test_each_call_has_its_own_user_object_with_fresh_permissions() -> None:
    class Grant(Mirror):
        def get(self, request: Any) -> Response:
            request.user.first_name = "changed"
            return Response({"may": request.user.has_perm("library.view_author")})

    ada = fill().ada
    assert ada.has_perm("library.view_author")
    ada.user_permissions.clear()
    assert seen_by(Grant, caller(ada))["structuredContent"] == {"may": False}
    assert ada.first_name == ""


def test_address_host_language_and_attributes_of_middleware_come_from_the_request_of_the_call() -> None:
    class Around(Mirror):
        def get(self, request: Any) -> Response:
            names = ("HTTP_AUTHORIZATION", "HTTP_COOKIE", "HTTP_ACCEPT_LANGUAGE", "HTTP_X_TENANT", "HTTP_MCP_METHOD")
            meta = {name: request.META.get(name) for name in names}
            meta |= {"cookies": request.COOKIES, "headers": dict(request.headers), "query": request.GET}
            around = [request.META["REMOTE_ADDR"], request.build_absolute_uri("/x"), request.tenant, request.method]
            return Response({"meta": meta, "around": around, "session": hasattr(request._request, "session")})

    asked = RequestFactory(
        REMOTE_ADDR="192.0.2.7",
        HTTP_HOST="localhost",
        HTTP_AUTHORIZATION="Bearer secret",
        HTTP_COOKIE="sessionid=secret",
        HTTP_ACCEPT_LANGUAGE="de",
        HTTP_X_TENANT="blue",
        HTTP_MCP_METHOD="tools/call",
    ).post("/mcp", secure=True)
    asked.tenant, asked.session = "blue", object()  # type: ignore[attr-defined]
    assert (asked.headers["Cookie"], asked.COOKIES, asked.GET) == ("sessionid=secret", {"sessionid": "secret"}, {})
    server = make_server()
    expose(Around, server=server)
    client = HTTPPeer(server, principal=caller(User.objects.create_user("ada")))
    client.request_of = asked
    seen = call(client, "around")["structuredContent"]
    assert seen["around"] == ["192.0.2.7", "https://localhost/x", "blue", "GET"]
    assert seen["session"] is False
    meta = seen["meta"]
    assert (meta["HTTP_ACCEPT_LANGUAGE"], meta["HTTP_X_TENANT"], meta["HTTP_MCP_METHOD"]) == ("de", "blue", None)
    assert "secret" not in str(meta)


def test_copies_that_vary_by_credential_are_kept_for_each_caller() -> None:
    library = fill()
    views.Cached.served.clear()
    said = [
        call(peer(api(), who), "cached")["structuredContent"]["user"] for who in (library.ada, library.ada, library.bob)
    ]
    assert said == ["ada", "ada", "bob"]
    assert views.Cached.served == ["ada", "bob"]


def test_throttles_count_http_and_calls_together_and_return_the_wait() -> None:
    library = fill()
    for _ in range(2):
        assert call(peer(api(), library.ada), "book_limited")["isError"] is False
    assert call_http(library.ada, "get", "/api/books/limited/")[0].status == 200
    result = call(peer(api(), library.ada), "book_limited")
    assert status(result) == 429
    assert re.fullmatch(r"Request was throttled\. Expected available in \d+ seconds\.", result["content"][0]["text"])
    assert call(peer(api(), library.bob), "book_limited")["isError"] is False


def test_callers_without_a_user_are_throttled_by_address() -> None:
    class Slow(APIView):
        authentication_classes: list[Any] = []
        permission_classes: list[Any] = []
        throttle_classes = [type("Once", (views.throttling.AnonRateThrottle,), {"rate": "1/hour", "scope": "once"})]

        def get(self, request: Any) -> Response:
            return Response({})

    cache.clear()
    server = make_server()
    expose(Slow, server=server)
    told = []
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
        client = HTTPPeer(server)
        client.request_of = RequestFactory(REMOTE_ADDR=address, HTTP_HOST="localhost").post("/mcp")
        told.append(call(client, "slow")["isError"])
    assert told == [False, False, True]


def test_validation_errors_are_a_line_for_each_field() -> None:
    library = fill()
    said = error(
        peer(api(), library.ada),
        "book_create",
        isbn="1",
        title="X",
        author=0,
        price="1.234",
        reviews=[{"stars": 9}, {"text": "y"}],
    )
    assert said.splitlines() == [
        "title: Ensure this field has at least 2 characters.",
        'author: Invalid pk "0" - object does not exist.',
        "price: Ensure that there are no more than 2 decimal places.",
        "reviews[0].stars: Ensure this value is less than or equal to 5.",
        "reviews[1].stars: This field is required.",
    ]
    said = error(peer(api(), library.ada), "book_partial_update", pk=library.books[0].pk, title="Forbidden")
    assert said == "This book is banned."


def test_permissions_come_before_validation_as_over_http() -> None:
    library = fill()
    assert error(peer(api()), "book_create", title="X") == "Authentication credentials were not provided."
    said = error(peer(api(), library.ada), "book_partial_update", pk=library.books[-1].pk, price=[])
    assert said == "This is not yours."


def test_the_exception_handler_of_a_view_is_used() -> None:
    result = call(peer(api()), "handled")
    assert status(result) == 418
    assert result["content"][0]["text"].splitlines() == ["error.code: teapot", "error.say: Somebody was faster."]


def test_an_unexpected_exception_is_not_described(caplog: pytest.LogCaptureFixture) -> None:
    said = error(peer(api(), fill().ada), "book_broken")
    assert re.fullmatch(r"Internal error \(reference \w+\)", said)
    assert "secret text" in caplog.text
    assert "secret" not in error(peer(api(), User.objects.get(username="ada")), "book_suspicious")


def test_bytes_are_returned_as_a_resource() -> None:
    (block,) = call(peer(api(), fill().ada), "book_archive")["content"]
    assert block["resource"]["mimeType"] == "application/zip"
    assert block["resource"]["blob"] == "AAF6aXA="


def test_files_without_base64_or_too_large_are_refused(settings: Any) -> None:
    library = fill()
    given = {"pk": library.books[0].pk, "cover": {"name": "a.png", "content": "no base64!"}}
    assert error(peer(api(), library.ada), "book_cover", **given).startswith("cover.content: is not base64")
    assert "cover" in error(peer(api(), library.ada), "book_cover", pk=1, cover="AAAA")
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    said = error(peer(api(), library.ada), "book_ban", pk=library.books[0].pk, body={"reason": "x" * 100})
    assert said in (
        "The request was refused as malformed or too large.",
        "You do not have permission to perform this action.",
    )


def test_file_names_cannot_leave_their_place() -> None:
    library = fill()
    name = 'a"; filename="evil.exe\r\nX-Evil: 1\r\n\r\n.png'
    result = call(
        peer(api(), library.ada), "book_cover", pk=library.books[0].pk, cover={"name": name, "content": "AAAA"}
    )
    told = result["structuredContent"]
    assert told["bytes"] == "000000"
    assert told["name"].startswith("a%22;")
    assert "\n" not in told["name"]
    assert told["title"] is None


def test_keys_cannot_reach_another_path_or_action(subtests: pytest.Subtests) -> None:
    for key in ("../strict", "1/notes", "1?x=1", "", "%2e%2e", "recent/"):
        with subtests.test(key=key), rolled_back():
            result = call(peer(api(), fill().ada), "book_retrieve", pk=key)
            assert status(result) == 404

    result = call(peer(api(), fill().ada), "book_retrieve", pk="cheapest")
    assert status(result) == 404


def test_transactions_are_those_of_atomic_requests(subtests: pytest.Subtests) -> None:
    cases = (
        ("transfer", "raise", 0),
        ("transfer", "404", 0),
        ("transfer", "suspicious", 0),
        ("transfer", "return", 1),
        ("non_atomic_transfer", "raise", 1),
        ("non_atomic_transfer", "return", 1),
        ("non_atomic_transfer", "suspicious", 1),
    )
    for tool, fail, left in cases:
        with subtests.test(tool=tool, fail=fail, left=left), rolled_back(), pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
            server = api()
            monkeypatch.setattr(server, "options", server.options.__class__(atomic=("default",)))
            assert call(peer(server), tool, body={"fail": fail})["isError"]
            transaction.set_rollback(False)  # DRF asks the test's own transaction to roll back, where a call has none
            assert Author.objects.filter(name="First").count() == left


def test_an_async_view_is_awaited() -> None:
    class Later(APIView):
        permission_classes: list[Any] = []

        async def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            return super().dispatch(request, *args, **kwargs)

        def get(self, request: Any) -> Response:
            return Response({"later": True})

    server = make_server()
    expose(Later, server=server)
    assert call(PipelineClient(server), "later")["structuredContent"] == {"later": True}


def test_a_view_sees_the_route_and_the_server_of_its_call() -> None:
    library = fill()
    seen = call(peer(api(), library.ada), "book_who")["structuredContent"]
    assert seen["path"] == "/api/books/who/"
    assert (seen["view"], seen["method"], seen["action"]) == ("book-who", "GET", "who")
    over_http, _ = call_http(library.ada, "get", "/api/books/who/")
    assert seen == over_http.body
    assert principal(library.ada).user == library.ada


def test_a_version_leads_to_no_route_whose_view_has_other_options(settings: Any) -> None:
    """A route may add permissions, which calls through another one would not pass."""

    class AnyVersion(views.Versioned):
        versioning_class = NamespaceVersioning

    def routes(name: str, **options: Any) -> Any:
        below = [path("which/", AnyVersion.as_view(**options), name="which")]
        return path(f"{name}/", include((below, "library"), namespace=name))

    guarded = routes("guarded", permission_classes=[permissions.IsAdminUser])
    settings.ROOT_URLCONF = (routes("n1"), routes("n2"), guarded)
    server = make_server()
    expose(AnyVersion, server=server, route="n1")
    client = PipelineClient(server, principal=caller(User.objects.create_user("ada")))
    assert call(client, "any_version", version="n2")["structuredContent"]
    assert status(call(client, "any_version", version="guarded")) == 404
