"""The examples of docs/expose/model-writes.md, called."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType

from mcp_django.server.options import ServerOptions
from mcp_django.server.server import Server
from tests.orm.toolsets import principal
from tests.orm.writing import get_error, get_result, user
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, ports

pytestmark = pytest.mark.django_db
BLOCKS = python_blocks(ROOT / "docs" / "expose" / "model-writes.md")


def client(text: str, monkeypatch: pytest.MonkeyPatch, **given: Any) -> PipelineClient:
    (block,) = (block for block in BLOCKS if text in block)
    _, registry = served_by(block, monkeypatch)
    assert not registry.problems
    server = Server("docs", "1", registry=registry, ports=ports(), options=ServerOptions())
    return PipelineClient(server, principal=principal(user()), **given)


def test_the_example_writes_groups_and_not_staff(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def agree(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "accept", "content": {}}

    groups = client("has_change_permission", monkeypatch, answer=agree)
    pk = get_result(groups, "group_create", values={"name": "Editors"})["pk"]
    assert get_result(groups, "group_update", pk=pk, values={"name": "Writers"})["changed"] == ["name"]
    staff = Group.objects.create(name="Staff")
    assert "may not" in get_error(groups, "group_update", pk=staff.pk, values={"name": "x"})
    assert "permissions" in get_error(groups, "group_update", pk=pk, values={"permissions": []})
    get_result(groups, "group_delete", pk=pk)
    assert asked == [f"Delete group Writers ({pk})?"]


def test_the_example_hooks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = client("def save_model", monkeypatch)
    pk = get_result(groups, "group_create", values={"name": "Editors"})["pk"]
    get_result(groups, "group_delete", pk=pk)
    assert not Group.objects.exists()


def test_the_example_has_permissions_as_inlines_of_their_content_type(monkeypatch: pytest.MonkeyPatch) -> None:
    types = client("PermissionInline", monkeypatch)
    kind = ContentType.objects.get_for_model(Group)
    row = get_result(types, "contenttype_get", pk=kind.pk)
    assert [item["codename"] for item in row["permissions"]["items"]][:1] == ["add_group"]
    first = row["permissions"]["items"][0]["pk"]
    inlines = {
        "permissions": {
            "add": [{"name": "Can fly", "codename": "fly"}],
            "change": [{"pk": first, "values": {"name": "Can swim"}}],
        }
    }
    get_result(types, "contenttype_update", pk=kind.pk, inlines=inlines)
    assert Permission.objects.filter(content_type=kind, name__in=["Can fly", "Can swim"]).count() == 2


def test_the_example_action_deactivates_users(monkeypatch: pytest.MonkeyPatch) -> None:
    users = client("def deactivate", monkeypatch, answer=lambda method, params: {"action": "accept", "content": {}})
    tim = User.objects.create_user("tim")
    tim.groups.add(Group.objects.create(name="Editors"))
    assert get_result(users, "user_groups_of", pk=tim.pk)["result"] == ["Editors"]
    assert get_result(users, "user_deactivate", pks=[tim.pk], dry_run=True)["result"] == 1
    assert get_result(users, "user_deactivate", pks=[tim.pk], reason="left")["result"] == 1
    tim.refresh_from_db()
    assert not tim.is_active
