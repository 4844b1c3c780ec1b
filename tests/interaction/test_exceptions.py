"""README.md lists every test that is not about all doors, with its reason."""

from tests.interaction.exceptions import table, written


def test_the_exceptions_are_listed_with_their_reasons():
    assert written() == table(), "run DJANGO_SETTINGS_MODULE=tests.settings python -m tests.interaction.exceptions"
