"""django-countries: codes of countries, single and several."""

from typing import Any

import pytest
from django.test import override_settings
from django_countries import countries

from tests.packages.models import Trip
from tests.packages.trips import TripColumn

pytestmark = pytest.mark.django_db


def test_a_country_is_read_filtered_and_written_by_its_code() -> None:
    country = TripColumn("country")
    assert "One of 249 choices, such as AF: Afghanistan" in country.get_schema()["description"]
    assert country.update("DE") == "DE"
    assert (country.count("DE"), country.count("CH")) == (1, 0)
    assert "not one of the available choices" in country.get_problem("XX")


def test_several_countries_are_a_list_of_codes() -> None:
    stops = TripColumn("stops")
    assert stops.create(stops=["FR", "DE"])["stops"] == ["DE", "FR"]
    assert stops.update(["IT"]) == ["IT"]
    assert (stops.count("FR", "contains"), stops.count("AT", "contains")) == (1, 0)
    assert "not one of the available choices" in stops.get_problem(["IT", "XX"])
    assert [country.code for country in Trip.objects.get(pk=stops.pk).stops] == ["IT"]
    assert stops.update([]) == []
    assert stops.update(None) == []


@pytest.fixture
def repeated_first(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Repeat a country at the begin of the choices, of which there are few."""
    with override_settings(
        COUNTRIES_FIRST=["CH"],
        COUNTRIES_FIRST_REPEAT=True,
        COUNTRIES_ONLY=["AT", "CH", "DE"],
        COUNTRIES_FIRST_BREAK="-",
    ):
        del countries.countries
        yield
    del countries.countries


@pytest.mark.usefixtures("repeated_first")
def test_a_country_that_is_listed_twice_is_written() -> None:
    country = TripColumn("country")
    assert country.get_schema()["enum"] == ["CH", "AT", "DE"]
    assert country.update("CH") == "CH"
