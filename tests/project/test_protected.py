"""The demo with an authorization server of its own: login, and the pages of users."""

import subprocess
import sys
from pathlib import Path

from tests.project.conftest import ROOT, environment

VISIT = """
import django
from io import StringIO
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from project.airports.management.commands.demo import Command

call_command("migrate", verbosity=0)
call_command("check", fail_level="WARNING")
User.objects.create_user("ada", password="pw")  # no staff: the admin's own login would not do
browser = Client(headers={"host": "127.0.0.1:8000"})
asked = browser.get("/o/connections/")
page = browser.get(asked["Location"])
assert page.status_code == 200, page.status_code
assert "Airports of the world" in page.content.decode()
wrong = browser.post(asked["Location"], {"username": "ada", "password": "wrong"})
assert 'role="alert"' in wrong.content.decode()
right = browser.post(asked["Location"], {"username": "ada", "password": "pw"})
assert right["Location"] == "/o/connections/", right
assert "No application is connected" in browser.get(right["Location"]).content.decode()
said = StringIO()
Command(stdout=said).welcome("http://127.0.0.1:8000", "demo", "secret")
assert "http://127.0.0.1:8000/o/connections/" in said.getvalue(), said.getvalue()
"""


def test_a_user_who_logs_in_sees_the_connected_applications(tmp_path: Path) -> None:
    variables = environment(tmp_path / "var") | {"DEMO_AUTH": "oauth"}
    ran = subprocess.run(
        [sys.executable, "-c", VISIT], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
