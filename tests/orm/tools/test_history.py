"""`history`: the admin's log of a row, without fields that the toolset hides."""

import json
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.auth.models import User

from mcp_django import ModelToolset, action
from mcp_django.schema import DeclarationError
from tests.orm.toolsets import Tags, principal, shop
from tests.orm.writing import Orders, Products, as_user, get_result, user
from tests.server.client import PipelineClient
from tests.shop.models import Line, Order, Product

pytestmark = pytest.mark.django_db


@pytest.fixture
def tea() -> Product:
    return Product.objects.create(name="Tea", stock=3, secret_token="hunter2")


def logged(by: User, row: Any, message: Any, flag: int = CHANGE) -> None:
    LogEntry.objects.log_actions(by.pk, [row], flag, message if isinstance(message, str) else json.dumps(message))


def test_writes_are_in_the_log_of_the_admin_and_in_the_history() -> None:
    client = as_user(user())
    pk = get_result(client, "product_create", values={"name": "Tea"})["pk"]
    get_result(client, "product_update", pk=pk, values={"stock": 9, "is_new": True, "name": "Tea"})
    changed, added = get_result(client, "product_history", pk=pk)["items"]
    assert (added["kind"], changed["kind"]) == ("added", "changed")
    assert changed["fields"] == ["stock", "is_new"]
    assert changed["by"] == {"you": True}
    entry = LogEntry.objects.filter(action_flag=CHANGE).get()
    assert entry.get_change_message() == "Changed Stock and Is new."


def test_hidden_fields_are_left_out_of_the_history(tea: Product) -> None:
    sue, boss = user(), user("boss")
    logged(boss, tea, [{"changed": {"fields": ["Secret token", "Cost"]}}])
    logged(boss, tea, [{"changed": {"fields": ["Cost", "Stock"]}}])
    logged(boss, tea, [{"added": {"name": "audit", "object": "hunter2"}}])
    logged(boss, tea, "The token is hunter2 now.")
    logged(boss, tea, "[not json")
    logged(boss, tea, [{"changed": "hunter2"}])
    logged(boss, tea, [])
    result = get_result(as_user(sue), "product_history", pk=tea.pk)
    assert [item["fields"] for item in result["items"]] == [[], ["stock"]]
    assert "hunter2" not in json.dumps(result)
    assert "boss" not in json.dumps(result)
    assert {item["by"]["you"] for item in result["items"]} == {False}


def test_users_are_named_to_callers_who_may_view_users(tea: Product) -> None:
    class Users(ModelToolset):
        model = User
        fields = ("username",)

    boss = user("boss")
    logged(boss, tea, [{"added": {}}], ADDITION)
    (item,) = get_result(as_user(user(), Products, Users), "product_history", pk=tea.pk)["items"]
    assert item["by"] == {"you": False, "pk": boss.pk, "label": "boss"}
    tim = user("tim", "shop.view_product")
    (item,) = get_result(as_user(tim, Products, Users), "product_history", pk=tea.pk)["items"]
    assert item["by"] == {"you": False}


def test_inline_rows_are_mentioned_without_their_names() -> None:
    sue = user()
    tea = Product.objects.create(name="Tea")
    client = as_user(sue, Orders, Products)
    lines = {"lines": {"add": [{"product": tea.pk, "quantity": 2}]}}
    pk = get_result(client, "order_create", values={"reference": "A1"}, inlines=lines)["pk"]
    line = Line.objects.get()
    get_result(client, "order_update", pk=pk, inlines={"lines": {"delete": [line.pk]}})
    deleted, added = get_result(client, "order_history", pk=pk)["items"]
    assert deleted["inlines"] == [{"name": "lines", "kind": "deleted"}]
    assert (added["kind"], added["inlines"]) == ("added", [{"name": "lines", "kind": "added"}])
    assert Order.objects.count() == 1


def test_actions_are_named(tea: Product) -> None:
    class Acting(Products):
        @action(title="Take off the shelf")
        def retire(self, obj: Product) -> None: ...

    client = as_user(user(), Acting)
    get_result(client, "product_retire", pk=tea.pk)
    (item,) = get_result(client, "product_history", pk=tea.pk)["items"]
    assert item["action"] == "Take off the shelf"


def test_the_history_is_paged(tea: Product) -> None:
    sue = user()
    for name in ("Name", "Stock", "Price"):
        logged(sue, tea, [{"changed": {"fields": [name]}}])
    client = as_user(sue)
    page = get_result(client, "product_history", pk=tea.pk, limit=2)
    assert ([item["fields"] for item in page["items"]], page["more"]) == ([["price"], ["stock"]], True)
    page = get_result(client, "product_history", pk=tea.pk, limit=2, offset=2)
    assert ([item["fields"] for item in page["items"]], page["more"]) == ([["name"]], False)


def test_callers_without_a_user_write_without_a_log_entry(tea: Product) -> None:
    get_result(PipelineClient(shop(Products)), "product_update", pk=tea.pk, values={"stock": 1})
    assert not LogEntry.objects.exists()


def test_the_log_hook_can_be_overridden(tea: Product) -> None:
    logged_changes: list[Any] = []

    class Quiet(Products):
        def log_write(self, ctx: Any, rows: Any, flag: int, message: Any) -> None:
            logged_changes.append((list(rows), flag, message))

    get_result(as_user(user(), Quiet), "product_update", pk=tea.pk, values={"stock": 1})
    assert logged_changes == [([tea], CHANGE, [{"changed": {"fields": ["Stock"]}}])]
    assert not LogEntry.objects.exists()


def test_without_the_admin_rows_are_written_and_there_is_no_history(
    tea: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.apps import apps

    installed = apps.is_installed
    monkeypatch.setattr(apps, "is_installed", lambda name: name != "django.contrib.admin" and installed(name))

    class Plain(Products):
        tools = ("update",)

    get_result(as_user(user(), Plain), "product_update", pk=tea.pk, values={"stock": 1})
    with pytest.raises(DeclarationError, match=r"install django\.contrib\.admin"):
        shop(Tags, Products)
    assert principal(user("tim"))
