"""django-enumfields: members of an enum, as their values."""

import pytest

from tests.orm.writing import get_error
from tests.packages.models import Level, Shade, Trip
from tests.packages.trips import TripColumn

pytestmark = pytest.mark.django_db


MEMBERS = [("shade", "b", "r", Shade.BLUE), ("level", 2, 1, Level.HARD)]


@pytest.mark.parametrize(("name", "value", "other", "member"), MEMBERS)
def test_a_member_is_read_filtered_and_written_by_its_value(
    name: str, value: object, other: object, member: object
) -> None:
    column = TripColumn(name)
    assert column.create(**{name: value})[name] == value
    assert column.update(value) == value
    assert getattr(Trip.objects.get(pk=column.pk), name) is member
    assert (column.count(value), column.count(other)) == (2, 0)
    assert column.get_schema()["enum"] == [other, value]
    for wrong in ("Shade.RED", 7, None):
        assert f"values.{name}" in get_error(column.client, "trip_update", pk=column.pk, values={name: wrong})
