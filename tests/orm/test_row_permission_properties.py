"""With any permissions, no operation shows, counts or writes a row that `has_perm` refuses."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db.models import Model
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mcp_django import Context, ModelInline, ModelToolset, action
from mcp_django.orm.generic import GenericTools
from mcp_django.protocol.errors import MCPError
from mcp_django.server.primitives.registry import Registry
from tests.orm.object_backends import FILTER, GRANTS, object_permissions
from tests.orm.toolsets import principal
from tests.server.client import PipelineClient, make_server
from tests.shop.models import Category, Line, Order, Product, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
TOOLS = ("describe", "list", "get", "count", "aggregate", "create", "update", "delete")
ACTIONS = ("view", "add", "change", "delete")
MODELS = (Category, Tag, Product, Line, Order)
ROWS = 3


class Lines(ModelToolset):
    model = Line
    fields = ("order", "product", "product__name", "quantity")
    list_filter = "__all__"
    tools = TOOLS


class Tags(ModelToolset):
    model = Tag
    fields = ("name", "products")
    search_fields = ("name", "products__name")
    list_filter = "__all__"
    tools = TOOLS


class Orders(ModelToolset):
    class OrderLines(ModelInline):
        model = Line
        name = "rows"
        fields = ("product", "product__name", "quantity")

    model = Order
    fields = ("reference", "lines")
    inlines = (OrderLines,)
    tools = TOOLS


class Categories(ModelToolset):
    class CategoryProducts(ModelInline):
        model = Product
        name = "goods"
        fields = ("name", "stock")

    model = Category
    fields = ("slug", "name", "parent", "parent__name", "children", "products", "products__name")
    search_fields = ("name", "products__name")
    list_filter = "__all__"
    label_field = "name"
    inlines = (CategoryProducts,)
    tools = TOOLS


class Products(ModelToolset):
    model = Product
    fields = ("name", "category", "category__name", "category__parent__name", "tags", "tags__name", "lines", "stock")
    search_fields = ("name", "category__name", "tags__name")
    list_filter = "__all__"
    tools = TOOLS

    @action
    def empty(self, ctx: Context, queryset: Any) -> int:
        return int(queryset.update(stock=0))


TOOLSETS = (Categories, Tags, Products, Lines, Orders)


class Site:
    """Rows whose keys and names occur nowhere else, and a caller with permissions on some of them."""

    def __init__(self, user: User, *, is_generic: bool) -> None:
        self.user = user
        self.is_generic = is_generic
        registry = Registry("tests")
        made = [kind() for kind in TOOLSETS]
        server = make_server(registry=registry, toolsets=made, providers=[GenericTools(registry)] if is_generic else ())
        self.peer = PipelineClient(server, principal=principal(user))

    def request(self, method: str, **params: Any) -> dict[str, Any] | None:
        """The result of a request, or None if it is refused."""
        try:
            result: dict[str, Any] = async_to_sync(self.peer.request)(method, params)
        except MCPError:
            return None
        return result

    def call(self, model: type[Model], tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a tool; empty if it is refused. No result may show a hidden row."""
        name = f"models_{tool}" if self.is_generic else f"{model._meta.model_name}_{tool}"
        arguments = {"model": model._meta.label, **arguments} if self.is_generic else arguments
        result = self.request("tools/call", name=name, arguments=arguments)
        if result is None:
            return {}
        self.check_text(json.dumps(result), f"{name} {arguments}")
        return {} if result["isError"] else dict(result["structuredContent"])

    def check_text(self, text: str, request: str) -> None:
        """Check that a result has neither keys nor names of hidden rows, unless the request has them."""
        for row in self.rows():
            if not self.may("view", row):
                marks = {str(getattr(row, "name", row.pk)), str(row.pk)}
                shown = [mark for mark in marks if mark in text and mark not in request]
                assert not shown, f"{request} shows {row!r}: {text}"

    def rows(self) -> Iterator[Any]:
        for model in MODELS:
            yield from model._base_manager.all()

    def may(self, verb: str, row: Any) -> bool:
        return self.user.has_perm(f"shop.{verb}_{type(row)._meta.model_name}", row)

    def visible(self, model: type[Model]) -> list[Any]:
        return [row for row in model._base_manager.all() if self.may("view", row)]


def create_rows() -> None:
    parent = None
    owner = User.objects.create_user("owner")
    for n in range(ROWS):
        parent = Category.objects.create(slug=f"slug-{n}-category", name=f"Category{n}name", parent=parent)
        tag = Tag.objects.create(pk=8_000_001 + n, name=f"Tag{n}name")
        product = Product.objects.create(
            pk=7_000_001 + n, name=f"Product{n}name", category=parent, stock=2**n, description="x"
        )
        product.tags.set(Tag.objects.all())
        order = Order.objects.create(owner=owner, reference=f"Order{n}name")
        for m in range(2):
            Line.objects.create(pk=9_000_001 + 2 * n + m, order=order, product=product, quantity=2 ** (2 * n + m))
    assert tag.products.exists()


grants = st.fixed_dictionaries(
    {
        f"shop.{verb}_{model._meta.model_name}": st.lists(st.booleans(), min_size=2 * ROWS, max_size=2 * ROWS)
        for model in MODELS
        for verb in ACTIONS
    }
)


