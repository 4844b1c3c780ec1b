"""Tokens that are renewed: once for all workers, and never lost."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import httpx2
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from pytest_django.fixtures import Settings

from mcp_django.client.errors import AuthorizationNeeded, ClientConnectionError
from mcp_django.client.oauth import auth as oauth
from mcp_django.client.oauth.auth import BearerAuth, TokenAuth, create_auth
from mcp_django.client.oauth.http import AuthorizationFailed
from mcp_django.client.oauth.token_store import TokenGrant, TokenRow, run_in_thread
from tests.client.authority import ISSUER, SERVER, Authority, settings

OLD = TokenGrant(
    issuer=ISSUER,
    access_token="old",
    refresh_token="r0",
    scope="read",
    expires_at=1.0,
    lifetime=3600.0,
    token_endpoint=f"{ISSUER}/token",
    revocation_endpoint=f"{ISSUER}/revoke",
    resource=SERVER,
    client={"client_id": "c1", "client_secret": "client-s3cret", "token_endpoint_auth_method": "client_secret_post"},
)

Together = Callable[[list[Callable[[], Awaitable[Any]]]], list[Any]]


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


@pytest.fixture(autouse=True)
def _pages(settings: Settings) -> None:
    settings.ROOT_URLCONF = "tests.client.urls"


def credential(authority: Authority, user: User, **auth: Any) -> TokenAuth:
    """Build the credential of one worker."""
    found = create_auth(settings(**auth), user, http_client=authority.outgoing())
    assert isinstance(found, TokenAuth)
    return found


class Server:
    """An MCP server that accepts some tokens, and records the tokens that it received."""

    def __init__(self, *good: str, refusal: httpx2.Response | None = None) -> None:
        self.good, self.shown = set(good), list[str | None]()
        self.refusal = refusal or httpx2.Response(401)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.shown.append(token)
        return httpx2.Response(200) if token in self.good else self.refusal


async def call(auth: httpx2.Auth | None, server: Server, url: str = SERVER) -> int:
    async with httpx2.AsyncClient(auth=auth, transport=httpx2.MockTransport(server)) as http:
        return (await http.post(url, json={})).status_code


def kept(user: User) -> TokenGrant | None:
    held = TokenRow(settings(), user).read()
    return None if held is None else held.grant


def grant(user: User, **changes: Any) -> TokenRow:
    row = TokenRow(settings(), user)
    row.write(dataclasses.replace(OLD, **changes))
    return row


def test_without_tokens_nothing_is_sent(ada: User) -> None:
    server = Server()
    with pytest.raises(AuthorizationNeeded) as caught:
        async_to_sync(call)(credential(Authority(), ada), server)
    assert (caught.value.alias, caught.value.url) == ("one", "/mcp/clients/one/connect/")
    assert server.shown == []


def test_an_old_token_is_renewed_before_its_use(ada: User) -> None:
    grant(ada)
    authority, server = Authority(), Server("a1-s3cret")
    assert async_to_sync(call)(credential(authority, ada), server) == 200
    assert server.shown == ["a1-s3cret"]
    (form,) = authority.forms
    assert (form["refresh_token"], form["resource"], form["client_secret"]) == ("r0", SERVER, "client-s3cret")
    found = kept(ada)
    assert found is not None
    assert (found.refresh_token, found.scope, found.issuer, found.client) == ("r1", "read", ISSUER, OLD.client)


def test_a_token_is_sent_to_its_server_only(ada: User) -> None:
    grant(ada, access_token="good", expires_at=None)
    for url in ("https://evil.example/mcp", "http://mcp.example/mcp", "https://mcp.example:444/mcp"):
        server = Server()
        async_to_sync(call)(credential(Authority(), ada), server, url)
        assert server.shown == [""]


def test_a_server_that_refuses_all_tokens_is_not_retried_for_ever(ada: User) -> None:
    grant(ada, expires_at=None)
    authority, server = Authority(), Server()
    with pytest.raises(AuthorizationNeeded):
        async_to_sync(call)(credential(authority, ada), server)
    assert server.shown == ["old", "a1-s3cret"]


def test_a_refused_token_without_a_refresh_token_needs_authorization(ada: User) -> None:
    grant(ada, expires_at=None, refresh_token=None)
    with pytest.raises(AuthorizationNeeded):
        async_to_sync(call)(credential(Authority(), ada), Server())


def test_scopes_that_a_call_lacks_are_noted(ada: User) -> None:
    row = grant(ada, expires_at=None)
    challenge = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="read admin"'}
    with pytest.raises(AuthorizationNeeded):
        async_to_sync(call)(credential(Authority(), ada), Server(refusal=httpx2.Response(403, headers=challenge)))
    held = row.read()
    assert held is not None
    assert (held.missing_scopes, held.grant is not None) == ("read admin", True)


def test_a_refusal_without_a_challenge_is_passed_to_the_caller(ada: User) -> None:
    grant(ada, expires_at=None)
    assert async_to_sync(call)(credential(Authority(), ada), Server(refusal=httpx2.Response(403))) == 403


def test_a_grant_ended_by_the_authorization_server_is_deleted(ada: User, caplog: pytest.LogCaptureFixture) -> None:
    row = grant(ada)
    authority = Authority()
    authority.live = "another"
    with pytest.raises(AuthorizationNeeded):
        async_to_sync(call)(credential(authority, ada), Server())
    held = row.read()
    assert held is not None
    assert held.grant is None
    assert "invalid_grant" in caplog.text
    assert "s3cret" not in caplog.text


def test_an_authorization_server_that_is_down_ends_nothing(ada: User, subtests: pytest.Subtests) -> None:
    for status in [429, 500, 503]:
        with subtests.test(status=status):
            grant(ada)
            authority = Authority()
            authority.other[f"{ISSUER}/token"] = lambda request, status=status: httpx.Response(status)
            auth = credential(authority, ada)
            with pytest.raises(ClientConnectionError) as caught:
                async_to_sync(call)(auth, Server())
            assert not isinstance(caught.value, AuthorizationNeeded)
            assert kept(ada) == OLD
            authority.other.clear()
            assert async_to_sync(call)(auth, Server("a1-s3cret")) == 200


@pytest.mark.usefixtures("clock")
def test_a_nearly_expired_token_is_used_until_it_is_renewed(ada: User) -> None:
    grant(ada, expires_at=time.time() + 10)
    authority, server = Authority(), Server("old")
    authority.other[f"{ISSUER}/token"] = lambda request: httpx.Response(503)
    assert async_to_sync(call)(credential(authority, ada), server) == 200


def test_the_registration_of_an_unknown_client_is_deleted(ada: User) -> None:
    grant(ada)
    TokenRow(settings()).save_registration({"client_id": "c1"})
    authority = Authority()
    authority.other[f"{ISSUER}/token"] = lambda request: httpx.Response(401, json={"error": "invalid_client"})
    with pytest.raises(AuthorizationNeeded):
        async_to_sync(call)(credential(authority, ada), Server())
    assert TokenRow(settings()).read_registration() is None


def test_a_wrong_secret_in_the_settings_ends_nothing(ada: User) -> None:
    grant(ada)
    authority = Authority()
    authority.other[f"{ISSUER}/token"] = lambda request: httpx.Response(401, json={"error": "invalid_client"})
    auth = credential(authority, ada, client_id="c1", client_secret="wrong", issuer=ISSUER)
    with pytest.raises(AuthorizationFailed, match="CLIENT_ID"):
        async_to_sync(call)(auth, Server())
    assert kept(ada) == OLD


def test_the_secret_is_the_one_that_the_settings_have_now(ada: User) -> None:
    grant(ada)
    authority = Authority()
    auth = credential(authority, ada, client_id="c1", client_secret="newer", issuer=ISSUER, client_auth="post")
    assert async_to_sync(call)(auth, Server("a1-s3cret")) == 200
    assert authority.forms[0]["client_secret"] == "newer"


def test_a_secret_of_the_settings_is_sent_to_their_issuer_only(ada: User) -> None:
    authority, server = Authority(), Server("a1-s3cret")
    grant(ada)
    auth = credential(authority, ada, client_id="c1", client_secret="newer", issuer="https://moved.example")
    assert async_to_sync(call)(auth, server) == 200
    assert authority.forms[0]["client_secret"] == "client-s3cret"


def test_the_next_call_after_a_withdrawal_has_no_token(ada: User, settings: Settings) -> None:
    settings.MCP = {"AUTH": "none", "TOKEN_CACHE_SECONDS": 0}
    row = grant(ada, expires_at=None)
    auth, server = credential(Authority(), ada), Server("old")

    @async_to_sync
    async def calls() -> None:
        assert await call(auth, server) == 200
        await run_in_thread(row.delete)
        with pytest.raises(AuthorizationNeeded):
            await call(auth, server)

    calls()
    assert server.shown == ["old"]


def test_many_calls_of_one_worker_renew_once(ada: User) -> None:
    grant(ada)
    authority = Authority()
    auth, server = credential(authority, ada), Server("a1-s3cret")

    @async_to_sync
    async def calls() -> list[int]:
        return await asyncio.gather(*(call(auth, server) for _ in range(20)))

    assert calls() == [200] * 20
    assert authority.refreshes == 1


def test_a_call_that_is_cancelled_leaves_the_renewal_to_the_others(ada: User) -> None:
    grant(ada)
    authority = Authority()
    auth, server = credential(authority, ada), Server("a1-s3cret")

    @async_to_sync
    async def calls() -> None:
        asked, answered = asyncio.Event(), asyncio.Event()
        send = auth._http_client.send

        async def slow(request: httpx2.Request, **options: Any) -> httpx2.Response:
            response = await send(request, **options)
            asked.set()  # the old refresh token is spent now
            await answered.wait()
            return response

        auth._http_client.send = slow  # type: ignore[method-assign]
        first = asyncio.create_task(call(auth, server))
        await asked.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        answered.set()
        assert await call(auth, server) == 200

    calls()
    assert authority.refreshes == 1
    found = kept(ada)
    assert found is not None
    assert found.refresh_token == "r1"


def test_a_database_that_is_busy_loses_no_tokens(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "WRITE_RETRY_DELAYS_SECONDS", (0, 0))
    grant(ada)
    authority, failures = Authority(), [OperationalError("locked"), OperationalError("locked")]
    auth = credential(authority, ada)
    write = auth.row.write

    def busy(*args: Any, **kwargs: Any) -> bool:
        if failures:
            raise failures.pop()
        return write(*args, **kwargs)

    monkeypatch.setattr(auth.row, "write", busy)
    assert async_to_sync(call)(auth, Server("a1-s3cret")) == 200
    found = kept(ada)
    assert found is not None
    assert found.refresh_token == "r1"


def test_a_database_that_is_down_is_a_failure_of_the_connection(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def down() -> None:
        raise OperationalError("at s3cret")

    auth = credential(Authority(), ada)
    monkeypatch.setattr(auth.row, "read", down)
    with pytest.raises(ClientConnectionError) as caught:
        async_to_sync(call)(auth, Server())
    assert not isinstance(caught.value, AuthorizationNeeded)
    assert "s3cret" not in str(caught.value)


def test_tokens_of_a_connection_that_was_ended_meanwhile_are_ended_too(ada: User) -> None:
    row = grant(ada)
    authority = Authority()
    auth = credential(authority, ada)

    @async_to_sync
    async def calls() -> None:
        send = auth._http_client.send

        async def slow(request: httpx2.Request, **options: Any) -> httpx2.Response:
            if str(request.url).endswith("/token"):
                await run_in_thread(row.delete)
            return await send(request, **options)

        auth._http_client.send = slow  # type: ignore[method-assign]
        with pytest.raises(AuthorizationNeeded):
            await call(auth, Server())

    calls()
    assert kept(ada) is None
    assert sorted(authority.revoked) == ["a1-s3cret", "r1"]


@pytest.fixture
def together() -> Together:
    """Run each function on a loop and a thread of its own, as workers do, all at the same moment."""

    def run(functions: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
        gate = threading.Barrier(len(functions))

        async def guarded(function: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await function()
            finally:
                await run_in_thread(connections.close_all)

        def work(function: Callable[[], Awaitable[Any]]) -> Any:
            gate.wait()
            return asyncio.run(guarded(function))

        with ThreadPoolExecutor(len(functions)) as pool:
            return list(pool.map(work, functions))

    return run


@pytest.mark.usefixtures("clock")  # so that the wait for another worker never times out
@pytest.mark.django_db(transaction=True)
def test_one_of_several_workers_sends_the_refresh_token(together: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authorization server ends the grant when a refresh token comes twice."""
    monkeypatch.setattr(oauth, "CHECK_INTERVAL_SECONDS", 0.01)
    ada = User.objects.create_user("ada")
    grant(ada)
    authority, server = Authority(), Server("a1-s3cret")
    workers = [credential(authority, ada) for _ in range(4)]
    assert together([lambda auth=auth: call(auth, server) for auth in workers]) == [200] * 4  # type: ignore[misc]
    assert authority.refreshes == 1
    assert authority.live == "r1"
    found = kept(ada)
    assert found is not None
    assert found.refresh_token == "r1"


