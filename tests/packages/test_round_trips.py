"""Columns of packages: a shown value finds its row, and writing it back changes nothing."""

import uuid
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from djmoney.money import Money
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recurrence import DAILY, WEEKLY, Recurrence, Rule

from tests.orm.round_trips import check_round_trip
from tests.packages.models import Level, Shade, Story, Trip

pytestmark = pytest.mark.django_db

EXAMPLES = settings(
    max_examples=5, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
COUNTRIES = st.sampled_from(["CH", "DE", "NZ", "US"])
TEXTS = st.text("abcdefgh ", max_size=10).map(str.strip)
RULES = st.builds(
    lambda frequency, interval: Rule(frequency, interval=interval), st.sampled_from([DAILY, WEEKLY]), st.integers(1, 9)
)


def build_block(kind: str, value: Any, key: uuid.UUID) -> dict[str, Any]:
    """Return a block as Wagtail stores it."""
    return {"type": kind, "value": value, "id": str(key)}


KEYS = st.uuids()
NAMES = st.lists(st.builds(build_block, st.just("item"), TEXTS.filter(bool), KEYS), min_size=1, max_size=3)
CARDS = st.builds(lambda number, names: {"number": number, "names": names}, st.integers(-9, 9), NAMES)
BLOCKS = st.one_of(
    st.builds(build_block, st.just("heading"), TEXTS.filter(bool), KEYS),
    st.builds(build_block, st.just("card"), CARDS, KEYS),
)
VALUES: dict[tuple[type[Any], str], st.SearchStrategy[Any]] = {
    (Trip, "price"): st.builds(Money, st.decimals(0, 9999, places=2), st.sampled_from(["CHF", "EUR"])),
    (Trip, "country"): COUNTRIES,
    (Trip, "stops"): st.lists(COUNTRIES, max_size=3, unique=True),
    (Trip, "extras"): st.lists(st.sampled_from(["bus", "hut", "ski"]), unique=True),
    (Trip, "shade"): st.sampled_from(Shade),
    (Trip, "level"): st.sampled_from(Level),
    (Trip, "phone"): st.sampled_from(["", "+41446681800", "+442083661177"]),
    (Trip, "zone"): st.sampled_from(["UTC", "Europe/Zurich", "America/Lima"]),
    (Trip, "rooms"): st.lists(TEXTS.filter(bool), max_size=3),
    (Trip, "repeats"): st.builds(lambda rule: Recurrence(rrules=[rule]), RULES),
    (Story, "body"): st.lists(BLOCKS, max_size=3),
}


@pytest.mark.parametrize(("row_model", "name"), VALUES, ids=lambda value: getattr(value, "__name__", value))
def test_shown_value_finds_its_row_and_is_written_back(row_model: type[Any], name: str) -> None:
    @EXAMPLES
    @given(VALUES[row_model, name])
    def check(value: Any) -> None:
        async_to_sync(check_round_trip)(row_model, name, value, **({"price": 5} if row_model is Trip else {}))

    check()
