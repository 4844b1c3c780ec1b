"""Pages of the project in a browser, and system checks."""

import re
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.http import QueryDict
from django.test import Client, RequestFactory
from django.urls import reverse

from mcp_django.wiring import get_server
from project import environment
from project.airports.clients import snippets
from project.airports.views import Login, in_words

pytestmark = pytest.mark.django_db


def test_the_system_checks_report_nothing(settings: Any) -> None:
    settings.DEBUG = True  # as the demo is by default; pytest-django turns it off
    call_command("check", fail_level="WARNING")


def test_the_migrations_are_up_to_date() -> None:
    call_command("makemigrations", check=True, dry_run=True)


def test_the_home_page_shows_the_endpoint_at_the_host_of_the_request() -> None:
    page = Client().get("/", headers={"host": "localhost:8123"}).content.decode()
    assert "http://localhost:8123/mcp" in page
    assert "claude mcp add --transport http airports http://localhost:8123/mcp" in page
    assert "testserver" not in page


def test_the_home_page_names_no_other_transport_under_wsgi() -> None:
    page = Client().get("/", headers={"host": "localhost:8123"}).content.decode()
    assert "mcp_stdio" not in page


def test_the_home_page_shows_everything_that_is_served() -> None:
    page = Client().get("/", headers={"host": "localhost"}).content.decode()
    registry = get_server("default").registry
    keys = [
        item.key for kind in (registry.tools, registry.resources, registry.templates, registry.prompts) for item in kind
    ]
    assert len(keys) >= 9
    assert [key for key in keys if f"<code>{key}</code>" not in page] == []
    assert "integer, 1 to 50, default 5" in page


def test_the_home_page_works_under_a_strict_content_security_policy() -> None:
    page = Client().get("/", headers={"host": "localhost"}).content.decode()
    assert not re.findall(r"<style|<script>|\sstyle=|\son\w+=|href=.data:", page)
    for name in re.findall(r'"/static/(airports/[^"]+)"', page):
        assert finders.find(name), name


def test_the_home_page_lists_each_tool_in_one_line_with_details_on_demand() -> None:
    page = Client().get("/", headers={"host": "localhost"}).content.decode()
    tools = page.partition('id="tools"')[2].partition("</section>")[0]
    registry = get_server("default").registry
    assert tools.count("<details>") == tools.count("<summary>") == len(registry.tools)
    assert 'type="search"' in tools


def test_an_unknown_host_gets_no_page() -> None:
    assert Client().get("/", headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize("model", ["airport", "country", "region", "trip"])
def test_the_admin_lists_and_searches(model: str) -> None:
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("boss"))
    listing = reverse(f"admin:airports_{model}_changelist")
    assert client.get(listing).status_code == 200
    assert client.get(listing, {"q": "zürich"}).status_code == 200
    assert client.get(reverse(f"admin:airports_{model}_add")).status_code == 200


def test_the_admin_search_of_airports_ignores_accents() -> None:
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("boss"))
    page = client.get(reverse("admin:airports_airport_changelist"), {"q": "zurich", "served": "yes"})
    assert "LSZH" in page.content.decode()


def test_the_bridge_has_the_option_for_http_beyond_loopback_only() -> None:
    def desktop(url: str) -> str:
        return next(s.text for s in snippets("airports", url, "r") if s.client == "Claude Desktop")

    assert "--allow-http" not in desktop("http://127.0.0.1:8000/mcp")
    assert "--allow-http" not in desktop("https://airports.example/mcp")
    assert "--allow-http" in desktop("http://airports.example/mcp")


def test_every_command_has_the_required_token() -> None:
    for snippet in snippets("airports", "http://127.0.0.1:8000/mcp", "r", token="YOUR_TOKEN"):
        assert "Bearer YOUR_TOKEN" in snippet.text, snippet.client
    assert not any("Bearer" in s.text for s in snippets("airports", "http://127.0.0.1:8000/mcp", "r"))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 50}, "integer, 1 to 50"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}, "list of string"),
        ({"enum": ["a", "b"]}, "a | b"),
        ({}, "any"),
    ],
)
def test_a_schema_is_described_in_words(rule: dict[str, object], words: str) -> None:
    assert in_words(rule) == words


def test_a_database_url_is_read() -> None:
    default = Path("fallback.sqlite3")
    entry = environment.database("postgres://me:p%40ss@db.example:5433/airports", default=default)
    assert entry["ENGINE"].endswith("postgresql")
    assert (entry["NAME"], entry["USER"], entry["PASSWORD"]) == ("airports", "me", "p@ss")
    assert (entry["HOST"], entry["PORT"]) == ("db.example", 5433)
    assert (
        environment.database("postgres:///airports?host=/run/postgresql", default=default)["HOST"] == "/run/postgresql"
    )
    assert environment.database("", default=default)["NAME"] == default
    assert environment.database("sqlite:////tmp/a.sqlite3", default=default)["NAME"] == "/tmp/a.sqlite3"
    with pytest.raises(ImproperlyConfigured, match="mysql://"):
        environment.database("mysql://db/airports", default=default)


def test_the_login_page_announces_the_consent_page_if_it_is_next() -> None:
    request = RequestFactory().get("/accounts/login/", headers={"host": "localhost"})
    for target, is_announced in (("/o/authorize/?client_id=1", True), ("/o/tokens/", False), ("", False)):
        request.GET = QueryDict(urlencode({"next": target}))
        with mock.patch("project.airports.views.reverse", return_value="/o/authorize/"):
            view = Login()
            view.setup(request)
            assert view.get_context_data(form=None)["is_authorization"] is is_announced
