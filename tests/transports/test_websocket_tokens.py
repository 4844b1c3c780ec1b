"""Tokens over WebSocket, and the end of a socket whose token is invalid."""

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.utils import timezone

from mcp_django.asgi import mount
from mcp_django.models import PersonalAccessToken
from tests.support.clock import Clock
from tests.transports.sockets import Socket

FORMS = ["header", "subprotocol"]


@pytest.fixture(autouse=True)
def _open(settings: Any, db: None) -> None:
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    settings.ROOT_URLCONF = "tests.interaction.urls"
    settings.MCP = {"AUTH": "token", "TOKEN_CACHE_SECONDS": 0, "SERVERS": {"default": {}, "other": {"NAME": "other"}}}


def _issued(**how: Any) -> tuple[PersonalAccessToken, str]:
    user, _ = User.objects.get_or_create(username="ann")
    return PersonalAccessToken.issue(**{"user": user, "name": "laptop", "expires": None, **how})


issued = sync_to_async(_issued)


def open_socket(token: str | None, form: str = "header", where: str = "/mcp/ws", **scope: Any) -> Socket:
    """Open a socket with a token in either of its forms."""
    headers = {"authorization": f"Bearer {token}"}
    if form == "subprotocol":
        headers = {"sec-websocket-protocol": f"mcp, mcp.bearer.{token}"}
    return Socket(mount(get_asgi_application()), where, headers if token else {}, **scope)


async def open_used_socket(token: str, form: str = "header") -> Socket:
    """A socket that is used, and was seen to be good."""
    socket = open_socket(token, form)
    assert await socket.accepted() == ("mcp" if form == "subprotocol" else None)
    assert "result" in await socket.request("tools/list")
    return socket


async def test_a_token_for_one_server_opens_only_its_sockets(subtests: pytest.Subtests) -> None:
    for form in FORMS:
        with subtests.test(form=form):
            _, token = await issued(audience="default")
            socket = await open_used_socket(token, form)
            socket.leave()
            await socket.finish()
            denial = await open_socket(token, form, "/mcp/other/ws").denied()
            assert denial.status == 401
            assert 'error="invalid_token"' in denial.headers["www-authenticate"]


async def test_an_invalid_token_opens_no_socket_and_the_reason_is_not_sent(subtests: pytest.Subtests) -> None:
    past = timezone.now() - timedelta(seconds=1)
    for why in ("revoked", "expired", "deactivated"):  # the user remains deactivated, so this comes last
        for form in FORMS:
            with subtests.test(why=why, form=form):
                row, token = await issued(expires=past if why == "expired" else None)
                if why == "revoked":
                    await sync_to_async(row.revoke)()
                if why == "deactivated":
                    await User.objects.aupdate(is_active=False)
                denial, unknown = (
                    await open_socket(token, form).denied(),
                    await open_socket(f"{token[:-1]}x", form).denied(),
                )
                assert denial.status == unknown.status == 401
                assert (denial.headers, denial.body) == (unknown.headers, unknown.body)


async def test_a_message_with_a_revoked_token_closes_the_socket() -> None:
    row, token = await issued()
    socket = await open_used_socket(token)
    await sync_to_async(row.revoke)()
    socket.start("tools/list")
    assert await socket.closed() == (4401, "The credential has expired or was revoked")


async def test_a_silent_socket_is_closed_soon_after_its_token_is_revoked(clock: Clock) -> None:
    row, token = await issued()
    socket = await open_used_socket(token)
    await sync_to_async(row.revoke)()
    await clock.advance_until(socket.task.done)
    assert (await socket.closed())[0] == 4401


async def test_a_silent_socket_is_closed_when_its_token_expires(clock: Clock) -> None:
    _, token = await issued(expires=timezone.now() + timedelta(seconds=60))
    socket = await open_used_socket(token)
    await clock.advance(59)
    assert not socket.task.done()
    await clock.advance_until(socket.task.done)
    assert (await socket.closed())[0] == 4401


async def test_a_socket_is_closed_when_its_user_is_deactivated() -> None:
    _, token = await issued()
    socket = await open_used_socket(token)
    user = await User.objects.aget()
    user.is_active = False
    await user.asave()
    socket.start("tools/list")
    assert (await socket.closed())[0] == 4401


async def test_a_socket_is_closed_when_its_token_has_lost_a_scope() -> None:
    row, token = await issued(scopes=["a", "b"])
    socket = await open_used_socket(token)
    row.scopes = ["a"]
    await row.asave()
    socket.start("tools/list")
    assert await socket.closed() == (4403, "The credential has lost rights")


async def test_a_page_of_another_origin_opens_no_socket_with_any_token(subtests: pytest.Subtests) -> None:
    for origin in ["https://evil.example", "null", "http://127.0.0.1.evil.example"]:
        with subtests.test(origin=origin):
            _, token = await issued()
            headers = {"authorization": f"Bearer {token}", "origin": origin}
            denial = await Socket(mount(get_asgi_application()), "/mcp/ws", headers).denied()
            assert denial.status == 403
            assert "www-authenticate" not in denial.headers


async def test_a_token_in_the_query_opens_no_socket(subtests: pytest.Subtests) -> None:
    for name in ["access_token", "token", "bearer", "ticket", "authorization"]:
        with subtests.test(name=name):
            _, token = await issued()
            denial = await open_socket(None, query_string=f"{name}={token}".encode()).denied()
            assert denial.status == 401
            assert token.encode() not in denial.body
