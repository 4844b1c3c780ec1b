"""Refusals, their statuses and challenges: the same over ASGI and the view, and for all bad tokens."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client, override_settings
from django.utils import timezone

from mcp_django import wiring
from mcp_django.asgi import mount
from mcp_django.auth.requests import AuthRequest
from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.tokens.token_format import access_token, refresh_token
from mcp_django.models import PersonalAccessToken
from mcp_django.protocol.headers import Headers
from tests.contrib.oauth.oauth_client import Source, make_client

RESOURCE = "https://testserver/mcp"
METADATA = 'resource_metadata="https://testserver/.well-known/oauth-protected-resource/mcp"'
INVALID = (
    'Bearer error="invalid_token", error_description="The access token is unknown, expired, revoked, or not for this '
    f'server", scope="notes:read", {METADATA}'
)
SERVERS = {"default": {"REQUIRED_SCOPES": ["notes:read"]}, "shop": {}}
MCP: dict[str, Any] = {"SERVERS": SERVERS, "RATES": {"TOKEN_FAILURES": "10000/s"}}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
Pairs = list[tuple[str, str]]


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """There is nothing beside the endpoints."""


def by_mount(headers: Pairs, *, method: str = "POST", query: str = "") -> SimpleNamespace:
    sent: list[Any] = []
    body = json.dumps(INITIALIZE).encode() if method == "POST" else b""

    async def main() -> None:
        coming = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            return coming.pop() if coming else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        pairs = [("host", "testserver"), *JSON.items(), *headers]
        scope = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
            "client": ("192.0.2.1", 1),
        }
        await mount(nothing)(scope, receive, send)

    async_to_sync(main)()
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return SimpleNamespace(status=sent[0]["status"], headers=found, body=sent[1].get("body", b""))


def by_view(headers: Pairs, *, method: str = "POST", query: str = "") -> SimpleNamespace:
    client = Client(headers={"host": "testserver"}, REMOTE_ADDR="192.0.2.1")
    body = json.dumps(INITIALIZE) if method == "POST" else ""
    sent = {**JSON, **dict(headers)}
    reply = client.generic(method, f"/mcp?{query}", body, content_type=sent.pop("content-type"), headers=sent)
    found = {name.lower(): value for name, value in reply.headers.items()}
    return SimpleNamespace(status=reply.status_code, headers=found, body=reply.content)


DOORS = (by_mount, by_view)
"""Each sends a request through one of the two ways into the project: ASGI mount, Django view."""
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    with override_settings(MCP=MCP):
        yield


def bearer(token: str) -> Pairs:
    return [("authorization", f"Bearer {token}")]


def alice(**facts: Any) -> User:
    return User.objects.get_or_create(username="alice", defaults=facts)[0]


def oauth(raw: str | None = None, *, seconds: float = 600, **facts: Any) -> str:
    """Return an access token of Alice, or with other `facts`."""
    raw = raw or access_token(None)
    given = {"user": alice(), "scope": "notes:read", "resource": [RESOURCE], **facts}
    if "application" not in given:
        given["application"] = make_client()
    made = toolkit_compat.get_access_token_model()(expires=timezone.now() + timedelta(seconds=seconds), **given)
    toolkit_compat.set_token(made, raw)
    made.save()
    return raw


def personal(**facts: Any) -> str:
    """A personal token of alice's."""
    given = {"user": alice(), "name": "one", "scopes": ["notes:read"], "expires": None, **facts}
    return PersonalAccessToken.issue(**given)[1]


def revoked() -> str:
    token = personal()
    PersonalAccessToken.objects.get().revoke()
    return token


def deactivated(make: Callable[[], str]) -> str:
    token = make()
    User.objects.update(is_active=False)
    return token


def blocked() -> str:
    return oauth(application=make_client(blocked=True))


def machine() -> str:
    """A client that registered itself, and got a token without anybody."""
    application = make_client()
    application.authorization_grant_type = application.GRANT_CLIENT_CREDENTIALS
    application.save()
    return oauth(user=None, application=application)


OTHERS = [
    *("https://evil.example/mcp", "https://testserver", "https://testserver/mcp/shop", "https://testserver/mc"),
    *("https://testserver/mcp?a=b", "https://a@testserver/mcp", "http://testserver/mcp", "https://testserver:8443/mcp"),
]
BAD: dict[str, Callable[[], str]] = {
    "unknown": lambda: access_token(None),
    "unknown personal": lambda: personal()[:-6] + "aaaaaa",
    "expired": lambda: oauth(seconds=-1),
    "without audience": lambda: oauth(resource=[]),
    **{f"for {url}": lambda url=url: oauth(resource=[url]) for url in OTHERS},  # type: ignore[misc]
    "of who is not active": lambda: deactivated(oauth),
    "personal, of who is not active": lambda: deactivated(personal),
    "of a blocked client": blocked,
    "of nobody": machine,
    "that manages a registration": lambda: oauth(scope="oauth2:dcr:manage notes:read", resource=[]),
    "refresh token": lambda: refresh_token(None),
    "authorization code": lambda: "RVZ2YkJwV0tYc3ZrV2ZrT2V2",
    "JWT": lambda: "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",
    "garbage JWT": lambda: "eyJ.x.y",
    "ID token": lambda: "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJub25jZSI6ImEiLCJhdF9oYXNoIjoiYiJ9.c2ln",
    "personal, of another server": lambda: personal(audience="shop"),
    "personal, expired": lambda: personal(expires=timezone.now() - timedelta(seconds=1)),
    "personal, revoked": revoked,
    "two words": lambda: "a b",
    "nothing": lambda: "",
    "quotes": lambda: '"a"',
    "bytes": lambda: "\xff\xfe",
}


