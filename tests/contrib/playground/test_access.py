"""Runs of the playground whose operator loses access: logout, deactivation, permissions, and the acting user."""

from importlib import import_module

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.test import Client, RequestFactory

from mcp_django import Server
from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.principal import ALL_SCOPES, run_in_thread
from mcp_django.contrib.playground.primitives import KINDS, ListedPrimitive
from mcp_django.contrib.playground.principals import build_principal
from mcp_django.contrib.playground.runs.operations import RunTarget
from mcp_django.contrib.playground.runs.operator_access import OperatorAccess
from mcp_django.contrib.playground.runs.streams import MEDIA_TYPE
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS
from mcp_django.transports.credential_monitor import check_all_loops
from mcp_django.wiring import create_authenticator
from tests.contrib.playground.runs.test_streams import LiveRun, Waiting, server, to_async, waiting
from tests.contrib.playground.test_playground import ALIAS, READS, build_url, change, log_in
from tests.support.waiting import eventually, wait_until

__all__ = ["change", "server", "waiting"]
pytestmark = pytest.mark.django_db(transaction=True)


def set_operator(**values: bool) -> None:
    User.objects.filter(username="staff").update(**values)


def set_permission(codename: str, *, has_it: bool, name: str = "staff") -> None:
    permissions = User.objects.get(username=name).user_permissions
    (permissions.add if has_it else permissions.remove)(Permission.objects.get(codename=codename))


@pytest.fixture
def operator(server: Server) -> Client:
    User.objects.create_user("ada")
    return log_in("use_playground", "use_playground_as")


def test_access_is_what_the_next_request_would_get(operator: Client) -> None:
    ada, staff = (User.objects.get(username=name) for name in ("ada", "staff"))
    request = RequestFactory().get("/")
    request.user = staff
    target = RunTarget(ALIAS, build_principal(ada, staff), KINDS["tools"], ListedPrimitive("ask", {}))
    by_middleware = OperatorAccess(request, target)
    engine = import_module(settings.SESSION_ENGINE)
    request.session = engine.SessionStore(operator.cookies[settings.SESSION_COOKIE_NAME].value)
    by_login = OperatorAccess(request, target)

    def find_valid() -> tuple[bool, bool]:
        return async_to_sync(by_login.is_valid)(), async_to_sync(by_middleware.is_valid)()

    for change_value in (
        lambda has: set_operator(is_active=has),
        lambda has: set_operator(is_staff=has),
        lambda has: set_permission("use_playground", has_it=has),
        lambda has: set_permission("use_playground_as", has_it=has),
        lambda has: User.objects.filter(username="ada").update(is_active=has),
        lambda has: set_permission("delete_user", has_it=not has, name="ada"),
    ):
        assert find_valid() == (True, True)
        change_value(False)
        assert find_valid() == (False, False)
        change_value(True)
    Session.objects.all().delete()
    assert find_valid() == (False, True)


async def test_a_run_ends_with_the_access_of_its_operator(operator: Client, waiting: Waiting) -> None:
    live = LiveRun(to_async(operator), build_url("wait", **{"as": "ada"}))
    await live.start()
    await live.wait_for("message")
    await eventually(lambda: waiting.has_started)
    await sync_to_async(Session.objects.all().delete)()
    check_all_loops()
    assert await live.wait_for("revoked")
    assert waiting.is_cancelled
    assert [event async for event in live._lines] == []


async def test_a_question_ends_with_the_access_of_its_operator(operator: Client) -> None:
    live = LiveRun(to_async(operator), build_url("ask", **{"as": "ada"}))
    await live.start(revision=HANDSHAKE_VERSIONS[-1])
    question = await live.wait_for("question")
    await sync_to_async(set_operator)(is_active=False)
    check_all_loops()
    assert await live.wait_for("revoked")
    await sync_to_async(set_operator)(is_active=True)
    assert (await live.reply(question, decision="decline"))["status"] == 410


def test_a_run_under_wsgi_ends_with_the_access_of_its_operator(operator: Client, waiting: Waiting) -> None:
    lines = iter(operator.post(build_url("wait"), {"act": "send"}, headers={"Accept": MEDIA_TYPE}))
    next(lines)
    wait_until(lambda: waiting.has_started)
    set_permission("use_playground", has_it=False)
    check_all_loops()
    assert [line for line in lines if line.strip()] == [b'{"kind":"revoked"}\n']
    assert waiting.is_cancelled


def test_a_run_without_a_script_ends_with_the_access_of_its_operator(operator: Client, server: Server) -> None:
    @server.tool(annotations=READS)
    async def revoke() -> str:
        await sync_to_async(set_permission)("use_playground", has_it=False)
        check_all_loops()
        await eventually(lambda: False)
        return "never"

    assert operator.post(build_url("revoke"), {"act": "send"}).status_code == 403


def test_a_task_needs_the_access_of_its_operator(operator: Client) -> None:
    ada, staff = (User.objects.get(username=name) for name in ("ada", "staff"))
    reload = async_to_sync(create_authenticator(ALIAS).reload)
    for user in (ada, staff):
        principal = build_principal(user, staff)
        assert reload(principal, run_in_thread).scopes is ALL_SCOPES
    set_permission("use_playground_as", has_it=False)
    with pytest.raises(AuthError):
        reload(build_principal(User.objects.get(username="ada"), User.objects.get(username="staff")), run_in_thread)
