"""Sockets of pages of this site that their session opens, in a router of Channels."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.auth import AuthMiddlewareStack
from django.contrib.auth.models import AnonymousUser, User
from django.test import Client, override_settings

from mcp_django.models import PersonalAccessToken
from mcp_django.transports.websocket import Consumer
from tests.transports.sockets import Socket

SITE = "http://127.0.0.1:8000"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    with override_settings(MCP={"AUTH": ["session", "token"]}, ALLOWED_HOSTS=["127.0.0.1"]):
        yield


def routed(auth: Any = "session") -> Any:
    """The route of a project, inside the usual middleware."""
    return AuthMiddlewareStack(Consumer.as_asgi(auth=auth))


def log_in() -> Client:
    page = Client()
    page.force_login(User.objects.get_or_create(username="alice")[0])
    return page


async def cookie() -> dict[str, str]:
    page = await sync_to_async(log_in)()
    return {"cookie": f"sessionid={page.cookies['sessionid'].value}"}


async def test_a_logged_in_page_opens_a_socket() -> None:
    socket = Socket(routed(), "/assistant/ws", {**await cookie(), "origin": SITE})
    assert await socket.accepted() is None
    assert "result" in await socket.request("tools/list")
    socket.leave()
    await socket.finish()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:9000"}, 403),  # Another site of this machine.
        ({"origin": "https://127.0.0.1:8000"}, 403),
        ({"origin": "null"}, 403),
        ({}, 401),  # A program: every browser sends an Origin.
    ],
)
async def test_a_page_of_another_origin_opens_no_socket_with_a_cookie(headers: dict[str, str], status: int) -> None:
    denial = await Socket(routed(), "/assistant/ws", {**await cookie(), **headers}).denied()
    assert denial.status == status


async def test_a_page_without_a_login_is_refused_with_a_hint_at_tickets() -> None:
    for headers in ({"origin": SITE}, {"origin": SITE, "cookie": "sessionid=invented"}):
        denial = await Socket(routed(), "/assistant/ws", headers).denied()
        assert denial.status == 401
        assert "/ws-ticket" in json.loads(denial.body)["error"]["message"]
        assert denial.headers["www-authenticate"].startswith("Bearer ")
        assert "error" not in denial.headers["www-authenticate"]


async def test_a_route_without_the_option_ignores_the_session_and_names_the_ticket() -> None:
    denial = await Socket(routed(None), "/assistant/ws", {**await cookie(), "origin": SITE}).denied()
    assert denial.status == 401
    assert "/ws-ticket" in json.loads(denial.body)["error"]["message"]


async def test_a_project_without_sessions_in_auth_ignores_them() -> None:
    with override_settings(MCP={"AUTH": "token"}):
        denial = await Socket(routed(), "/assistant/ws", {**await cookie(), "origin": SITE}).denied()
    assert denial.status == 401


async def test_the_user_of_the_middleware_of_the_project_counts() -> None:
    """A project may refuse the user of a session."""
    for user in (AnonymousUser(), await User.objects.acreate(username="bob")):
        denial = await Socket(
            Consumer.as_asgi(auth="session"), "/assistant/ws", {**await cookie(), "origin": SITE}, user=user
        ).denied()
        assert denial.status == 403


async def test_the_socket_ends_with_the_login() -> None:
    page = await sync_to_async(log_in)()
    headers = {"cookie": f"sessionid={page.cookies['sessionid'].value}", "origin": SITE}
    socket = Socket(routed(), "/assistant/ws", headers)
    assert await socket.accepted() is None
    assert "result" in await socket.request("tools/list")
    await sync_to_async(page.logout)()
    socket.post({"jsonrpc": "2.0", "id": 99, "method": "ping"})
    assert (await socket.closed())[0] == 4401


async def test_a_token_opens_the_socket() -> None:
    def issue() -> str:
        user, _ = User.objects.get_or_create(username="alice")
        return PersonalAccessToken.issue(user=user, name="one", expires=None)[1]

    token = await sync_to_async(issue)()
    socket = Socket(routed(), "/assistant/ws", {"authorization": f"Bearer {token}"})
    assert await socket.accepted() is None
    socket.leave()
    await socket.finish()


def test_another_kind_of_authentication_is_a_configuration_error() -> None:
    with pytest.raises(ValueError, match="'cookie' is invalid"):
        Consumer(auth="cookie")  # type: ignore[arg-type]
