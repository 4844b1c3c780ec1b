"""Tickets: a page opens a socket once, within seconds, with a credential that it cannot put into a handshake."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient, Client, override_settings

from mcp_django.asgi import mount
from mcp_django.auth.authentication import tickets
from mcp_django.models import PersonalAccessToken
from tests.support.clock import Clock
from tests.transports.sockets import Socket

SECRET = "a" * 32
SERVERS = {"default": {}, "shop": {}}
pytestmark = pytest.mark.django_db(transaction=True)


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """There is nothing beside the endpoints."""


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    with override_settings(MCP={"AUTH": ["session", "token"], "SERVERS": SERVERS}):
        yield


def issue() -> str:
    user, _ = User.objects.get_or_create(username="alice")
    return PersonalAccessToken.issue(user=user, name="one", expires=None)[1]


async def ticket(token: str, path: str = "/mcp") -> str:
    reply = await AsyncClient().post(f"{path}/ws-ticket", headers={"authorization": f"Bearer {token}"})
    assert reply.status_code == 200
    assert reply.headers["Cache-Control"] == "no-store"
    body = json.loads(reply.content)
    assert body["expires_in"] == 30
    assert token not in body["ticket"]
    return str(body["ticket"])


def socket(query: str, path: str = "/mcp/ws", **headers: str) -> Socket:
    return Socket(mount(nothing), path, headers, query_string=query.encode())


async def status(opened: Socket) -> int:
    """101 when the socket was accepted."""
    denial = await opened.denied()
    return int(denial.status)


async def is_open(opened: Socket) -> bool:
    assert await opened.accepted() is None
    found = "result" in await opened.request("tools/list")
    opened.leave()
    await opened.finish()
    return found


async def test_a_ticket_opens_a_socket_once() -> None:
    found = await ticket(await sync_to_async(issue)())
    assert await is_open(socket(f"ticket={found}"))
    assert await status(socket(f"ticket={found}")) == 401


async def test_requests_for_tickets_count_against_the_rate_of_an_address() -> None:
    token = await sync_to_async(issue)()
    with override_settings(MCP={"AUTH": "token", "RATES": {"ADDRESS": "2/h"}}):
        headers = {"authorization": f"Bearer {token}"}
        replies = [await AsyncClient().post("/mcp/ws-ticket", headers=headers) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [200, 200, 429]
    assert int(replies[-1].headers["Retry-After"]) > 0


async def test_a_ticket_is_valid_for_its_server_only() -> None:
    found = await ticket(await sync_to_async(issue)())
    assert await status(socket(f"ticket={found}", "/mcp/shop/ws")) == 401


async def test_a_ticket_is_valid_for_seconds(clock: Clock) -> None:
    found = await ticket(await sync_to_async(issue)())
    await clock.advance(tickets.TICKET_LIFETIME_SECONDS + 1)
    assert await status(socket(f"ticket={found}")) == 401


async def test_an_invalid_ticket_opens_no_socket(subtests: pytest.Subtests) -> None:
    for query in ["ticket=", "ticket=abc", "ticket=%00", "ticket=%ff", "ticket=a&ticket=b", "ticket"]:
        with subtests.test(query=query):
            assert await status(socket(query)) == 401


async def test_two_tickets_open_no_socket() -> None:
    found = await ticket(await sync_to_async(issue)())
    assert await status(socket(f"ticket={found}&ticket={found}")) == 401


async def test_a_ticket_of_a_revoked_token_opens_no_socket() -> None:
    found = await ticket(await sync_to_async(issue)())
    await sync_to_async(lambda: PersonalAccessToken.objects.get().revoke())()
    assert await status(socket(f"ticket={found}")) == 401


async def test_the_socket_ends_with_the_token_that_the_ticket_was_made_with() -> None:
    found = await ticket(await sync_to_async(issue)())
    opened = socket(f"ticket={found}")
    assert await opened.accepted() is None
    assert "result" in await opened.request("tools/list")
    await sync_to_async(lambda: PersonalAccessToken.objects.get().revoke())()
    opened.post({"jsonrpc": "2.0", "id": 99, "method": "ping"})
    assert (await opened.closed())[0] == 4401


async def test_an_access_token_in_the_query_is_refused(subtests: pytest.Subtests) -> None:
    for name in ["access_token", "token"]:
        with subtests.test(name=name):
            token = await sync_to_async(issue)()
            assert await status(socket(f"{name}={token}")) == 401
            assert await status(socket(f"ticket={token}")) == 401


async def test_a_ticket_together_with_a_token_is_refused() -> None:
    token = await sync_to_async(issue)()
    found = await ticket(token)
    assert await status(socket(f"ticket={found}", authorization=f"Bearer {token}")) == 400


async def test_a_cookie_alone_opens_no_socket() -> None:
    page = await sync_to_async(logged_in)()
    assert await status(socket("", cookie=f"sessionid={page.cookies['sessionid'].value}")) == 401


def logged_in() -> Client:
    page = Client(headers={"host": "testserver"})
    page.force_login(User.objects.get_or_create(username="alice")[0])
    page.cookies["csrftoken"] = SECRET
    return page


def test_a_page_of_the_site_gets_a_ticket_with_its_session_and_a_csrf_token() -> None:
    page = logged_in()
    assert page.post("/mcp/ws-ticket").status_code == 403
    reply = page.post("/mcp/ws-ticket", headers={"x-csrftoken": SECRET})
    assert reply.status_code == 200

    async def opens() -> bool:
        return await is_open(socket(f"ticket={reply.json()['ticket']}"))

    assert async_to_sync(opens)()


def test_a_ticket_needs_credentials_and_a_post() -> None:
    client = Client(headers={"host": "testserver"})
    assert client.post("/mcp/ws-ticket").status_code == 401
    assert client.get("/mcp/ws-ticket").status_code == 405
    assert client.options("/mcp/ws-ticket").status_code == 204


def test_a_credential_that_is_too_long_gets_no_ticket() -> None:
    token = issue()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcp_django.wiring.process.MAX_TICKET_CHARS", 64)
        with override_settings(MCP={"AUTH": ["token"]}):
            reply = Client(headers={"host": "testserver"}).post(
                "/mcp/ws-ticket", headers={"authorization": f"Bearer {token}"}
            )
    assert reply.status_code == 400


@override_settings(MCP={"AUTH": "none"})
def test_local_callers_need_no_ticket() -> None:
    assert Client(headers={"host": "localhost"}).post("/mcp/ws-ticket").status_code == 404
