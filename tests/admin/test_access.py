"""The page of access: each verdict against real lists and calls, the reasons, the export and the permission."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import override_settings
from django.urls import reverse

from mcp_django import tool
from mcp_django.admin.access.form import AccessForm
from mcp_django.admin.access.table import AccessTable, build_table
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.models import PersonalAccessToken, ScopeGrant, ToolPolicy
from mcp_django.protocol.errors import MCPError
from mcp_django.server.primitives import registry
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.wiring import get_server
from tests.contrib.control_room.test_record_admin import log_in

pytestmark = pytest.mark.django_db
ACCESS = "admin:mcp_django_access_changelist"
SCOPES = ("books:read", "books:write")
USER_COUNT = 30


def is_even(principal: Any) -> bool:
    """A permission that is a function."""
    return bool(principal.user.pk % 2 == 0)


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "REGISTRIES", {})
    with override_settings(MCP={"SERVERS": {"default": {}}, "SCOPES": dict.fromkeys(SCOPES, "Books")}):
        tool(lambda: "x", name="open")
        tool(lambda: "x", name="named", permission="testapp.view_book")
        tool(lambda: "x", name="scoped", scopes=["books:write", "books:read"])
        tool(lambda: "x", name="both", permission=["testapp.view_book", is_even], scopes=["books:read"])
        tool(lambda: "x", name="grouped")
        tool(lambda: "x", name="disabled")
        ToolPolicy.objects.create(tool="grouped", groups=["Planners"], scopes=["books:read"])
        ToolPolicy.objects.create(tool="disabled", disabled=True)
        ScopeGrant.objects.create(scope="books:write", groups=["Planners"])
        RULE_CACHE.invalidate()
        yield
        RULE_CACHE.invalidate()


def find_view_book() -> Permission:
    return Permission.objects.get(codename="view_book", content_type__app_label="testapp")


def compare(**query: Any) -> AccessTable:
    form = AccessForm({"server": "default", **query})
    assert form.is_valid(), form.errors
    return build_table(form.cleaned_data)


def call(caller: InProcessClient, name: str) -> bool:
    try:
        result = async_to_sync(caller.request)("tools/call", {"name": name, "arguments": {}})
    except MCPError:
        return False
    return not result.get("isError")


def test_each_verdict_equals_a_real_list_and_call() -> None:
    chance = random.Random(7)
    planners = Group.objects.create(name="Planners")
    view_book = find_view_book()
    compared = 0
    for number in range(USER_COUNT):
        user = User.objects.create(username=f"user{number}", is_superuser=chance.random() < 0.1)
        user.groups.set([planners] if chance.random() < 0.5 else [])
        user.user_permissions.set([view_book] if chance.random() < 0.5 else [])
        scopes = [scope for scope in SCOPES if chance.random() < 0.6]
        query = {"scopes": " ".join(scopes), "client": "cli"} if chance.random() < 0.7 else {}
        table = compare(users=user.username, **query)
        [column] = table.columns
        assert column.principal is not None
        caller = InProcessClient(get_server("default"), column.principal)
        listed = {one["name"] for one in async_to_sync(caller.request)("tools/list", {})["tools"]}
        for row in table.rows:
            [cell] = row.cells
            assert column.verdicts[row.kind, row.key].is_listed == (row.key in listed)
            assert cell.is_allowed == call(caller, row.key) == all(check.holds for check in cell.checks), row
            assert bool(cell.reason) is not cell.is_allowed
            compared += 1
    assert compared == USER_COUNT * 6


def test_a_token_has_the_scopes_that_it_holds_and_a_refused_caller_has_none() -> None:
    ada = User.objects.create(username="ada")
    token = PersonalAccessToken.issue(user=ada, name="CI", scopes=["books:read", "books:write"], expires=None)[0]
    gone = User.objects.create(username="gone", is_active=False)
    table = compare(token=[token.pk], users=gone.username)
    assert [column.label for column in table.columns] == ["gone", "ada: CI"]
    assert str(table.columns[0].refusal) == "The account is not active."
    cells = {row.key: row.cells for row in table.rows}
    assert cells["scoped"][1].reason == "hidden: a scope grant withholds the scope books:write"
    assert [cell.is_allowed for cell in cells["open"]] == [False, True]


def test_the_reverse_lookup_names_all_users_of_one_tool() -> None:
    for number in range(3):
        User.objects.create(username=f"user{number}")
    user = User.objects.get(username="user1")
    user.user_permissions.add(find_view_book())
    table = compare(tool="named")
    [row] = table.rows
    assert [(column.label, cell.is_allowed) for column, cell in zip(table.columns, row.cells, strict=True)] == [
        ("user0", False),
        ("user1", True),
        ("user2", False),
    ]


def test_the_page_and_its_export_need_their_permission_and_the_export_is_logged() -> None:
    User.objects.create(username="=ada")
    query = {"server": "default", "users": "=ada"}
    browser = log_in("view_controlroom")
    assert browser.get(reverse(ACCESS)).status_code == 403

    User.objects.get(username="staff").user_permissions.add(Permission.objects.get(codename="view_access"))
    assert "lacks the permission testapp.view_book" in browser.get(reverse(ACCESS), query).content.decode()
    assert "Unknown users: nobody" in browser.get(reverse(ACCESS), {**query, "users": "nobody"}).content.decode()
    response: Any = browser.get(reverse(ACCESS), {**query, "format": "csv"})
    lines = b"".join(response.streaming_content).decode().splitlines()
    reason = "hidden: lacks the permission testapp.view_book"
    assert f'"tool","named","permission testapp.view_book","\'=ada","no","{reason}"' in lines
    assert LogEntry.objects.get().change_message == "Exported as csv."
