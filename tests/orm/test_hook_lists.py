"""Permission hooks of a project hide tools as well as they refuse calls."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from mcp_django import Context, ModelToolset, action
from tests.orm.toolsets import Categories, principal, shop
from tests.orm.writing import as_user, call
from tests.server.client import PipelineClient
from tests.shop.models import Product, Tag

pytestmark = pytest.mark.django_db


def is_member(ctx: Context) -> bool:
    """Right of a project without Django's permissions."""
    return bool(ctx.user is not None and ctx.user.username == "member")


class Products(ModelToolset):
    model = Product
    fields = ("name",)
    tools = ("list", "get", "create")
    asked: list[str] = []

    def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
        self.asked.append("view")
        return is_member(ctx)

    def has_add_permission(self, ctx: Context) -> bool:
        return is_member(ctx) and ctx.user.email == "adder"

    def has_stock_permission(self, ctx: Context, obj: Any = None) -> bool:
        return is_member(ctx)

    @action(permissions=["stock"])
    def count_stock(self, ctx: Context, queryset: Any) -> int:
        return 0


class FailingTags(ModelToolset):
    model = Tag
    fields = ("name",)

    def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
        raise LookupError("no tenant")


def names(who: User, *given: str) -> set[str]:
    return set(async_to_sync(as_user(who, Products, FailingTags).names)(*given))


def test_tools_resources_and_actions_are_listed_for_callers_whom_the_hooks_admit() -> None:
    member, stranger = (User.objects.create_user(name) for name in ("member", "stranger"))
    assert names(member) == {"product_list", "product_get", "product_count_stock"}
    assert names(stranger) == set()
    templates = ("resources/templates/list", "resourceTemplates", "uriTemplate")
    assert len(names(member, *templates)) == 2
    assert names(stranger, *templates) == set()
    for tool in ("product_list", "product_count_stock"):
        with pytest.raises(Exception, match="Unknown tool"):
            call(as_user(stranger, Products), tool, **({} if tool == "product_list" else {"pks": [1]}))


def test_a_hook_decides_again_for_each_list() -> None:
    member = User.objects.create_user("member")
    peer = as_user(member, Products)
    assert "product_create" not in async_to_sync(peer.names)()
    member.email = "adder"
    assert "product_create" in async_to_sync(peer.names)()


def test_a_hook_runs_once_for_all_tools_of_a_list() -> None:
    peer = as_user(User.objects.create_user("member"), Products)
    Products.asked.clear()
    async_to_sync(peer.names)()
    assert Products.asked == ["view"]


def test_lists_without_hooks_are_unchanged() -> None:
    local = PipelineClient(shop(Categories))
    assert len(async_to_sync(local.names)()) == 4
    assert (
        async_to_sync(PipelineClient(shop(Categories), principal=principal(User.objects.create_user("x"))).names)()
        == []
    )
