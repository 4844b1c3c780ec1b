"""The examples of the pages about models, served and asked."""

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType

from mcp_django.server.server import Server
from tests.orm.test_resources import offered
from tests.orm.toolsets import principal
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, ports

pytestmark = pytest.mark.django_db
PAGES = [ROOT / "docs" / page for page in ("expose/first-models.md", "expose/model-resources.md")]
BLOCKS = [block for page in PAGES for block in python_blocks(page)]


def example(declares: str, monkeypatch: pytest.MonkeyPatch, **peer: Any) -> PipelineClient:
    """A client of the example that declares a class or function."""
    block = next(block for block in BLOCKS if f" {declares}(" in block)
    _, found = served_by(block, monkeypatch)
    return PipelineClient(Server("docs", "1", registry=found, ports=ports()), **peer)


async def test_the_example_of_users_lists_counts_and_links(monkeypatch: pytest.MonkeyPatch) -> None:
    client = example("People", monkeypatch)
    assert len(await client.names()) == 9
    sales = await Group.objects.acreate(name="Sales")
    for name in ("ada", "bob"):
        await (await User.objects.acreate(username=name, is_active=name == "ada")).groups.aadd(sales)
    asked = {"filters": {"groups__name": "Sales", "not": {"is_active": False}}, "order_by": ["-date_joined"]}
    [row] = (await client.call("user_list", **asked))["structuredContent"]["items"]
    assert (row["username"], row["groups"][0]["uri"]) == ("ada", f"auth.group://{sales.pk}")
    assert "password" not in row
    groups = {"group_by": ["date_joined__year"], "metrics": [{"function": "count"}]}
    [group] = (await client.call("user_aggregate", **groups))["structuredContent"]["groups"]
    assert group["count"] == 2


async def test_each_user_sees_the_changes_that_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob = [await User.objects.acreate(username=name, is_superuser=True) for name in ("ada", "bob")]
    kind = await sync_to_async(ContentType.objects.get_for_model)(User)
    for user in (ada, bob):
        await LogEntry.objects.acreate(
            user=user, content_type=kind, object_repr=f"by {user.username}", action_flag=CHANGE, change_message=""
        )
    client = example("Changes", monkeypatch, principal=principal(ada))
    [row] = (await client.call("change_list"))["structuredContent"]["items"]
    assert row["object_repr"] == "by ada"


async def test_groups_can_be_written_and_their_deletion_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, admin_user: User
) -> None:
    client = example("EditableGroups", monkeypatch, principal=principal(admin_user))
    made = (await client.call("group_create", values={"name": "Sales"}))["structuredContent"]
    asked = await client.call("group_delete", pk=made["pk"])
    assert asked["resultType"] == "input_required"


async def test_the_example_limits_rows_to_members(monkeypatch: pytest.MonkeyPatch) -> None:
    red, blue = [await Group.objects.acreate(name=name) for name in ("red", "blue")]
    ada, bob, eve = [await User.objects.acreate(username=name, is_superuser=True) for name in ("ada", "bob", "eve")]
    for user, house in ((ada, red), (bob, red), (eve, blue)):
        await user.groups.aadd(house)
    for who, expected in ((ada, ["ada", "bob"]), (eve, [])):
        client = example("Members", monkeypatch, principal=principal(who), kwargs={"house": "red"})
        rows = (await client.call("user_list", order_by=["username"]))["structuredContent"]["items"]
        assert [row["username"] for row in rows] == expected
        assert len(await offered(client, "auth.user://{pk}", "pk", "")) == len(expected)


async def test_arguments_of_a_prompt_are_completed_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    client = example("introduce", monkeypatch)
    await Group.objects.acreate(name="Sales")
    params = {"ref": {"type": "ref/prompt", "name": "introduce"}, "argument": {"name": "team", "value": "sal"}}
    assert (await client.request("completion/complete", params))["completion"]["values"] == ["Sales"]
