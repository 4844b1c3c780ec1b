"""The examples of docs/expose/rest.md and rest-routers.md, declared and called."""

import sys
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, Permission, User
from rest_framework.routers import SimpleRouter

from mcp_django.server.options import ServerOptions
from mcp_django.server.primitives import registry
from mcp_django.server.server import Server
from tests.contrib.rest.library_api import principal
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, ports

BLOCKS = python_blocks(ROOT / "docs" / "expose" / "rest.md")
ROUTER_BLOCKS = python_blocks(ROOT / "docs" / "expose" / "rest-routers.md")


def server_of(found: registry.Registry) -> Server:
    assert not found.problems
    return Server("docs", "1", registry=found, ports=ports(), options=ServerOptions())


@pytest.mark.django_db
@pytest.mark.urls("tests.library.urls")
def test_the_examples_are_served_and_work(monkeypatch: pytest.MonkeyPatch) -> None:
    ada = User.objects.create_user("ada", email="ada@example.com")
    group = Group.objects.create(name="Pilots")
    ada.groups.add(group)
    module, found = served_by(BLOCKS[0], monkeypatch)
    client = PipelineClient(server_of(found), principal=principal(ada))

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        return async_to_sync(client.call)(tool, **arguments)

    assert async_to_sync(client.names)() == ["group_create", "group_list", "group_members", "group_retrieve"]
    assert call("group_list", search="pil")["structuredContent"]["count"] == 1
    members = call("group_members", pk=group.pk)["structuredContent"]["result"]
    assert [member["username"] for member in members] == ["ada"]
    assert call("group_create", name="Crew")["_meta"]["mcp-django/status"] == 403

    package, views = ModuleType("directory"), module
    monkeypatch.setitem(sys.modules, "directory", package)
    monkeypatch.setitem(sys.modules, "directory.views", views)
    api = ModuleType("directory.api")
    api.router, api.admin_router, api.branch_router = (SimpleRouter() for _ in range(3))  # type: ignore[attr-defined]
    for router, basename in ((api.router, "group"), (api.admin_router, "token"), (api.branch_router, "member")):
        router.register("groups", module.GroupViewSet, basename=basename)
    api.admin_router.register("teams", module.GroupViewSet, basename="team")
    api.admin_router.register("notes", module.GroupViewSet, basename="internal-note")
    monkeypatch.setitem(sys.modules, "directory.api", api)
    _, found = served_by(ROUTER_BLOCKS[0], monkeypatch)
    names = [tool.name for tool in server_of(found).registry.tools]
    assert names[:2] == ["admin_team_create", "admin_team_destroy"]
    assert names[-2:] == ["group_list", "group_retrieve"]
    _, found = served_by(ROUTER_BLOCKS[1], monkeypatch)
    client = PipelineClient(server_of(found), principal=principal(ada))
    assert call("member_list")["structuredContent"]["count"] == 1

    _, found = served_by(BLOCKS[1], monkeypatch)
    client = PipelineClient(server_of(found), principal=principal(ada))
    assert async_to_sync(client.names)() == ["team_list"], "what the view would refuse is hidden"
    ada.user_permissions.add(Permission.objects.get(codename="add_group"))
    ada = User.objects.get(pk=ada.pk)
    client = PipelineClient(server_of(found), principal=principal(ada))
    assert async_to_sync(client.names)() == ["found_team", "team_invite", "team_list"]
