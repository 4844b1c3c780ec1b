"""The shop's toolsets as the tests of writing serve them: everything may be written, and users are real."""

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User

from mcp_django import Context, ModelInline, ModelToolset
from tests.orm.toolsets import Tags, principal, shop
from tests.server.client import PipelineClient
from tests.shop.models import Category, Line, Order, Product

WRITING = ("get", "create", "update", "delete", "history")


class Categories(ModelToolset):
    model = Category
    fields = ["slug", "name", "parent"]
    label_field = "name"
    tools = WRITING


class Products(ModelToolset):
    model = Product
    fields = [
        *("name", "category", "supplier", "tags", "price", "stock", "weight", "status", "is_new", "description"),
        *("details", "manual", "released", "opens", "lasts", "updated", "homepage", "ip"),
    ]
    tools = WRITING


class Lines(ModelInline):
    model = Line
    fields = ["product", "quantity"]


class Orders(ModelToolset):
    model = Order
    fields = ["reference", "placed", "note"]
    inlines = [Lines]
    tools = WRITING

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).filter(owner=ctx.user)

    def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.owner = ctx.user
        super().save_model(ctx, obj, form, change)


def user(name: str = "sue", *permissions: str) -> User:
    """A user with permissions such as "shop.change_product"; a superuser if none are named."""
    found = User.objects.create_user(name, is_superuser=not permissions)
    for permission in permissions:
        label, codename = permission.split(".")
        found.user_permissions.add(Permission.objects.get(content_type__app_label=label, codename=codename))
    return found


def as_user(who: User, *toolsets: type[ModelToolset], **given: Any) -> PipelineClient:
    """Make a client of a user, of a server with these toolsets or the usual ones."""
    return PipelineClient(shop(*(toolsets or (Categories, Tags, Products, Orders))), principal=principal(who), **given)


def call(client: PipelineClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool. The ORM of a plain test shares the connection of the tool."""
    result: dict[str, Any] = async_to_sync(client.call)(tool, **arguments)
    return result


def get_result(client: PipelineClient, tool: str, **arguments: Any) -> Any:
    """Call a tool that succeeds, and return its structured result."""
    result = call(client, tool, **arguments)
    assert not result["isError"], result["content"]
    return result["structuredContent"]


def get_error(client: PipelineClient, tool: str, **arguments: Any) -> str:
    """Call a tool that fails, and return the text of its error."""
    result = call(client, tool, **arguments)
    assert result["isError"], result
    return str(result["content"][0]["text"])


def get_field_errors(client: PipelineClient, tool: str, **arguments: Any) -> dict[str, list[str]]:
    """Call a tool that fails, and return its errors by field."""
    result = call(client, tool, **arguments)
    assert result["isError"], result
    told: dict[str, list[str]] = result["_meta"]["mcp-django/errors"]
    return told
