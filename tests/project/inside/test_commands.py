"""`loadairports` and `demo`, and private files of the project. `test_served.py` starts the real demo."""

import io
import socket
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command
from django.db import IntegrityError

from project.airports import sources
from project.airports.management.commands.demo import HOST, demo_login
from project.airports.models import Airport, Country
from tests.project.inside.conftest import COUNTRIES


@pytest.mark.django_db
def test_the_loader_is_repeatable_and_draws_no_bar_into_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    before = list(Airport.objects.values())
    call_command("loadairports", country=COUNTRIES)
    assert list(Airport.objects.values()) == before
    printed = capfd.readouterr()
    assert f"{len(before)} airports in 3 countries" in printed.out
    assert printed.err == ""


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.django_db
def test_the_loader_draws_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    call_command("loadairports", country=["FJ"], verbosity=0)
    assert isinstance(sys.stderr, Terminal)
    assert "Loading airports: " in sys.stderr.getvalue()


@pytest.mark.django_db
def test_the_loader_corrects_rows_and_is_atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    Airport.objects.filter(icao="LSZH").update(name="Wrong")
    call_command("loadairports", country=["ch"], limit=500, verbosity=0)
    assert Airport.objects.get(icao="LSZH").name == "Zurich Airport"

    Airport.objects.filter(country="FJ").delete()
    Country.objects.filter(code="FJ").delete()
    broken = [*sources.airports(sources.RegionFinder([]), {"FJ"}), Airport(icao="BAD", country_id="FJ")]
    monkeypatch.setattr(sources, "airports", lambda *arguments: iter(broken))
    with pytest.raises(IntegrityError):
        call_command("loadairports", country=["FJ"], verbosity=0)
    assert not Country.objects.filter(code="FJ").exists()


def test_the_loader_refuses_an_unknown_country() -> None:
    with pytest.raises(CommandError, match="No country has the code XX"):
        call_command("loadairports", country=["XX"])


def test_a_port_in_use_is_reported_in_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(CommandError, match="choose another with --port"):
            call_command("demo", port=taken.getsockname()[1])


@pytest.mark.django_db
def test_the_login_of_the_demo_is_kept_and_works_again_after_a_change(tmp_path: Path) -> None:
    path = tmp_path / "password"
    username, password = demo_login(path)
    user = authenticate(username=username, password=password)
    assert user is not None
    assert user.is_superuser
    user.set_password("forgotten")
    user.save()
    assert demo_login(path) == (username, password)
    assert authenticate(username=username, password=password) == user
    assert path.stat().st_mode & 0o077 == 0


def test_files_of_the_project_are_private_and_ignored_by_git() -> None:
    assert (settings.DEMO_DIR / ".gitignore").read_text() == "*\n"
    assert (settings.DEMO_DIR / "secret_key").stat().st_mode & 0o077 == 0
    assert (settings.DEMO_DIR / "secret_key").read_text() == settings.SECRET_KEY
