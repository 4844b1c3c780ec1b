"""Service accounts with a user model of the project, whose names are e-mail addresses, and which requires a row."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = """
from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models

class Team(models.Model):
    name = models.CharField(max_length=20)

class Person(AbstractBaseUser, PermissionsMixin):
    email = models.EmailField(unique=True)
    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    owner = models.CharField(max_length=20)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    objects = BaseUserManager()
    USERNAME_FIELD = "email"
    REQUIRED_FIELDS = ["team", "owner"]
"""
URLS = """
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
"""
PROGRAM = """
import sys
from io import StringIO
import django
from django.conf import settings
INSTALLED = ["admin", "auth", "contenttypes", "messages", "sessions"]
MIDDLEWARE = ["sessions.middleware.Session", "auth.middleware.Authentication", "messages.middleware.Message"]
settings.configure(
    AUTH_USER_MODEL="people.Person",
    INSTALLED_APPS=[*(f"django.contrib.{name}" for name in INSTALLED), "people", "mcp_django"],
    MIDDLEWARE=[f"django.contrib.{name}Middleware" for name in MIDDLEWARE],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", ROOT_URLCONF="urls", SECRET_KEY="x",
    ALLOWED_HOSTS=["*"], USE_TZ=True, STATIC_URL="static/",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {
        "context_processors": [f"django.{name}" for name in (
            "template.context_processors.request", "contrib.auth.context_processors.auth",
            "contrib.messages.context_processors.messages")]}}],
)
django.setup()
from django.core.management import call_command
from django.test import Client
from django.test.utils import setup_test_environment
from mcp_django.models import PersonalAccessToken, ServiceAccount
from people.models import Person, Team
call_command("migrate", run_syncdb=True, verbosity=0)
setup_test_environment()
team = Team.objects.create(name="Shop")
boss = Person.objects.create(email="boss@example.com", team=team, owner="x", is_staff=True, is_superuser=True)

out = StringIO()
fields = ["--field", f"team={team.pk}", "--field", "owner=Ada"]
owner = ["--owner", "boss@example.com"]
call_command("mcp_createaccount", "ci@example.com", *owner, *fields, stdout=out, stderr=StringIO())
assert PersonalAccessToken.is_well_formed(out.getvalue().strip())
try:
    call_command("mcp_createaccount", "cd@example.com", *owner, stderr=StringIO())
except Exception as problem:
    print(problem)

browser = Client()
browser.force_login(boss)
add = "/admin/mcp_django/serviceaccount/add/"
data = {"user_email": "cd@example.com", "user_owner": "Ada", "owner": boss.pk}
print(browser.post(add, data).context["adminform"].form.errors.as_json())
assert browser.post(add, data | {"user_team": team.pk}).status_code == 302
for account in ServiceAccount.objects.all():
    print(account.user.email, account.user.team.name, account.user.owner, account.user.has_usable_password())
    assert browser.get(f"/admin/mcp_django/serviceaccount/{account.pk}/change/").status_code == 200
assert browser.get("/admin/mcp_django/serviceaccount/?q=cd").context["cl"].result_count == 1
"""


@pytest.mark.integration
def test_the_required_fields_of_a_user_model_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "__init__.py").touch()
    (tmp_path / "people" / "models.py").write_text(MODELS)
    (tmp_path / "urls.py").write_text(URLS)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-3000:]
    refused, errors, *accounts = ran.stdout.splitlines()
    assert re.search(r"not valid\. team: .* owner: .* Set fields", refused)
    assert errors.startswith('{"user_team":')
    assert sorted(accounts) == ["cd@example.com Shop Ada False", "ci@example.com Shop Ada False"]
