"""django-recurrence: rules of repetition."""

import pytest

from tests.packages.trips import TripColumn

pytestmark = pytest.mark.django_db


def test_rules_are_read_and_written_as_text_and_may_be_omitted() -> None:
    repeats = TripColumn("repeats")
    assert repeats.create()["repeats"] == ""
    assert repeats.update("RRULE:FREQ=DAILY;COUNT=3") == "RRULE:FREQ=DAILY;COUNT=3"
    assert "malformed" in repeats.get_problem("each day")
    assert repeats.update("") == ""
