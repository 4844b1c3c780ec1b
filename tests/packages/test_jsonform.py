"""django-jsonform: JSON whose form field validates it by a schema, and asks its own widget."""

import pytest

from tests.packages.models import Trip
from tests.packages.trips import TripColumn

pytestmark = pytest.mark.django_db


def test_json_is_written_if_it_fits_the_schema_of_its_column() -> None:
    rooms = TripColumn("rooms")
    assert rooms.update(["single", "double"]) == ["single", "double"]
    for wrong in ([1], {"single": 1}, "single", 1, None):
        assert rooms.get_problem(wrong)
    assert Trip.objects.get().rooms == ["single", "double"]
