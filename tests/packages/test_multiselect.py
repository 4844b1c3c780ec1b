"""django-multiselectfield: several choices in one column."""

import pytest

from tests.orm.writing import get_error, get_result
from tests.packages.trips import TripColumn

pytestmark = pytest.mark.django_db


def test_several_choices_are_a_list() -> None:
    extras = TripColumn("extras")
    assert extras.create(extras=["hut"])["extras"] == ["hut"]
    assert extras.update(["bus", "ski"]) == ["bus", "ski"]
    assert (extras.count("ski", "contains"), extras.count("bus", "contains")) == (1, 1)
    assert extras.update([]) == []
    assert extras.update(None) == []
    text = get_error(extras.client, "trip_update", pk=extras.pk, values={"extras": ["boat"]})
    assert text.startswith("values.extras[0]")


def test_the_choices_are_described_one_by_one() -> None:
    extras = TripColumn("extras")
    assert extras.get_schema()["anyOf"][0]["items"] == {"type": "string", "enum": ["bus", "hut", "ski"]}
    described = {one["name"]: one for one in get_result(extras.client, "trip_describe")["fields"]}
    assert described["extras"]["choices"][0] == {"value": "bus", "label": "Bus"}
    assert described["extras"]["lookups"] == ["contains", "isnull"]
