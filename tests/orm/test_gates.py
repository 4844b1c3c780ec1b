"""Permissions of a class apply to its rows everywhere: paths, labels, references, inlines."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django import ModelInline, ModelToolset
from mcp_django.auth.principal import DjangoPrincipal
from tests.orm.toolsets import shop
from tests.orm.writing import call, get_field_errors, get_result, user
from tests.server.client import PipelineClient
from tests.shop.models import Product, Supplier
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


class Suppliers(ModelToolset):
    model = Supplier
    fields = ("name", "bank_account")


async def never(principal: Any) -> bool:
    return False


class ByPermission(Suppliers):
    permission = "shop.audit_supplier"


class ByScope(Suppliers):
    scopes = ("finance",)


class ByFunction(Suppliers):
    permission = never


class Products(ModelToolset):
    model = Product
    fields = ("name", "supplier", "supplier__bank_account")
    list_filter = "__all__"
    tools = ("list", "create")


class SupplierProducts(ModelInline):
    model = Product
    name = "products"
    fields = ("name",)


class WithProducts(Suppliers):
    inlines = (SupplierProducts,)
    tools = ("get", "update")


class GuardedProducts(Products):
    permission = "shop.audit_product"


@pytest.fixture
def supplier() -> Supplier:
    made = Supplier.objects.create(name="Acme", bank_account="CH93")
    Product.objects.create(name="Tea", supplier=made)
    return made


def client(who: User, *toolsets: type[ModelToolset], scopes: frozenset[str] = frozenset()) -> PipelineClient:
    return PipelineClient(
        shop(*toolsets), principal=DjangoPrincipal(issuer="tests", subject="x", user=who, scopes=scopes)
    )


RIGHTS = ("shop.view_product", "shop.view_supplier", "shop.add_product", "shop.change_supplier")


def test_rows_of_a_guarded_toolset_are_hidden_behind_a_relation(supplier: Supplier, subtests: pytest.Subtests) -> None:
    for suppliers in (ByPermission, ByScope, ByFunction):
        with subtests.test(suppliers=suppliers), rolled_back():
            peer = client(user("tim", *RIGHTS), Products, suppliers)
            (row,) = get_result(peer, "product_list")["items"]
            assert row == {"pk": row["pk"], "name": "Tea", "supplier": {"pk": supplier.pk}}
            result = call(peer, "product_list", filters={"supplier__bank_account__startswith": "CH"})
            assert "unknown filter" in result["content"][0]["text"]
            assert "supplier" in get_field_errors(
                peer, "product_create", values={"name": "Coffee", "supplier": supplier.pk}
            )


def test_rows_are_visible_to_callers_with_the_permissions_of_the_class(supplier: Supplier) -> None:
    peer = client(user("tim", *RIGHTS), Products, ByScope, scopes=frozenset({"finance"}))
    (row,) = get_result(peer, "product_list", filters={"supplier__bank_account": "CH93"})["items"]
    assert (row["supplier"]["label"], row["supplier__bank_account"]) == ("Acme", "CH93")


def test_an_inline_needs_the_permissions_of_the_toolset_of_its_model(supplier: Supplier) -> None:
    peer = client(user("tim", *RIGHTS), WithProducts, GuardedProducts)
    assert "products" not in get_result(peer, "supplier_get", pk=supplier.pk)
    given = {"pk": supplier.pk, "inlines": {"products": {"add": [{"name": "Coffee"}]}}}
    assert "unknown inline" in call(peer, "supplier_update", **given)["content"][0]["text"]
