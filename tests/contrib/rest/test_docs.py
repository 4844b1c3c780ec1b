"""The examples of docs/expose/rest.md, declared and called."""

import sys
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, Permission, User

from mcp_django.server.options import ServerOptions
from mcp_django.server.primitives import registry
from mcp_django.server.server import Server
from tests.contrib.rest.library_api import principal
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, ports

BLOCKS = python_blocks(ROOT / "docs" / "expose" / "rest.md")


def server_of(found: registry.Registry) -> Server:
    assert not found.problems
    return Server("docs", "1", registry=found, ports=ports(), options=ServerOptions())


@pytest.mark.django_db
@pytest.mark.urls("tests.library.urls")
def test_the_examples_are_served_and_do_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
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
    _, found = served_by(BLOCKS[1], monkeypatch)
    client = PipelineClient(server_of(found), principal=principal(ada))
    assert async_to_sync(client.names)() == ["team_list"], "what the view would refuse is hidden"
    ada.user_permissions.add(Permission.objects.get(codename="add_group"))
    ada = User.objects.get(pk=ada.pk)
    client = PipelineClient(server_of(found), principal=principal(ada))
    assert async_to_sync(client.names)() == ["found_team", "team_invite", "team_list"]
