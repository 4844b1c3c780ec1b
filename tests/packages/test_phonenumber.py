"""django-phonenumber-field: numbers of telephones."""

import pytest

from tests.packages.trips import TripColumn

pytestmark = pytest.mark.django_db


def test_a_number_is_read_filtered_and_written_as_text() -> None:
    phone = TripColumn("phone")
    assert phone.create(phone="+41446681800")["phone"] == "+41446681800"
    assert phone.update("+41 44 668 18 00") == "+41446681800"
    assert phone.count("+41446681800") == 2
    assert "valid phone number" in phone.get_problem("123")
    assert phone.update("") == ""
    assert phone.update(None) == ""
