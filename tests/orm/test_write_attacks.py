"""Attempts of a hostile client with the verbs that write, with URIs and with completions."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from mcp_django import Context, ModelInline, ModelToolset
from mcp_django.protocol.errors import InvalidParams, MCPError, ResourceNotFound
from tests.orm.writing import as_user, call, get_error, user
from tests.server.client import PipelineClient
from tests.shop.models import Category, Line, Order, Product, Supplier, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
WRITING = ("describe", "list", "get", "create", "update", "delete", "history")
UNKNOWN_KEY = "00000000-0000-4000-8000-000000000000"


class Products(ModelToolset):
    """Products whose price is for reading."""

    model = Product
    fields = ["name", "category", "price", "stock", "tags"]
    readonly_fields = ["price"]
    search_fields = ["name"]
    list_filter = "__all__"
    tools = WRITING


class Categories(ModelToolset):
    """The categories that are not secret."""

    model = Category
    fields = ["slug", "name", "parent"]
    search_fields = ["name"]
    tools = ["list", "get"]

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).exclude(slug__startswith="secret")


class Tags(ModelToolset):
    """Tags, to read."""

    model = Tag
    fields = ["name"]
    search_fields = ["name"]
    tools = ["list", "get"]


class Lines(ModelInline):
    """The lines of an order."""

    model = Line
    fields = ["product", "quantity"]


class Orders(ModelToolset):
    """Orders of the caller."""

    model = Order
    fields = ["reference", "placed"]
    inlines = [Lines]
    search_fields = ["reference"]
    tools = WRITING

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).filter(owner=ctx.user)

    def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.owner = ctx.user
        super().save_model(ctx, obj, form, change)


@pytest.fixture
def alice() -> PipelineClient:
    return as_user(user("alice"), Products, Categories, Tags, Orders)


@pytest.fixture
def tea() -> Product:
    supplier = Supplier.objects.create(name="Secret Supplies", bank_account="CH93-0076")
    drinks = Category.objects.create(slug="drinks", name="Drinks")
    Category.objects.create(slug="secret-lab", name="Secret lab")
    return Product.objects.create(
        name="Tea", category=drinks, supplier=supplier, price=Decimal("4.50"), secret_token="hunter2"
    )


@pytest.fixture
def theirs(tea: Product) -> Order:
    order = Order.objects.create(owner=user("bob"), reference="of-bob", note="for bob's eyes")
    Line.objects.create(order=order, product=tea, quantity=7)
    return order


class TestMassAssignment:
    def test_a_read_only_field_is_refused_and_nothing_is_written(
        self, alice: PipelineClient, tea: Product, subtests: pytest.Subtests
    ) -> None:
        for name in (
            *("secret_token", "cost", "description", "supplier", "supplier_id", "price", "id", "pk", "category_id"),
            *("category__name", "tags__name", "_state", "__class__", "objects", "delete", "save", "status", "blob"),
        ):
            with subtests.test(name=name), rolled_back():
                before = Product.objects.values().get()
                hidden = get_error(alice, "product_update", pk=tea.pk, values={"name": "Coffee", name: "x"})
                unknown = get_error(alice, "product_update", pk=tea.pk, values={"name": "Coffee", "zzz": "x"})
                if name != "price":  # which is shown, so it may be known that it is read-only
                    assert re.sub(r"; did you mean '\w+'\?", "", hidden) == unknown.replace("zzz", name)
                assert get_error(alice, "product_create", values={"name": "Coffee", name: "x"})
                assert list(Product.objects.values()) == [before]

    def test_an_owner_is_not_chosen_by_the_client(self, alice: PipelineClient, theirs: Order) -> None:
        for values in ({"owner": theirs.owner_id}, {"owner_id": theirs.owner_id}, {"note": "x"}):
            assert get_error(alice, "order_create", values={"reference": "r", **values})
        assert Order.objects.count() == 1

    def test_a_relation_accepts_only_rows_that_the_caller_sees(
        self, alice: PipelineClient, tea: Product, subtests: pytest.Subtests
    ) -> None:
        for value in ("secret-lab", "nowhere", 1, ["drinks"], {"slug": "drinks"}, "drinks\x00"):
            with subtests.test(value=value), rolled_back():
                text = get_error(alice, "product_update", pk=tea.pk, values={"category": value})
                assert "Secret lab" not in text
                tea.refresh_from_db()
                assert tea.category_id == "drinks"

    def test_hidden_rows_and_wrong_values_are_refused_field_by_field(self, alice: PipelineClient, tea: Product) -> None:
        hidden = call(alice, "product_update", pk=tea.pk, values={"category": "secret-lab"})
        absent = call(alice, "product_update", pk=tea.pk, values={"category": "absent-lab"})
        assert json.dumps(hidden).replace("secret-lab", "absent-lab") == json.dumps(absent)

        for values in (None, [], "x", {"name": None}, {"stock": "many"}, {"name": "x" * 500}, {"tags": ["x"]}):
            text = get_error(alice, "product_update", pk=tea.pk, values=values)
            assert "Internal error" not in text


class TestRowsOfOthers:
    def test_are_absent_for_every_verb(self, alice: PipelineClient, theirs: Order, subtests: pytest.Subtests) -> None:
        cases = (
            ("order_get", {}),
            ("order_update", {"values": {"reference": "mine now"}}),
            ("order_update", {"inlines": {"lines": {"add": [{"product": 1, "quantity": 1}]}}}),
            ("order_delete", {}),
            ("order_delete", {"dry_run": True}),
            ("order_history", {}),
        )
        for tool, arguments in cases:
            with subtests.test(tool=tool, arguments=arguments), rolled_back():
                foreign = call(alice, tool, pk=str(theirs.pk), **arguments)
                absent = call(alice, tool, pk=UNKNOWN_KEY, **arguments)
                assert foreign["isError"]
                assert json.dumps(foreign).replace(str(theirs.pk), UNKNOWN_KEY) == json.dumps(absent)
                theirs.refresh_from_db()
                assert (theirs.reference, theirs.lines.count()) == ("of-bob", 1)  # type: ignore[attr-defined]

    def test_lines_of_another_order_are_not_changed_through_an_own_order(
        self, alice: PipelineClient, theirs: Order
    ) -> None:
        line = Line.objects.get()
        own = Order.objects.create(owner=alice.principal.user, reference="own")
        for change in (
            {"change": [{"pk": line.pk, "quantity": 1}]},
            {"delete": [line.pk]},
            {"add": [{"product": line.product_id, "quantity": 1, "order": str(theirs.pk)}]},
        ):
            assert "Internal error" not in get_error(alice, "order_update", pk=str(own.pk), inlines={"lines": change})
        added = {"lines": {"add": [{"product": line.product_id, "quantity": 2}]}}
        assert not call(alice, "order_update", pk=str(own.pk), inlines=added)["isError"]
        assert [one.quantity for one in own.lines.all()] == [2]  # type: ignore[attr-defined]
        line.refresh_from_db()
        assert (line.quantity, line.order_id) == (7, theirs.pk)

    def test_are_not_read_by_their_uri(self, subtests: pytest.Subtests) -> None:
        async def check(uri: str) -> None:
            def given() -> tuple[PipelineClient, str]:
                who = user("carol")
                order = Order.objects.create(owner=user("dave"), reference="of-dave")
                return as_user(who, Products, Categories, Tags, Orders), str(order.pk)

            carol, pk = await sync_to_async(given)()
            answers = []
            for key in (pk, UNKNOWN_KEY):
                with pytest.raises(MCPError) as raised:
                    await carol.request("resources/read", {"uri": uri.format(key)})
                answers.append(str(raised.value).replace(key, "KEY"))
            assert answers[0] == answers[1]
            assert "of-dave" not in answers[0]

        for uri in ("shop.order://{}", "shop.order://{}?x=1", "shop.order://{}/", "SHOP.order://{}"):
            with subtests.test(uri=uri), rolled_back():
                async_to_sync(check)(uri)


class TestWithoutPermission:
    def test_a_reader_does_not_know_the_verbs_that_write(self, tea: Product, subtests: pytest.Subtests) -> None:
        def check(verb: str) -> None:
            reader = as_user(user("reader", "shop.view_product"), Products, Categories, Tags, Orders)
            if verb == "history":
                assert not call(reader, "product_history", pk=tea.pk)["isError"]
                return
            with pytest.raises(InvalidParams, match="Unknown tool"):
                call(reader, f"product_{verb}", pk=tea.pk, values={"name": "x"})

        for verb in ("create", "update", "delete", "history"):
            with subtests.test(verb=verb), rolled_back():
                check(verb)

    def test_permission_to_add_does_not_permit_changes(self, tea: Product) -> None:
        adder = as_user(user("adder", "shop.add_product"), Products, Categories, Tags, Orders)
        get_error(adder, "product_create", values={"pk": tea.pk, "name": "Coffee"})
        get_error(adder, "product_create", values={"id": tea.pk, "name": "Coffee"})
        tea.refresh_from_db()
        assert tea.name == "Tea"

    async def test_completions_leave_out_hidden_rows(self) -> None:
        def given() -> list[PipelineClient]:
            Category.objects.create(slug="secret-lab", name="Secret lab")
            toolsets = (Products, Categories, Tags, Orders)
            return [as_user(user("viewer", "shop.view_category"), *toolsets), as_user(user("none", "shop.view_tag"))]

        viewer, stranger = await sync_to_async(given)()
        reference = {"type": "ref/resource", "uri": "shop.category://{pk}"}
        for who in (viewer, stranger):
            for typed in ("", "s", "secret", "Secret lab"):
                argument = {"name": "pk", "value": typed}
                try:
                    answer = await who.request("completion/complete", {"ref": reference, "argument": argument})
                except (InvalidParams, ResourceNotFound):
                    continue
                assert answer["completion"]["values"] == []


class TestTemplatesAndTexts:
    def test_a_text_is_stored_and_shown_unchanged(
        self, alice: PipelineClient, tea: Product, subtests: pytest.Subtests
    ) -> None:
        cases = (
            *("{{ settings.SECRET_KEY }}", "{% debug %}", "${secret_token}", "%(secret_token)s", "{0.__class__}"),
            *(
                "{self.secret_token}",
                "<script>alert(1)</script>",
                "'; DROP TABLE shop_product; --",
                "=cmd|' /C calc'!A0",
            ),
        )
        for text in cases:
            with subtests.test(text=text), rolled_back():
                call(alice, "product_update", pk=tea.pk, values={"name": text})
                tea.refresh_from_db()
                assert tea.name == text
                answer = json.dumps([call(alice, "product_get", pk=tea.pk), call(alice, "product_history", pk=tea.pk)])
                assert "hunter2" not in answer
                assert "for-tests-only" not in answer
