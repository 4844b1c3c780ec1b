"""Distances, search and regions, which the tools use."""

import datetime
import random

import pytest
from django.contrib.auth.models import User

from mcp_django import ToolError
from project.airports import sources
from project.airports.geodesy import box_around, distance_km
from project.airports.models import Airport, Country, Region, Trip
from project.airports.shapes import TripForm
from project.airports.text import fold
from project.airports.trips import save_trip

POINTS = [(47.4, 8.5), (-17.7, 179.99), (-17.7, -179.99), (-17.0, 180.0), (-17.0, -180.0), (90.0, 0.0), (-90.0, 77.0)]


@pytest.fixture(scope="module")
def finder() -> sources.RegionFinder:
    """A finder that knows the whole world."""
    return sources.RegionFinder(sources.regions())


def test_distance_is_that_of_the_great_circle() -> None:
    assert distance_km(51.4706, -0.461941, 40.639751, -73.778925) == pytest.approx(5540, rel=0.005)
    assert distance_km(0, 179.5, 0, -179.5) == pytest.approx(111.2, rel=0.001)
    assert distance_km(0, 0, 0, 180) == pytest.approx(20015, rel=0.001)
    assert distance_km(10, 20, 10, 20) == 0


def test_the_box_around_a_point_contains_every_point_of_the_circle() -> None:
    numbers = random.Random(7)
    for _ in range(3000):
        latitude, longitude = numbers.uniform(-90, 90), numbers.uniform(-180, 180)
        other_latitude, other_longitude = numbers.uniform(-90, 90), numbers.uniform(-180, 180)
        box = box_around(latitude, longitude, distance_km(latitude, longitude, other_latitude, other_longitude))
        assert box.south <= other_latitude <= box.north
        if box.west <= box.east:
            assert box.west <= other_longitude <= box.east
        else:
            assert other_longitude >= box.west or other_longitude <= box.east


@pytest.mark.django_db
@pytest.mark.parametrize(("latitude", "longitude"), POINTS)
def test_nearest_agrees_with_measuring_every_airport(latitude: float, longitude: float) -> None:
    rows = Airport.objects.values_list("latitude", "longitude", "pk")
    measured = sorted((distance_km(latitude, longitude, lat, lon), pk) for lat, lon, pk in rows)
    nearest = Airport.objects.nearest(latitude, longitude, 7)
    assert [(airport.pk, distance) for airport, distance in nearest] == [(pk, d) for d, pk in measured[:7]]


@pytest.mark.django_db
def test_nearest_looks_across_the_antimeridian() -> None:
    sides = {airport.longitude > 0 for airport, _ in Airport.objects.nearest(-17.7, 179.99, 20)}
    assert sides == {True, False}


@pytest.mark.django_db
def test_nearest_stops_at_the_distance_asked_for() -> None:
    assert Airport.objects.nearest(0, -30, 5, within_km=500) == []
    assert len(Airport.objects.nearest(0, -30, 5)) == 5


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["Zürich", "zurich", "ZRH", "LSZH", "airport zur"])
def test_search_finds_by_code_and_by_words_without_regard_to_accents(text: str) -> None:
    first = Airport.objects.search(text).first()
    assert first is not None
    assert first.icao == "LSZH"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Zürich", "zurich"),
        ("Ørland", "orland"),
        ("O\N{RIGHT SINGLE QUOTATION MARK}Hare Int'l", "ohare intl"),
        ("S\N{LATIN SMALL LETTER DOTLESS I}rnak", "sirnak"),
    ],
)
def test_folding_yields_plain_letters(text: str, plain: str) -> None:
    assert fold(text) == plain


@pytest.mark.parametrize(
    ("country", "name", "code"),
    [
        ("CH", "Zurich", "CH-ZH"),
        ("AU", "Northern Territory", "AU-NT"),
        ("SE", "Vaestra-Gotaland", "SE-O"),
        ("RU", "Irkutsk", "RU-IRK"),
        ("CN", "Xinjiang", "CN-XJ"),
        ("RU", "Sakha", None),
        ("TW", "Taiwan", None),
        ("NO", "Hordaland", None),
        ("SD", "Western Darfur", None),
        ("CH", "", None),
        ("XK", "Pristina", None),
    ],
)
def test_a_region_is_found_by_name_and_never_guessed(
    finder: sources.RegionFinder, country: str, name: str, code: str | None
) -> None:
    assert finder.find(country, name) == code


@pytest.mark.django_db
def test_the_loaded_rows_are_consistent() -> None:
    zurich = Airport.objects.select_related("country", "region").get(icao="LSZH")
    assert (zurich.iata, zurich.country.name, zurich.region and zurich.region.code) == ("ZRH", "Switzerland", "CH-ZH")
    assert Country.objects.count() == 3
    assert Region.objects.filter(country="CH").count() == 26
    placed = Airport.objects.exclude(region=None)
    assert placed.count() > 0.8 * Airport.objects.count()


@pytest.mark.django_db
def test_saving_a_trip_is_idempotent() -> None:
    owner = User.objects.create_user("traveller")
    route = [Airport.objects.get(icao=code) for code in ("LSZH", "NFFN", "NZAA")]
    form = TripForm(name="Far", depart_on=datetime.date(2030, 1, 2))
    trip = save_trip(owner, form, route)
    assert trip == save_trip(owner, form, route)
    assert trip.route == ["ZRH", "NAN", "AKL"]
    assert trip.length_km == pytest.approx(18_800, rel=0.02)
    assert Trip.objects.filter(owner=owner).count() == 1
    with pytest.raises(ToolError, match="another trip called 'Far'"):
        save_trip(owner, form, route[:2])
