"""Accepted and refused sockets, by Host and Origin, subprotocol, credential and limits."""

import json
import logging
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model

from mcp_django import Context, Server
from mcp_django.asgi import mount
from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.models import PersonalAccessToken
from mcp_django.wiring import get_services
from tests.transports.sockets import Socket

PEOPLE = "tests.transports.test_websocket_handshake.known"
UNAVAILABLE_VERIFIER = "tests.transports.test_websocket_handshake.unavailable_verifier"


async def known(token: str, *, resource: Any) -> DjangoPrincipal:
    """A verifier that takes "secret-" and a name for a token."""
    name = token.removeprefix("secret-")
    if name not in ("alice", "bob"):
        raise AuthError("invalid_token", "Nobody is called that")
    return DjangoPrincipal(issuer="tests", subject=name)


async def unavailable_verifier(token: str, *, resource: Any) -> Any:
    """A verifier whose backend is down."""
    raise RuntimeError("no backend")


@pytest.fixture(autouse=True)
def _open(settings: Any, db: None) -> None:
    settings.ALLOWED_HOSTS = ["127.0.0.1", "mcp.example"]
    settings.MCP = {"AUTH": PEOPLE}


async def inner(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("not for the application")


def a_server() -> Server:
    server = Server("told")

    @server.tool
    async def who(ctx: Context) -> dict[str, Any]:
        return {
            "subject": ctx.principal.subject,
            "headers": dict(ctx.headers),
            "request": dict(ctx.request.headers),
            "listed": ctx.request.scope["subprotocols"],
            "user": ctx.request.user.get_username() if ctx.request.user.is_authenticated else None,
        }

    return server


def open_socket(headers: Any = (), **scope: Any) -> Socket:
    return Socket(mount(inner, servers={"mcp": a_server()}), "/mcp/ws", headers, **scope)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer secret-{token}"}


def offer(*protocols: str) -> dict[str, str]:
    return {"sec-websocket-protocol": ", ".join(protocols)}


async def test_a_token_in_the_header_opens_a_socket() -> None:
    socket = open_socket(bearer("alice"))
    assert await socket.accepted() is None
    assert (await socket.value("who"))["subject"] == "alice"
    socket.leave()
    await socket.finish()


async def test_the_subprotocol_is_selected_when_it_is_offered(subtests: pytest.Subtests) -> None:
    for offered in [["mcp"], ["mcp", "other"], ["v1.other", "mcp"]]:
        with subtests.test(offered=offered):
            socket = open_socket(bearer("alice") | offer(*offered))
            assert await socket.accepted() == "mcp"
            socket.leave()
            await socket.finish()


async def test_subprotocols_in_the_scope_only_are_read() -> None:
    socket = open_socket(bearer("alice"), subprotocols=["mcp"])
    assert await socket.accepted() == "mcp"
    socket.leave()
    await socket.finish()


async def test_a_client_that_offers_other_subprotocols_only_is_refused(subtests: pytest.Subtests) -> None:
    for offered in [["other"], ["MCP"], ["mcp.bearer.secret-alice"], ["mcp2", "graphql-ws"]]:
        with subtests.test(offered=offered):
            denial = await open_socket(offer(*offered)).denied()
            assert denial.status == 400
            assert b'"mcp"' in denial.body
            assert b"secret" not in denial.body


async def test_a_token_among_the_subprotocols_opens_a_socket_and_is_not_exposed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    socket = open_socket(offer("mcp", "mcp.bearer.secret-alice"))
    assert await socket.accepted() == "mcp"
    seen = await socket.value("who")
    assert seen["subject"] == "alice"
    assert "secret" not in json.dumps(seen["headers"])
    assert seen["headers"]["sec-websocket-protocol"] == "mcp"
    assert seen["request"]["Sec-Websocket-Protocol"] == "mcp"
    assert "Authorization" not in seen["request"]
    assert seen["listed"] == ["mcp"]
    socket.leave()
    await socket.finish()
    assert "secret" not in caplog.text


async def test_two_tokens_are_refused(subtests: pytest.Subtests) -> None:
    for headers in [
        {**bearer("alice"), **offer("mcp", "mcp.bearer.secret-alice")},
        offer("mcp", "mcp.bearer.secret-alice", "mcp.bearer.secret-bob"),
        [*offer("mcp", "mcp.bearer.secret-alice").items(), *offer("mcp.bearer.secret-bob").items()],
        [("authorization", "Bearer secret-alice"), ("authorization", "Bearer secret-bob")],
    ]:
        with subtests.test(headers=headers):
            denial = await open_socket(headers).denied()
            assert denial.status == 400
            assert 'error="invalid_request"' in denial.headers["www-authenticate"]
            assert json.loads(denial.body)["error"]["code"] == -32600
            assert b"secret" not in denial.body


async def test_without_a_token_a_socket_is_refused_with_a_challenge(subtests: pytest.Subtests) -> None:
    for headers in [{}, offer("mcp"), {"cookie": "sessionid=secret-alice"}]:
        with subtests.test(headers=headers):
            denial = await open_socket(headers).denied()
            assert denial.status == 401
            assert denial.headers["www-authenticate"].startswith("Bearer ")
            assert denial.headers["cache-control"] == "no-store"
            assert denial.headers["content-length"] == str(len(denial.body))


async def test_an_invalid_token_is_refused(subtests: pytest.Subtests) -> None:
    for headers in [bearer("mallory"), offer("mcp", "mcp.bearer.secret-mallory"), bearer("ü")]:
        with subtests.test(headers=headers):
            denial = await open_socket(headers).denied()
            assert denial.status == 401
            assert 'error="invalid_token"' in denial.headers["www-authenticate"]
            assert b"mallory" not in denial.body


async def test_a_token_in_the_query_is_ignored() -> None:
    denial = await open_socket(query_string=b"access_token=secret-alice").denied()
    assert denial.status == 401


async def test_an_unavailable_backend_is_not_an_invalid_token(settings: Any) -> None:
    settings.MCP = {"AUTH": UNAVAILABLE_VERIFIER}
    denial = await open_socket(bearer("alice")).denied()
    assert denial.status == 503
    assert int(denial.headers["retry-after"]) >= 1


async def test_host_and_origin_are_checked_before_the_token(subtests: pytest.Subtests) -> None:
    for headers in [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}]:
        with subtests.test(headers=headers):
            denial = await open_socket({**bearer("mallory"), **headers}).denied()
            assert denial.status == 403
            assert "www-authenticate" not in denial.headers


