"""The project of these tests."""

from django.core.management import call_command


def test_project_with_the_packages_passes_the_system_checks() -> None:
    call_command("check")  # raises SystemCheckError