def test_all_bad_tokens_are_answered_alike(subtests: pytest.Subtests, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    for name, make in BAD.items():
        token = make()
        for ask in DOORS:
            with subtests.test(ask=ask, name=name):
                caplog.clear()
                reply = ask(bearer(token))
                assert (reply.status, reply.headers["www-authenticate"]) == (401, INVALID)
                assert reply.headers["cache-control"] == "no-store"
                message = json.loads(reply.body)["error"]["message"]
                assert message == "The access token is unknown, expired, revoked, or not for this server"
                if len(token) > 10:
                    assert token not in caplog.text
                    assert token not in reply.body.decode()
        # The next token has a user of its own, with is_active and valid tokens.
        PersonalAccessToken.objects.all().delete()
        User.objects.all().delete()
        with subtests.test("a good token is accepted", after=name):
            assert by_view(bearer(oauth())).status == 200


def test_the_resource_may_have_another_spelling(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        for resource in [RESOURCE, f"{RESOURCE}/", "HTTPS://TestServer/mcp", "https://testserver:443/mcp"]:
            with subtests.test(ask=ask, resource=resource):
                assert ask(bearer(oauth(resource=[resource]))).status == 200


def test_the_scheme_is_case_insensitive(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        for scheme in ["Bearer", "bearer", "BEARER"]:
            with subtests.test(ask=ask, scheme=scheme):
                assert ask([("authorization", f"{scheme} {personal()}")]).status == 200


def test_without_a_token_there_is_no_error_yet(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        for headers in [
            [],
            [("cookie", "sessionid=abc")],
            [("authorization", "Basic YTpi")],
            [("authorization", "")],
            [("authorization", "BearerX abc")],
            [("x-api-key", "abc")],
        ]:
            with subtests.test(ask=ask, headers=headers):
                reply = ask(headers)
                assert (reply.status, reply.headers["www-authenticate"]) == (
                    401,
                    f'Bearer scope="notes:read", {METADATA}',
                )


def test_a_token_in_the_query_is_ignored(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        for name in ["access_token", "token"]:
            with subtests.test(ask=ask, name=name):
                reply = ask([], query=f"{name}={personal()}")
                assert (reply.status, "error=" in reply.headers["www-authenticate"]) == (401, False)


def test_two_authorization_headers_are_refused() -> None:
    token = personal()
    reply = by_mount([*bearer(token), *bearer(token)])
    assert reply.status == 400
    assert reply.headers["www-authenticate"].startswith('Bearer error="invalid_request"')


def test_a_token_of_nine_kilobytes_is_refused(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            reply = ask(bearer("a" * 9000))
            assert reply.status == 400
            assert 'error="invalid_request"' in reply.headers["www-authenticate"]


def test_a_token_without_a_required_scope_is_refused_with_its_name(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            reply = ask(bearer(oauth(scope="notes:write")))
            assert reply.status == 403
            assert reply.headers["www-authenticate"].startswith('Bearer error="insufficient_scope"')
            assert f'scope="notes:read", {METADATA}' in reply.headers["www-authenticate"]


def test_a_scope_that_includes_the_required_one_is_enough(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with (
            subtests.test(ask=ask),
            override_settings(
                MCP={**MCP, "SCOPE_IMPLIES": {"notes:all": ["notes:write"], "notes:write": ["notes:read"]}}
            ),
        ):
            assert ask(bearer(oauth(scope="notes:all"))).status == 200


def test_a_token_beside_a_cookie_is_a_token(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            assert ask([*bearer(personal()), ("cookie", "sessionid=abc; theme=dark")]).status == 200


def test_a_foreign_origin_is_refused_before_the_token_is_looked_at(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            reply = ask([*bearer("anything"), ("origin", "https://evil.example")])
            assert reply.status == 403
            assert "www-authenticate" not in reply.headers


def test_a_preflight_needs_no_token(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            assert ask([("origin", "http://localhost:3000")], method="OPTIONS").status == 204


def test_an_unavailable_backend_does_not_make_a_token_invalid(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise OperationalError("down")

    token = personal()
    monkeypatch.setattr(PersonalAccessToken, "hash", fail)
    for ask in DOORS:
        with subtests.test(ask=ask):
            reply = ask(bearer(token))
            assert (reply.status, "www-authenticate" in reply.headers) == (503, False)
            assert int(reply.headers["retry-after"]) >= 1


def test_the_response_contains_nothing_of_a_credential(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        for value in ["a\r\nset-cookie: a=b", 'a", scope="all', "a\x00b"]:
            with subtests.test(ask=ask, value=value):
                reply = ask([("authorization", f"Bearer {value}")])
                assert (reply.status, reply.headers["www-authenticate"]) == (401, INVALID)
                assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("make", [oauth, personal], ids=["oauth", "personal"])
def test_an_uncached_token_needs_two_queries_at_most(make: Any, django_assert_max_num_queries: Any) -> None:
    token, verifier = make(), wiring.create_authenticator("default")
    PersonalAccessToken.objects.update(last_used_at=timezone.now())
    asked = AuthRequest(Headers([(b"authorization", f"Bearer {token}".encode())]))
    with django_assert_max_num_queries(2):
        who = async_to_sync(verifier.authenticate)(asked)
    with django_assert_max_num_queries(0):
        assert verifier.get_cached(asked) is who


def test_a_trusted_client_of_an_operator_is_its_service_user() -> None:
    application = make_client(source=Source.MANUAL, trusted=True, service_user=alice())
    application.authorization_grant_type = application.GRANT_CLIENT_CREDENTIALS
    application.save()
    assert by_view(bearer(oauth(application=application))).status == 200
