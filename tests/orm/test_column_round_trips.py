"""A property of all columns: a shown value finds its row, and writing it back changes nothing."""

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.db import models
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.columns.fields import LabelPath, LevelField, Shade
from tests.columns.models import Measurement, Paint
from tests.orm.round_trips import check_round_trip

pytestmark = pytest.mark.django_db

EXAMPLES = settings(
    max_examples=8, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
BIG = st.integers(-(1 << 63), (1 << 63) - 1)
# A form removes spaces around a text, as in the admin.
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30).map(str.strip)
YEAR = dt.timedelta(days=365)
MOMENTS = st.timedeltas(-100 * YEAR, 100 * YEAR).map(lambda age: dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + age)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
VALUES: dict[tuple[type[models.Model], str], st.SearchStrategy[Any]] = {
    (Measurement, "name"): TEXTS,
    (Measurement, "text"): TEXTS,
    (Measurement, "small"): st.integers(-32768, 32767),
    (Measurement, "number"): st.integers(-(1 << 31), (1 << 31) - 1),
    (Measurement, "big"): BIG,
    (Measurement, "size"): st.integers(0, (1 << 63) - 1),
    (Measurement, "price"): st.decimals(-999999, 999999, places=2),
    (Measurement, "weight"): st.floats(allow_nan=False, allow_infinity=False, width=32),
    (Measurement, "is_new"): st.booleans(),
    (Measurement, "day"): st.dates(),
    (Measurement, "moment"): MOMENTS,
    (Measurement, "opens"): st.times(),
    (Measurement, "lasts"): st.timedeltas(dt.timedelta(days=-99_999), dt.timedelta(days=99_999)),
    (Measurement, "key"): st.uuids(),
    (Measurement, "address"): st.ip_addresses().map(str),
    (Measurement, "details"): JSON,
    (Paint, "shade"): st.sampled_from(Shade),
    (Paint, "level"): st.sampled_from(LevelField.Member),
    (Paint, "zone"): st.sampled_from([ZoneInfo("UTC"), ZoneInfo("Europe/Zurich")]),
    (Paint, "path"): st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5}){0,3}", fullmatch=True).map(LabelPath),
}


@pytest.mark.parametrize(("row_model", "name"), VALUES, ids=lambda value: getattr(value, "__name__", value))
def test_shown_value_finds_its_row_and_is_written_back(row_model: type[models.Model], name: str) -> None:
    @EXAMPLES
    @given(VALUES[row_model, name])
    def check(value: Any) -> None:
        async_to_sync(check_round_trip)(row_model, name, value)

    check()
