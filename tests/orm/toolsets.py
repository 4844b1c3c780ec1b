"""The shop's toolsets as most tests serve them, and a client of a server that has them."""

from typing import Any

from mcp_django import Context, ModelToolset, Server
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.server.primitives.registry import Registry
from tests.server.client import PipelineClient, make_server
from tests.shop.models import Category, Order, Product, Tag


class Categories(ModelToolset):
    model = Category
    fields = ["slug", "name", "parent"]
    search_fields = ["name"]
    list_filter = ["name", "parent"]


class Tags(ModelToolset):
    model = Tag
    fields = ["name"]
    list_filter = ["name"]


class Products(ModelToolset):
    model = Product
    fields = [
        *("name", "category", "category__name", "supplier", "tags", "price", "stock", "weight", "status", "is_new"),
        *("details", "manual", "released", "opens", "lasts", "updated", "ip", "blob", "margin", "loud"),
    ]
    search_fields = ["name", "category__name"]
    list_filter = "__all__"
    ordering = ["name"]

    def loud(self, obj: Product) -> str:
        """The name, loudly."""
        return obj.shout()


class Orders(ModelToolset):
    model = Order
    fields = ["reference", "owner", "placed", "lines"]
    list_filter = ["reference", "placed"]

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).filter(owner=ctx.user)


def shop(*toolsets: type[ModelToolset], **given: Any) -> Server:
    """A server of these toolsets, or of the usual ones."""
    return make_server(toolsets=[kind() for kind in toolsets or (Categories, Tags, Products, Orders)], **given)


def principal(user: Any, name: str = "") -> DjangoPrincipal:
    """A client of a Django user."""
    return DjangoPrincipal(issuer="tests", subject=name or str(user.pk), user=user)


def peer(*toolsets: type[ModelToolset], **given: Any) -> PipelineClient:
    """A client of such a server; of the local principal unless `principal` is given."""
    return PipelineClient(shop(*toolsets), **given)


async def data(client: PipelineClient, tool: str, **arguments: Any) -> Any:
    """The structured result of a tool that succeeds."""
    result = await client.call(tool, **arguments)
    assert not result["isError"], result["content"]
    return result["structuredContent"]


__all__ = ["Categories", "Orders", "Products", "Registry", "Tags", "data", "peer", "principal", "shop"]
