"""Values of methods and properties that have no JSON form of their own."""

import logging
from decimal import Decimal
from typing import Any

import pytest

from mcp_django import ModelToolset
from tests.orm.writing import as_user, get_error, get_result, user
from tests.shop.models import Parcel, Supplier

pytestmark = pytest.mark.django_db


class Amount:
    """A class without a JSON form, whose text people read."""

    def __str__(self) -> str:
        return "CHF 7.50"


class Bare:
    """A class with neither a JSON form nor a text."""


def build_client(value: Any) -> Any:
    class Parcels(ModelToolset):
        model = Parcel
        fields = ("label", "fees")
        tools = ("list",)

        def fees(self, parcel: Any):  # type: ignore[no-untyped-def]
            return value

    Parcel.objects.create(label="a", weight=1)
    return as_user(user(), Parcels)


def test_an_object_without_a_json_form_is_shown_as_its_text() -> None:
    client = build_client({"all": [Amount(), Decimal("1.5")], "none": None})
    (row,) = get_result(client, "parcel_list")["items"]
    assert row["fees"] == {"all": ["CHF 7.50", "1.5"], "none": None}


def test_a_row_or_an_object_without_a_text_is_an_error_that_names_the_field(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    supplier = Supplier.objects.create(name="Secret supplier", bank_account="1")
    for number, value in enumerate((supplier, Supplier.objects.all(), Supplier.objects, Bare(), [Bare])):
        with subtests.test(value=type(value).__name__), caplog.at_level(logging.ERROR):
            Parcel.objects.all().delete()
            caplog.clear()

            class Parcels(ModelToolset):
                model = Parcel
                fields = ("label", "fees")
                tools = ("list",)
                shown = value

                def fees(self, parcel: Any):  # type: ignore[no-untyped-def]
                    return self.shown

            Parcel.objects.create(label="a", weight=1)
            text = get_error(as_user(user(f"user{number}"), Parcels), "parcel_list")
            assert "Internal error" in text
            assert "Secret supplier" not in text
            assert "'fees': " in caplog.text
            assert "has no JSON form" in caplog.text
