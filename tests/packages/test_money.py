"""django-money: amounts with currencies."""

import pytest

from tests.orm.writing import as_user, get_error, get_result, user
from tests.packages.models import Trip
from tests.packages.trips import TripColumn, Trips

pytestmark = pytest.mark.django_db


def test_an_amount_keeps_the_currency_of_its_row() -> None:
    price = TripColumn("price")
    assert price.update({"amount": "7.50", "currency": "EUR"}) == "7.50"
    assert price.update("8.25") == "8.25"
    assert price.update(9) == "9.00"
    assert str(Trip.objects.get().price.currency) == "EUR"
    assert price.count("9.00", "gte") == 1
    assert price.count("9.01", "gte") == 0


def test_a_new_row_has_the_default_currency_unless_one_is_given() -> None:
    price = TripColumn("price")
    assert price.create()["price_currency"] == "CHF"
    assert price.create(price={"amount": 3, "currency": "USD"})["price_currency"] == "USD"
    found = get_result(price.client, "trip_list", filters={"price_currency": "USD"})["items"]
    assert [row["price"] for row in found] == ["3.00"]


def test_an_optional_amount_is_cleared_and_set_again() -> None:
    deposit = TripColumn("deposit")
    assert deposit.create(deposit="2.00")["deposit"] == "2.00"
    assert deposit.update({"amount": "1.00", "currency": "EUR"}) == "1.00"
    assert deposit.update(None) is None
    assert deposit.update("3.00") == "3.00"


def test_wrong_amounts_and_currencies_are_errors_of_the_field() -> None:
    price = TripColumn("price")
    assert "decimal number" in price.get_problem("much")
    assert "not one of the available choices" in price.get_problem({"amount": "1.00", "currency": "XXQ"})
    for value in ({"amount": "1.00"}, {"amount": "1.00", "currency": "EUR", "rate": 1}, ["1.00", "EUR"], None):
        assert "values.price" in get_error(price.client, "trip_update", pk=price.pk, values={"price": value})
    assert (Trip.objects.get().price.amount, str(Trip.objects.get().price_currency)) == (7.25, "CHF")


def test_an_amount_without_a_default_is_required_and_empty_in_a_new_form() -> None:
    class AppTrips(Trips):
        app = True

    client = as_user(user("val"), AppTrips)
    text = get_error(client, "trip_create", values={"name": "Alps", "country": "CH"})
    assert text == "values: missing key 'price'"
    fields = {field["name"]: field for field in get_result(client, "trip_create_form")["fields"]}
    assert (fields["price"]["required"], fields["price"]["value"]) == (True, None)
    assert (fields["deposit"]["required"], fields["deposit"]["value"]) == (False, None)


def test_the_values_of_a_form_of_a_row_change_nothing() -> None:
    class AppTrips(Trips):
        app = True

    client = as_user(user("val"), AppTrips)
    values = {"name": "Alps", "country": "CH", "price": {"amount": "1.00", "currency": "EUR"}, "tags": ["snow"]}
    pk = get_result(client, "trip_create", values=values)["pk"]
    form = get_result(client, "trip_update_form", pk=pk)
    shown = {field["name"]: field["value"] for field in form["fields"]}
    result = get_result(client, "trip_update", pk=pk, values=shown)
    assert (result["changed"], result["item"]["price_currency"]) == ([], "EUR")
    assert list(Trip.objects.get(pk=pk).tags.names()) == ["snow"]
