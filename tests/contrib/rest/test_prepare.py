"""`prepare=`: attributes of the request that a view expects of middleware or a router."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest
from django.urls import path
from rest_framework import permissions, serializers, viewsets
from rest_framework.response import Response
from rest_framework.views import APIView

from mcp_django import Server
from mcp_django.contrib.rest import add_session, expose
from mcp_django.schema import DeclarationError
from tests.contrib.rest.library_api import anonymous, peer
from tests.server.client import PipelineClient, make_server

TENANT: ContextVar[str] = ContextVar("TENANT")


class SessionIsValid(permissions.BasePermission):
    """Permission by the request's session, as some projects have it."""

    def has_permission(self, request: Any, view: Any) -> bool:
        is_valid = request.session.get("failures", 0) == 0
        request.session["last_used"] = 1
        return is_valid


class TenantSerializer(serializers.Serializer):
    name = serializers.CharField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields[TENANT.get()] = serializers.IntegerField()


class Tenants(viewsets.GenericViewSet):
    permission_classes = (SessionIsValid,)
    serializer_class = TenantSerializer

    def list(self, request: Any) -> Response:
        return Response({"tenant": TENANT.get(), "site": request.site, "used": request.session["last_used"]})

    def create(self, request: Any) -> Response:
        self.get_serializer(data=request.data).is_valid(raise_exception=True)
        return Response(request.data)


@contextlib.contextmanager
def enter_tenant(request: HttpRequest) -> Iterator[None]:
    add_session(request)
    request.site = "north"
    token = TENANT.set("crew")
    try:
        yield
    finally:
        TENANT.reset(token)


urlpatterns = [path("tenants/", Tenants.as_view({"get": "list", "post": "create"}))]
pytestmark = pytest.mark.urls(__name__)


def served(view: Any, **options: Any) -> Server:
    server = make_server()
    expose(view, server=server, actions="__all__", prefix="tenant_", **options)
    return server


async def test_a_view_finds_what_the_function_has_set_and_runs_inside_its_context_manager() -> None:
    client = PipelineClient(served(Tenants, prepare=enter_tenant))
    assert await client.text("tenant_list") == '{"tenant":"crew","site":"north","used":1}'
    assert TENANT.get("no tenant") == "no tenant"


async def test_schemas_are_read_from_a_prepared_request() -> None:
    client = PipelineClient(served(Tenants, prepare=f"{__name__}.enter_tenant"))
    tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
    assert tools["tenant_create"]["inputSchema"]["required"] == ["name", "crew"]
    assert "crew: This field is required." in await client.error("tenant_create", name="a")


async def test_permissions_that_hide_a_tool_see_a_prepared_request() -> None:
    def log_in(request: HttpRequest) -> None:
        add_session(request)
        request.session["failures"] = 1 if request.user.is_anonymous else 0

    server = served(Tenants, prepare=log_in, hide_denied=True)
    assert await PipelineClient(server, anonymous()).names() == []
    assert await peer(server, User(pk=1, username="ada")).names() == ["tenant_create", "tenant_list"]


async def test_a_function_that_fails_without_a_path_leaves_the_schemas_unprepared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def find_tenant(request: HttpRequest) -> None:
        if not request.resolver_match.route:
            raise AssertionError
        raise Http404("No tenant here")

    client = PipelineClient(served(Tenants, prepare=find_tenant))
    assert "tenant_list" in await client.names()
    assert "Request for the schemas is unprepared" in caplog.text
    assert await client.error("tenant_list") == "No tenant here"


async def test_an_async_view_is_prepared_but_not_surrounded(caplog: pytest.LogCaptureFixture) -> None:
    class Later(APIView):
        @classmethod
        def as_view(cls, **initkwargs: Any) -> Any:
            inner = super().as_view(**initkwargs)

            async def view(request: Any) -> Any:
                return inner(request)

            view.cls, view.initkwargs = inner.cls, inner.initkwargs  # type: ignore[attr-defined]
            return view

        def get(self, request: Any) -> Response:
            return Response({"site": request.site})

    def set_site(request: HttpRequest) -> None:
        request.site = "south"

    server = make_server()
    expose(Later, server=server, prepare=set_site)
    assert await PipelineClient(server).text("later") == '{"site":"south"}'
    server = make_server()
    expose(Later, server=server, prepare=enter_tenant)
    assert "Internal error" in await PipelineClient(server).error("later")
    assert "must not return a context manager" in caplog.text


async def test_a_session_is_empty_and_ends_with_the_call() -> None:
    def count(request: HttpRequest) -> None:
        add_session(request)
        assert not request.session.session_key
        assert not list(request.session.keys())
        request.session.save()
        request.session.flush()
        request.session.cycle_key()
        request.site = ""
        TENANT.set("crew")

    client = PipelineClient(served(Tenants, prepare=count))
    for _ in range(2):
        assert '"used":1' in await client.text("tenant_list")


async def test_without_the_function_there_is_no_session(caplog: pytest.LogCaptureFixture) -> None:
    assert "Internal error" in await PipelineClient(served(Tenants)).error("tenant_list")
    assert "no attribute 'session'" in caplog.text


def test_a_wrong_function_is_refused(subtests: pytest.Subtests) -> None:
    async def later(request: HttpRequest) -> None: ...

    cases = (
        ("tests.nowhere.prepare", "cannot be imported"),
        (later, "give a synchronous function of the request"),
        (7, "prepare=7 is invalid"),
    )
    for value, problem in cases:
        with subtests.test(value=value), pytest.raises(DeclarationError, match=problem):
            served(Tenants, prepare=value)


async def test_another_value_than_a_context_manager_is_a_bug_of_the_project(caplog: pytest.LogCaptureFixture) -> None:
    client = PipelineClient(served(Tenants, prepare=lambda request: 7))
    assert "Internal error" in await client.error("tenant_list")
    assert "return None or a context manager" in caplog.text