@pytest.mark.parametrize("style", ["per_model", "generic"])
@pytest.mark.parametrize("stated", ["some", FILTER])
def test_no_operation_reaches_a_row_without_the_permission(stated: str, style: str) -> None:
    create_rows()
    keys = {model: list(model._base_manager.order_by("pk").values_list("pk", flat=True)) for model in MODELS}
    user = User.objects.create_user("caller")

    @settings(max_examples=2, deadline=None, database=None, phases=[Phase.generate])
    @given(grants)
    def check(granted: dict[str, list[bool]]) -> None:
        GRANTS["caller"] = {}
        for model in MODELS:
            for verb in ACTIONS:
                name = f"shop.{verb}_{model._meta.model_name}"
                permitted = [key for key, is_granted in zip(keys[model], granted[name], strict=False) if is_granted]
                GRANTS["caller"][name] = [{"pk__in": permitted}]
        with rolled_back():
            site = Site(user, is_generic=style == "generic")
            check_reading(site)
            check_resources(site)
            check_writing(site, keys)

    with object_permissions(stated, ORM_STYLE=style):
        check()


def check_reading(site: Site) -> None:
    for model in MODELS:
        visible = site.visible(model)
        listed = site.call(model, "list", limit=50, with_total=True)
        # Without any row the tool may be hidden.
        assert {str(row["pk"]) for row in listed.get("items", ())} == {str(row.pk) for row in visible}
        assert listed.get("total", 0) == site.call(model, "count").get("count", 0) == len(visible)
        assert sum(group["count"] for group in site.call(model, "aggregate").get("groups", ())) == len(visible)
        for row in model._base_manager.all():
            assert bool(site.call(model, "get", pk=str(row.pk) if model is Order else row.pk)) == site.may("view", row)
    if site.visible(Product):
        check_products(site)


def check_products(site: Site) -> None:
    """Sums, groups, filters, searches and orders across relations."""
    visible = site.visible(Product)
    metrics = [{"function": "sum", "field": "stock"}]
    (total,) = site.call(Product, "aggregate", metrics=metrics)["groups"]
    assert (total["sum_stock"] or 0) == sum(row.stock for row in visible)
    site.call(Product, "aggregate", group_by=["category", "category__name"], metrics=metrics)
    for row in Category.objects.all():
        own = [product for product in visible if product.category_id == row.pk and site.may("view", row)]
        for name, value in (
            ("category", row.pk),
            ("category__name", row.name),
            ("category__name__startswith", row.name),
        ):
            assert site.call(Product, "count", filters={name: value})["count"] == len(own), name
        # A hidden category is neither found nor excluded.
        others = site.call(Product, "count", filters={"not": {"category__name": row.name}})["count"]
        assert others == len(visible) - len(own)
        expected = {product.pk for product in own}
        found = site.call(Product, "list", search=row.name)["items"]
        assert {item["pk"] for item in found} == expected
    for tag in Tag.objects.all():
        tagged = [product for product in visible if site.may("view", tag) and tag in product.tags.all()]
        assert site.call(Product, "count", filters={"tags__name": tag.name})["count"] == len(tagged)

    ordered = site.call(Product, "list", order_by=["category__name"], limit=50)["items"]

    def get_key(product: Product) -> tuple[bool, str, int]:
        name = product.category.name if site.may("view", product.category) else ""
        return (not name, name, product.pk)

    assert [item["pk"] for item in ordered] == [product.pk for product in sorted(visible, key=get_key)]


def check_resources(site: Site) -> None:
    for model in MODELS:
        scheme = f"shop.{model._meta.model_name}"
        for row in model._base_manager.all():
            result = site.request("resources/read", uri=f"{scheme}://{row.pk}")
            assert (result is not None) == site.may("view", row)
        if model is Order:
            continue
        for uri in (f"{scheme}://", f"{scheme}://?search=name"):
            site.check_text(json.dumps(site.request("resources/read", uri=uri)), uri)
        for value in ("", "7", "slug", "name"):
            reference = {"type": "ref/resource", "uri": f"{scheme}://{{pk}}"}
            completed = site.request("completion/complete", ref=reference, argument={"name": "pk", "value": value})
            site.check_text(json.dumps(completed), f"completion of {scheme} {value}")


def check_writing(site: Site, keys: dict[type[Model], list[Any]]) -> None:
    for model, values in ((Category, {"name": "Written"}), (Product, {"stock": 77}), (Line, {"quantity": 7_777})):
        for key in keys[model]:
            check_write(site, "change", model, "update", pk=key, values=values)
    for product in keys[Product]:
        for category in keys[Category]:
            check_write(site, "change", Product, "update", pk=product, values={"category": category})
    for order in keys[Order]:
        own = list(Line.objects.filter(order=order).values_list("pk", flat=True))
        changes = {"change": [{"pk": own[0], "values": {"quantity": 9}}]}
        check_write(site, "change", Order, "update", pk=str(order), inlines={"rows": changes})
        check_write(site, "delete", Order, "update", pk=str(order), inlines={"rows": {"delete": own}})
    for model in MODELS:
        for key in keys[model]:
            check_write(site, "delete", model, "delete", pk=str(key) if model is Order else key)
    for category in keys[Category]:
        check_write(site, "add", Product, "create", values={"name": "Fresh", "category": category})


def check_write(site: Site, verb: str, model: type[Model], tool: str, **arguments: Any) -> None:
    """Check that a write changes, deletes or adds only rows with the permission, and roll it back."""
    with rolled_back():
        before = {(type(row), row.pk): row for row in site.rows()}
        permitted = {place for place, row in before.items() if site.may(verb, row) and site.may("view", row)}
        site.call(model, tool, **arguments)
        after = {(type(row), row.pk): row for row in site.rows()}
        for place, row in before.items():
            if place not in after or values_of(after[place]) != values_of(row):
                assert place in permitted, f"{tool} {arguments} wrote {row!r}"
        for place in after.keys() - before.keys():
            assert site.may("add", after[place]), f"{tool} {arguments} added {after[place]!r}"


def values_of(row: Any) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