@pytest.mark.usefixtures("clock")  # so that the wait for another worker never times out
@pytest.mark.django_db(transaction=True)
def test_workers_whose_token_was_refused_renew_once(together: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "CHECK_INTERVAL_SECONDS", 0.01)
    ada = User.objects.create_user("ada")
    grant(ada, expires_at=None)
    authority, server = Authority(), Server("a1-s3cret")
    workers = [credential(authority, ada) for _ in range(4)]
    assert together([lambda auth=auth: call(auth, server) for auth in workers]) == [200] * 4  # type: ignore[misc]
    assert authority.refreshes == 1


def token_of(user: Any) -> str | None:
    """A function of a project."""
    return TOKENS.pop(0) if TOKENS else None


TOKENS: list[str] = []


def test_a_bearer_token_is_sent() -> None:
    auth = create_auth(settings(type="bearer", token="t"))
    assert isinstance(auth, BearerAuth)
    server = Server("t")
    assert async_to_sync(call)(auth, server) == 200
    assert async_to_sync(call)(auth, server, "https://evil.example/mcp") == 401
    assert server.shown == ["t", ""]


def test_a_token_function_is_called_again_when_its_token_is_refused(ada: User) -> None:
    auth = create_auth(settings(type="bearer", token_function=f"{__name__}.token_of", per="user"), ada)
    TOKENS[:] = ["first", "second"]
    server = Server("second")
    assert async_to_sync(call)(auth, server) == 200
    assert server.shown == ["first", "second"]
    TOKENS.clear()
    server.good.clear()
    with pytest.raises(AuthorizationNeeded):
        async_to_sync(call)(auth, server)


async def failing(user: Any) -> str:
    """A function of a project that fails."""
    raise OSError("s3cret")


def test_a_function_that_fails_is_a_failure_of_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    auth = create_auth(settings(type="bearer", token_function=f"{__name__}.failing"))
    with pytest.raises(ClientConnectionError) as caught:
        async_to_sync(call)(auth, Server())
    assert "s3cret" not in str(caught.value)
    assert "TOKEN_FUNCTION of one failed" in caplog.text


def test_the_page_is_below_the_projects_prefix(ada: User, settings: Settings) -> None:
    settings.FORCE_SCRIPT_NAME = "/shop/"
    with pytest.raises(AuthorizationNeeded) as caught:
        async_to_sync(call)(credential(Authority(), ada), Server())
    assert caught.value.url == "/shop/mcp/clients/one/connect/"


def test_a_credential_of_users_needs_one() -> None:
    for user in (None, User()):
        with pytest.raises(AuthorizationNeeded):
            create_auth(settings(), user)