async def test_pages_of_the_site_and_of_loopback_get_a_socket(subtests: pytest.Subtests) -> None:
    for origin in ["https://mcp.example", "http://localhost:3000"]:
        with subtests.test(origin=origin):
            socket = open_socket({"host": "mcp.example", "origin": origin, **offer("mcp", "mcp.bearer.secret-alice")})
            assert await socket.accepted() == "mcp"
            socket.leave()
            await socket.finish()


async def test_a_server_without_the_denial_extension_closes_the_socket() -> None:
    assert (await open_socket(extensions={}).denied()).status == 403
    assert (await open_socket(extensions=None).denied()).status == 403


async def test_a_caller_through_a_proxy_is_not_local(settings: Any) -> None:
    settings.MCP = {"AUTH": "none"}
    denial = await open_socket({"x-forwarded-for": "10.0.0.1"}).denied()
    assert denial.status == 403
    denial = await open_socket(client=("10.0.0.1", 1)).denied()
    assert denial.status == 403
    socket = open_socket()
    assert await socket.accepted() is None
    socket.leave()
    await socket.finish()


async def test_sockets_count_as_streams_of_their_owner(settings: Any) -> None:
    settings.MCP = {"AUTH": PEOPLE, "LIMITS": {"MAX_STREAMS_PER_OWNER": 1}}
    first = open_socket(bearer("alice"))
    await first.accepted()
    second = await open_socket(bearer("alice")).denied()
    assert second.status in (429, 503)
    assert int(second.headers["retry-after"]) >= 1
    assert json.loads(second.body)["error"]["code"] == -32603
    other = open_socket(bearer("bob"))
    await other.accepted()
    first.leave()
    await first.finish()
    third = open_socket(bearer("alice"))
    await third.accepted()
    for socket in (other, third):
        socket.leave()
        await socket.finish()
    assert not len(get_services().stream_limiter)


async def test_no_socket_is_accepted_during_shutdown() -> None:
    await get_services().lifecycle.shutdown()
    try:
        denial = await open_socket(bearer("alice")).denied()
    finally:
        await get_services().lifecycle.startup([])
    assert denial.status == 503
    assert "retry-after" in denial.headers


async def test_a_disconnect_before_the_accept_releases_the_socket() -> None:
    socket = open_socket(bearer("alice"))
    socket.leave()
    await socket.finish()
    assert not len(get_services().stream_limiter)


async def test_a_personal_token_opens_a_socket(settings: Any) -> None:
    settings.MCP = {"AUTH": "token"}
    user = await get_user_model().objects.acreate_user("ann")
    _, secret = await sync_to_async(PersonalAccessToken.issue)(user=user, name="laptop", expires=None)
    socket = open_socket(offer("mcp", f"mcp.bearer.{secret}"))
    assert await socket.accepted() == "mcp"
    seen = await socket.value("who")
    assert (seen["subject"], seen["user"]) == (str(user.pk), "ann")
    socket.leave()
    await socket.finish()


async def test_the_user_of_local_callers_is_read_again(settings: Any) -> None:
    settings.MCP = {"AUTH": "none", "LOCAL_USER": "ann"}
    user = await get_user_model().objects.acreate_user("ann")
    socket = open_socket()
    assert await socket.accepted() is None
    assert (await socket.value("who"))["user"] == "ann"
    user.is_active = False
    await user.asave()
    refused = await socket.request("tools/call", {"name": "who", "arguments": {}})
    assert "cannot be verified" in refused["error"]["message"]
    user.is_active = True
    await user.asave()
    assert (await socket.value("who"))["user"] == "ann"
    socket.leave()
    await socket.finish()


async def test_a_refusal_after_a_disconnect_is_not_an_error() -> None:
    async def send(event: Any) -> None:
        raise RuntimeError("closed")

    socket = open_socket()
    socket._send = send  # type: ignore[method-assign]
    await socket.finish()
