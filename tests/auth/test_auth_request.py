"""The request as hooks of a project get it: text, the same when a stream is verified again, and without secrets."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authorization.scopes import ScopeFilter
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.headers import Headers
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.calls.call import Connection, NetworkInfo
from mcp_django.transports.credentials import Credential, StreamCredential

PAIRS = [
    (b"host", b"acme.example"),
    (b"authorization", b"Bearer t-1"),
    (b"x-tenant", b"acme"),
    (b"origin", b"http://o"),
]
NETWORK = NetworkInfo("tcp", "http", "1.1", "203.0.113.7", 5000, "https")


class Tokens:
    """A verifier that takes each token."""

    def accepts(self, token: str) -> bool:
        return True

    async def verify(self, token: str, *, resource: Any) -> DjangoPrincipal:
        return DjangoPrincipal(issuer="tests", subject=token)


def make_authenticator(seen: list[AuthRequest]) -> Authenticator:
    """Make an authenticator whose authorizer records the requests that it gets, and admits one tenant."""

    def authorize(principal: DjangoPrincipal, *, resource: Any, request: AuthRequest) -> DjangoPrincipal | None:
        seen.append(request)
        return principal if request.headers.get("X-Tenant") == "acme" else None

    return Authenticator(
        "default", executor=LeasingExecutor(), verifiers=[Tokens()], scope_filter=ScopeFilter(authorize=authorize)
    )


@pytest.mark.django_db
def test_a_hook_gets_the_same_request_when_a_stream_is_verified_again() -> None:
    seen: list[AuthRequest] = []
    authenticator = make_authenticator(seen)
    connection = Connection(DjangoPrincipal(issuer="", subject=""), headers=Headers(PAIRS), network=NETWORK)
    request = AuthRequest.from_connection(connection)
    principal = async_to_sync(authenticator.authenticate)(request)
    credential = StreamCredential.from_principal(principal, authenticator, request)
    assert credential is not None
    assert async_to_sync(credential.is_valid)()
    first, again = seen
    assert again.headers == first.headers.without({b"origin"})
    assert (again.peer, again.scheme) == (first.peer, first.scheme) == ("203.0.113.7", "https")


@pytest.mark.django_db
def test_only_the_credential_is_kept_where_no_hook_reads_the_request() -> None:
    authenticator = Authenticator("default", executor=LeasingExecutor(), verifiers=[Tokens()])
    credential = Credential(authenticator, AuthRequest(Headers(PAIRS)))
    assert dict(credential._request.headers) == {"authorization": "Bearer t-1"}


def test_the_address_of_the_request_is_the_one_behind_the_proxies(settings: Any) -> None:
    settings.MCP = {"RATES": {"NUM_PROXIES": 1}}
    request = AuthRequest(Headers([(b"x-forwarded-for", b"10.0.0.1, 203.0.113.7")]), "10.0.0.9")
    assert (request.peer, request.client_address) == ("10.0.0.9", "203.0.113.7")
    assert AuthRequest(Headers()).client_address is None


def test_the_representation_of_a_request_has_no_credentials() -> None:
    request = AuthRequest(Headers(PAIRS), "203.0.113.7", query="ticket=secret")
    assert repr(request) == "<AuthRequest GET from 203.0.113.7>"
