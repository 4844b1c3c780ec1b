"""The demo's trip editor without a browser: its page, the text for clients without apps, and rules for saving."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User

from mcp_django.testing import TestClient
from project.airports.models import Trip

pytestmark = pytest.mark.django_db
VALUES = {"name": "Alps", "depart_on": "2030-05-01", "origin": "zrh", "destination": "GVA", "stops": "BRN"}


@pytest.fixture
def traveller() -> User:
    """A user who may plan trips, and may not change them."""
    user = User.objects.create_user("traveller")
    user.user_permissions.add(*Permission.objects.filter(codename__in=["add_trip", "view_airport"]))
    return user


def call(user: User, tool: str, **arguments: Any) -> tuple[str, Any]:
    """Return the text and the structured content of a result."""
    result = async_to_sync(TestClient(user=user).call_tool)(tool, arguments)
    return result["content"][0]["text"], result.get("structuredContent")


def test_the_pages_are_valid_and_empty_of_data(traveller: User) -> None:
    for tool in ("search_airports", "nearest_airports", "edit_trip"):
        page = async_to_sync(TestClient(user=traveller).app)(tool)
        assert "traveller" not in page.html


def test_a_trip_is_saved_as_the_user_and_described_in_text(traveller: User) -> None:
    text, structured = call(traveller, "store_trip", **VALUES)
    assert text.startswith("The user saved 'Alps': ZRH → BRN → GVA, ")
    assert "is saved" in structured["html"]
    trip = Trip.objects.get(name="Alps")
    assert (trip.owner, [airport.code for airport in trip.route]) == (traveller, ["ZRH", "BRN", "GVA"])
    text, structured = call(traveller, "edit_trip", name="Alps")
    assert f"'Alps': ZRH → BRN → GVA, {trip.length_km:.1f} km, departure 2030-05-01. Its id is {trip.pk}." in text
    assert 'value="ZRH"' in structured["html"]


def test_errors_name_their_fields_and_save_nothing(traveller: User, subtests: pytest.Subtests) -> None:
    for changes, error in (
        ({"origin": "QQQ"}, "origin: No airport has the code 'QQQ'."),
        ({"stops": "BRN, QQQQ"}, "stops: No airport has the code 'QQQQ'."),
        ({"destination": "BRN"}, "A leg ends where it starts."),
        ({"depart_on": "soon"}, "depart_on: Enter a valid date."),
    ):
        with subtests.test(error):
            assert error in call(traveller, "store_trip", **{**VALUES, **changes})[0]
    assert not Trip.objects.exists()


def test_an_existing_name_needs_the_permission_to_change(traveller: User) -> None:
    call(traveller, "store_trip", **VALUES)
    changed = {**VALUES, "stops": ""}
    assert "There is another trip called 'Alps'" in call(traveller, "store_trip", **changed)[0]
    assert Trip.objects.get().stops.count() == 1
    traveller.user_permissions.add(Permission.objects.get(codename="change_trip"))
    call(User.objects.get(pk=traveller.pk), "store_trip", **changed)
    assert Trip.objects.get().stops.count() == 0


def test_trips_of_others_are_unknown_to_the_editor(traveller: User) -> None:
    call(traveller, "store_trip", **VALUES)
    other = User.objects.create_superuser("other")
    assert "no trip called 'Alps'" in call(other, "edit_trip", name="Alps")[0]
