"""`create` and `update`: accepted and refused values, and their errors."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.contrib.admin.models import LogEntry

from mcp_django import Context, ModelToolset
from tests.orm.toolsets import Tags
from tests.orm.writing import Categories, Products, as_user, call, get_error, get_field_errors, get_result, user
from tests.shop.models import Category, Product, Supplier, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


@pytest.fixture
def drinks() -> Category:
    return Category.objects.create(slug="drinks", name="Drinks")


@pytest.fixture
def tea(drinks: Category) -> Product:
    product = Product.objects.create(
        name="Tea", category=drinks, price=Decimal("4.50"), stock=3, secret_token="hunter2"
    )
    product.tags.set([Tag.objects.create(name="hot")])
    return product


def test_every_kind_of_value_is_written(drinks: Category) -> None:
    tags = [Tag.objects.create(name=name).pk for name in ("hot", "green")]
    result = get_result(
        as_user(user()),
        "product_create",
        values={
            "name": "Tea",
            "category": "drinks",
            "tags": tags,
            "price": "4.50",
            "stock": 3,
            "weight": 0.25,
            "status": "draft",
            "is_new": True,
            "details": {"origin": ["Assam"]},
            "released": "2026-01-31",
            "opens": "08:30",
            "lasts": "P1DT2H",
            "updated": "2026-01-31T12:00:00+01:00",
            "homepage": "https://example.com/",
            "ip": "192.0.2.1",
        },
    )
    item = result["item"]
    assert (item["pk"], item["price"], item["details"]) == (result["pk"], "4.50", {"origin": ["Assam"]})
    assert [tag["pk"] for tag in item["tags"]] == tags
    assert result["dry_run"] is False
    product = Product.objects.get()
    assert (product.category, product.stock, product.weight, product.is_new) == (drinks, 3, 0.25, True)
    assert (product.released, product.opens) == (dt.date(2026, 1, 31), dt.time(8, 30))
    assert (product.price, product.status) == (Decimal("4.50"), "draft")
    assert product.lasts == dt.timedelta(days=1, hours=2)
    assert product.updated == dt.datetime(2026, 1, 31, 11, tzinfo=dt.UTC)


def test_omitted_fields_have_the_default_of_the_model() -> None:
    get_result(as_user(user()), "product_create", values={"name": "Tea"})
    product = Product.objects.get()
    assert (product.status, product.stock, product.details, product.price) == ("active", 0, {}, 0)
    assert (product.category, product.weight, product.description) == (None, None, "")


def test_an_update_changes_the_named_fields_only(tea: Product) -> None:
    before = Product.objects.values().get()
    result = get_result(as_user(user()), "product_update", pk=tea.pk, values={"stock": 4, "name": "Tea"})
    assert result["changed"] == ["stock"]
    assert result["item"]["stock"] == 4
    assert Product.objects.values().get() == {**before, "stock": 4}
    assert [tag.name for tag in tea.tags.all()] == ["hot"]


def test_null_clears_optional_fields(tea: Product) -> None:
    client = as_user(user())
    Product.objects.update(weight=1.5, description="long", released=dt.date(2026, 1, 1))
    values = {"weight": None, "category": None, "description": None, "released": None, "tags": []}
    get_result(client, "product_update", pk=tea.pk, values=values)
    tea.refresh_from_db()
    assert (tea.weight, tea.category, tea.description, tea.released) == (None, None, "", None)
    assert not tea.tags.exists()


def test_null_for_a_required_field_is_an_error_and_not_the_default(tea: Product) -> None:
    client = as_user(user())
    for name in ("stock", "price", "status", "name"):
        assert name in get_error(client, "product_update", pk=tea.pk, values={name: None})

    class Loose(Products):
        def get_form_class(self, ctx: Context) -> Any:
            form = super().get_form_class(ctx)
            form.base_fields["details"].required = False
            return form

    Product.objects.update(details={"a": 1})
    get_result(as_user(user("tim"), Loose), "product_update", pk=tea.pk, values={"details": {}})
    tea.refresh_from_db()
    assert not tea.details


def test_rows_missing_from_a_relation_to_many_are_removed_from_it(tea: Product) -> None:
    """Also a row that the form would not offer: the caller sees it, and means it."""

    class Form(forms.ModelForm):  # type: ignore[type-arg]
        class Meta:
            model = Product
            fields = ("tags",)

        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            field = self.fields["tags"]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = Tag.objects.exclude(name="hot")

    class Formed(Products):
        form = Form

    class SomeTags(Tags):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).exclude(name="internal")

    tea.tags.add(Tag.objects.create(name="internal"))
    get_result(as_user(user(), Formed, SomeTags), "product_update", pk=tea.pk, values={"tags": []})
    assert [tag.name for tag in tea.tags.all()] == ["internal"]


def test_errors_are_grouped_by_field_in_the_text_and_the_data(drinks: Category) -> None:
    client = as_user(user())
    values = {"name": "Tea", "released": "2026-02-31", "homepage": "no url", "category": "nowhere", "tags": [7]}
    result = call(client, "product_create", values=values)
    errors = result["_meta"]["mcp-django/errors"]
    assert set(errors) == {"released", "homepage", "category", "tags"}
    assert errors["homepage"] == ["Enter a valid URL."]
    assert errors["released"] == ["Give a date in ISO 8601, YYYY-MM-DD."]
    lines = result["content"][0]["text"].splitlines()
    assert "homepage: Enter a valid URL." in lines
    assert not Product.objects.exists()


def test_validation_of_the_model_is_applied(drinks: Category) -> None:
    Tag.objects.create(name="hot")

    class WritableTags(Tags):
        tools = ("create",)

    client = as_user(user(), WritableTags)
    assert get_field_errors(client, "tag_create", values={"name": "hot"}) == {
        "name": ["Tag with this Name already exists."]
    }


def test_errors_of_hidden_fields_are_reported_without_the_field_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from django.core.exceptions import ValidationError

    def clean(self: Product) -> None:
        raise ValidationError({"cost": "Must be less than the price."})

    monkeypatch.setattr(Product, "clean", clean)
    errors = get_field_errors(as_user(user()), "product_create", values={"name": "Tea"})
    assert errors == {"__all__": ["Must be less than the price."]}


def test_fields_that_cannot_be_written_are_refused_like_unknown_ones(tea: Product, subtests: pytest.Subtests) -> None:
    for name in ("cost", "secret_token", "manual", "margin", "id", "pk", "supplier_id", "nonsense"):
        with subtests.test(name=name), rolled_back():
            before = Product.objects.values().get()
            text = get_error(as_user(user()), "product_update", pk=tea.pk, values={name: "1", "stock": 9})
            assert text.split(";")[0] == f"values: unknown key '{name}'"
            assert Product.objects.values().get() == before


def test_read_only_and_sensitive_fields_are_shown_and_never_written(tea: Product) -> None:
    class Careful(Products):
        fields = ("name", "price", "secret_token")
        readonly_fields = ("price",)
        sensitive_fields = ("secret_token",)

    client = as_user(user(), Careful)
    assert get_result(client, "product_get", pk=tea.pk)["secret_token"] == "hunter2"
    for name in ("price", "secret_token"):
        assert name in get_error(client, "product_update", pk=tea.pk, values={name: "1"})
    tea.refresh_from_db()
    assert (tea.price, tea.secret_token) == (Decimal("4.50"), "hunter2")


def test_a_primary_key_is_written_once(drinks: Category) -> None:
    client = as_user(user())
    assert get_result(client, "category_create", values={"slug": "teas", "name": "Teas"})["pk"] == "teas"
    assert "slug" in get_error(client, "category_update", pk="drinks", values={"slug": "beverages"})
    assert sorted(Category.objects.values_list("pk", flat=True)) == ["drinks", "teas"]


class Scoped(Categories):
    """Categories below "hidden" are not for everybody."""

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).exclude(slug__startswith="hidden")


def test_a_reference_accepts_only_rows_that_the_caller_may_see(tea: Product) -> None:
    Category.objects.create(slug="hidden", name="Hidden")
    client = as_user(user(), Scoped, Tags, Products)
    errors = get_field_errors(client, "product_update", pk=tea.pk, values={"category": "hidden"})
    assert errors == get_field_errors(client, "product_update", pk=tea.pk, values={"category": "absent"})
    viewer = user("tim", "shop.view_product", "shop.change_product")
    assert get_field_errors(
        as_user(viewer, Scoped, Tags, Products), "product_update", pk=tea.pk, values={"category": "drinks"}
    )
    tea.refresh_from_db()
    assert tea.category_id == "drinks"


def test_a_hidden_reference_is_kept_when_other_values_change(tea: Product) -> None:
    tea.category = Category.objects.create(slug="hidden", name="Hidden")
    tea.save()
    client = as_user(user(), Scoped, Tags, Products)
    get_result(client, "product_update", pk=tea.pk, values={"stock": 9})
    tea.refresh_from_db()
    assert (tea.category_id, tea.stock) == ("hidden", 9)


def test_hidden_rows_are_kept_in_a_relation_to_many(tea: Product) -> None:
    class SomeTags(Tags):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).exclude(name="internal")

    internal, green = Tag.objects.create(name="internal"), Tag.objects.create(name="green")
    tea.tags.add(internal)
    client = as_user(user(), SomeTags, Products)
    result = get_result(client, "product_update", pk=tea.pk, values={"tags": [green.pk]})
    assert [tag["label"] for tag in result["item"]["tags"]] == ["green"]
    assert {tag.name for tag in tea.tags.all()} == {"green", "internal"}
    assert get_field_errors(client, "product_update", pk=tea.pk, values={"tags": [internal.pk]})


def test_a_row_hidden_by_the_project_is_no_choice(tea: Product) -> None:
    class Picky(Categories):
        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return obj is None or obj.pk != "secret"

    Category.objects.create(slug="secret", name="Secret")
    client = as_user(user(), Picky, Tags, Products)
    errors = get_field_errors(client, "product_update", pk=tea.pk, values={"category": "secret"})
    assert errors == get_field_errors(client, "product_update", pk=tea.pk, values={"category": "absent"})


def test_without_a_toolset_the_form_limits_the_choices_of_a_reference(tea: Product) -> None:
    class Form(forms.ModelForm):  # type: ignore[type-arg]
        class Meta:
            model = Product
            fields = ("name", "supplier", "stock")

        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            field = self.fields["supplier"]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = Supplier.objects.filter(name__startswith="A")

    class Bounded(Products):
        form = Form

    ours, theirs = (Supplier.objects.create(name=name, bank_account="1") for name in ("A", "B"))
    client = as_user(user(), Bounded)
    get_result(client, "product_update", pk=tea.pk, values={"supplier": ours.pk})
    assert get_field_errors(client, "product_update", pk=tea.pk, values={"supplier": theirs.pk})
    assert "price" in get_error(client, "product_update", pk=tea.pk, values={"price": "1"})


def test_a_form_of_the_project_validates_and_requires_more(tea: Product) -> None:
    reasons: list[str] = []

    class Form(forms.ModelForm):  # type: ignore[type-arg]
        reason = forms.CharField(max_length=50)

        class Meta:
            model = Product
            fields = ("name", "category", "price", "stock", "cost")

        def clean(self) -> dict[str, Any]:
            cleaned = super().clean() or {}
            # The form has values that the client did not send.
            assert cleaned["category"].pk == "drinks"
            assert cleaned["price"] == Decimal("4.50")
            if cleaned["stock"] > 10:
                self.add_error("stock", "The shelf is full.")
            return cleaned

    class Reasoned(Products):
        form = Form

        def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
            reasons.append(form.cleaned_data["reason"])
            super().save_model(ctx, obj, form, change)

    client = as_user(user(), Reasoned)
    assert get_field_errors(client, "product_update", pk=tea.pk, values={"stock": 11, "reason": "more"}) == {
        "stock": ["The shelf is full."]
    }
    assert "reason" in get_error(client, "product_update", pk=tea.pk, values={"stock": 5})
    get_result(client, "product_update", pk=tea.pk, values={"stock": 5, "reason": "more"})
    assert reasons == ["more"]
    # Fields of the form that the toolset does not show cannot be written.
    assert "cost" in get_error(client, "product_update", pk=tea.pk, values={"cost": "0", "reason": "x"})


def test_a_form_chosen_for_the_call_limits_the_writable_fields(tea: Product) -> None:
    class Narrow(forms.ModelForm):  # type: ignore[type-arg]
        class Meta:
            model = Product
            fields = ("stock",)

    class ByUser(Products):
        def get_form_class(self, ctx: Context) -> Any:
            return super().get_form_class(ctx) if ctx.user.username == "boss" else Narrow

    assert get_field_errors(as_user(user(), ByUser), "product_update", pk=tea.pk, values={"name": "x"}) == {
        "name": ["This field cannot be written."]
    }
    get_result(as_user(user("boss"), ByUser), "product_update", pk=tea.pk, values={"name": "x"})


def test_each_verb_needs_its_own_permission(subtests: pytest.Subtests) -> None:
    for permissions, verbs in (
        (["shop.view_product"], {"get", "history"}),
        (["shop.add_product"], {"create"}),
        (["shop.change_product"], {"update"}),
        (["shop.delete_product"], {"delete"}),
    ):
        with subtests.test(permissions=permissions, verbs=verbs), rolled_back():
            from asgiref.sync import async_to_sync

            client = as_user(user("tim", *permissions), Products)
            assert {name.removeprefix("product_") for name in async_to_sync(client.names)()} == verbs


def test_hidden_fields_are_not_described() -> None:
    class Described(Products):
        tools = ("describe", "get", "create", "update", "delete")

    result = get_result(as_user(user("tim", "shop.view_product", "shop.change_product"), Described), "product_describe")
    assert result["tools"] == ["product_describe", "product_get", "product_update"]


def test_a_writer_without_view_permission_is_shown_no_values(tea: Product) -> None:
    client = as_user(user("tim", "shop.add_product", "shop.change_product"), Products)
    result = get_result(client, "product_create", values={"name": "Coffee"})
    assert (result["item"], result["pk"]) == (None, Product.objects.get(name="Coffee").pk)
    assert get_result(client, "product_update", pk=tea.pk, values={"stock": 1})["item"] is None


def test_permission_hooks_can_refuse_single_rows(tea: Product) -> None:
    class Mine(Products):
        def has_change_permission(self, ctx: Context, obj: Any = None) -> bool:
            return obj is None or obj.name == "Coffee"

        def has_delete_permission(self, ctx: Context, obj: Any = None) -> bool:
            return obj is None or obj.name == "Coffee"

    client = as_user(user(), Mine)
    assert "You may not" in get_error(client, "product_update", pk=tea.pk, values={"stock": 1})
    assert "You may not" in get_error(client, "product_delete", pk=tea.pk)
    # The error does not reveal rows that the caller may not view.
    stranger = user("tim", "shop.change_product")
    assert get_error(as_user(stranger, Mine), "product_update", pk=tea.pk, values={"stock": 1}) == (
        f"There is no product with the primary key '{tea.pk}'"
    )
    assert "hunter2" not in get_error(client, "product_update", pk=tea.pk, values={"stock": 1})


def test_hidden_rows_are_refused_like_absent_rows(tea: Product) -> None:
    class Visible(Products):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).exclude(pk=tea.pk)

    client = as_user(user(), Visible)
    for tool, more in (("update", {"values": {"stock": 1}}), ("delete", {}), ("history", {})):
        text = get_error(client, f"product_{tool}", pk=tea.pk, **more)
        assert text.replace(str(tea.pk), "…") == get_error(client, f"product_{tool}", pk=9999, **more).replace(
            "9999", "…"
        )


def test_database_errors_are_reported_without_their_message(tea: Product) -> None:
    class Broken(Products):
        def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
            Tag.objects.create(name="hot")

    text = get_error(as_user(user(), Broken), "product_update", pk=tea.pk, values={"stock": 1})
    assert "The database rejected the write" in text
    assert "tag" not in text.lower()


def test_a_write_is_all_or_nothing(tea: Product) -> None:
    class Failing(Products):
        def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
            super().save_model(ctx, obj, form, change)
            raise RuntimeError("a bug")

    assert "Internal error" in get_error(as_user(user(), Failing), "product_update", pk=tea.pk, values={"stock": 99})
    tea.refresh_from_db()
    assert tea.stock == 3
    assert not LogEntry.objects.exists()


def test_schemas_list_the_writable_fields() -> None:
    from asgiref.sync import async_to_sync

    listed = async_to_sync(as_user(user()).request)("tools/list")["tools"]
    tools = {tool["name"]: tool for tool in listed}
    new = tools["product_create"]["inputSchema"]["properties"]["values"]
    assert new["required"] == ["name"]
    assert new["properties"]["name"]["maxLength"] == 120
    assert new["properties"]["category"]["description"] == "A primary key"
    assert new["properties"]["status"] == {
        "title": "Status",
        "type": "string",
        "enum": ["draft", "active", "gone"],
        "description": "draft: Draft; active: Active; gone: Gone",
    }
    assert not {"cost", "secret_token", "manual", "id"} & set(new["properties"])
    change = tools["product_update"]["inputSchema"]["properties"]["values"]
    assert "required" not in change
    assert tools["product_delete"]["annotations"]["destructiveHint"] is True
    assert "slug" not in tools["category_update"]["inputSchema"]["properties"]["values"]["properties"]


def test_a_toolset_can_write_without_reading_tools() -> None:
    class Inbox(ModelToolset):
        model = Tag
        fields = ("name",)
        tools = ("create",)

    assert get_result(as_user(user(), Inbox), "tag_create", values={"name": "new"})["item"]["name"] == "new"
