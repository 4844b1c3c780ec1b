"""django-timezone-field: time zones by their names."""

import pytest

from tests.orm.writing import get_error
from tests.packages.trips import TripColumn

pytestmark = pytest.mark.django_db


def test_a_zone_is_read_filtered_and_written_by_its_name() -> None:
    zone = TripColumn("zone")
    assert zone.create()["zone"] == "Europe/Zurich"
    assert zone.update("Asia/Tokyo") == "Asia/Tokyo"
    assert (zone.count("Asia/Tokyo"), zone.count("Europe/Zurich")) == (1, 1)
    assert "not one of the available choices" in zone.get_problem("Mars/Base")
    assert "values.zone" in get_error(zone.client, "trip_update", pk=zone.pk, values={"zone": None})
    assert zone.get_schema()["description"].startswith("One of ")
