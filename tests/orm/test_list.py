"""`list` and `get`, end to end."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.orm.toolsets import Products, data, peer
from tests.shop.models import Category, Product, Supplier, Tag

pytestmark = pytest.mark.django_db


@pytest.fixture
def tea() -> Product:
    drinks = Category.objects.create(slug="drinks", name="Drinks")
    supplier = Supplier.objects.create(name="Hidden Ltd", bank_account="CH99")
    product = Product.objects.create(
        name="Tea",
        category=drinks,
        supplier=supplier,
        price=Decimal("4.50"),
        cost=Decimal("1.25"),
        stock=3,
        weight=0.25,
        details={"origin": ["Assam"]},
        manual="manuals/tea.pdf",
        released=dt.date(2026, 1, 31),
        opens=dt.time(8, 30),
        lasts=dt.timedelta(days=1, hours=2),
        updated=dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
        ip="192.0.2.1",
        blob=b"tea",
        secret_token="hunter2",
    )
    product.tags.set([Tag.objects.create(name="hot"), Tag.objects.create(name="green")])
    return product


async def test_a_row_shows_every_kind_of_field(tea: Product) -> None:
    client = peer()
    row = await data(client, "product_get", pk=tea.pk)
    assert row == {
        "pk": tea.pk,
        "name": "Tea",
        "category": {"pk": "drinks", "label": "Drinks", "uri": "shop.category://drinks"},
        "category__name": "Drinks",
        "supplier": tea.supplier_id,
        "tags": [{"pk": t.pk, "label": t.name, "uri": f"shop.tag://{t.pk}"} async for t in Tag.objects.order_by("pk")],
        "price": "4.50",
        "stock": 3,
        "weight": 0.25,
        "status": "active",
        "is_new": False,
        "details": {"origin": ["Assam"]},
        "manual": {"name": "manuals/tea.pdf", "url": "/manuals/tea.pdf"},
        "released": "2026-01-31",
        "opens": "08:30:00",
        "lasts": "P1DT02H00M00S",
        "updated": "2026-01-31T12:00:00+00:00",
        "ip": "192.0.2.1",
        "blob": "dGVh",
        "margin": 3.25,
        "loud": "TEA",
    }
    listed = await data(client, "product_list")
    assert listed == {"items": [row], "next_cursor": None, "total": None}


async def test_columns_alone_make_the_same_row_as_instances(tea: Product) -> None:
    client = peer()
    whole = await data(client, "product_get", pk=tea.pk)
    names = [name for name in Products.fields if name not in ("margin", "loud")]
    part = await data(client, "product_get", pk=tea.pk, fields=names)
    assert part == {name: value for name, value in whole.items() if name not in ("margin", "loud")}


async def test_null_values_are_listed_as_null(db: Any) -> None:
    bare = await Product.objects.acreate(name="Bare")
    row = await data(peer(), "product_get", pk=bare.pk)
    nulls = {name for name, value in row.items() if value is None}
    assert nulls == {
        *("category", "category__name", "supplier", "weight", "manual", "released", "opens", "lasts", "updated"),
        *("ip", "blob"),
    }


async def test_pages_follow_each_other(db: Any) -> None:
    await sync_to_async(Product.objects.bulk_create)([Product(name=f"P{n:02}", stock=n % 3) for n in range(25)])
    client = peer()
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = await data(client, "product_list", order_by=["-stock", "name"], limit=7, fields=["name"], **cursor)
        seen += [row["name"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    expected = [p.name async for p in Product.objects.order_by("-stock", "name")]
    assert seen == expected


async def test_filters_limit_the_rows(tea: Product) -> None:
    await Product.objects.acreate(name="Coffee", stock=0)
    client = peer()

    async def names(**filters: Any) -> list[str]:
        page = await data(client, "product_list", filters=filters, fields=["name"])
        return [row["name"] for row in page["items"]]

    assert await names(name="Tea") == ["Tea"]
    assert await names(category__name__icontains="drink") == ["Tea"]
    assert await names(tags__in=[(await Tag.objects.aget(name="hot")).pk]) == ["Tea"]
    assert await names(**{"not": {"category": "drinks"}}) == ["Coffee"]
    assert await names(**{"or": [{"stock": 0}, {"price__gte": 4}]}) == ["Coffee", "Tea"]


async def test_an_absent_row_is_not_found(db: Any) -> None:
    assert await peer().error("product_get", pk=99) == "There is no product with the primary key '99'"
