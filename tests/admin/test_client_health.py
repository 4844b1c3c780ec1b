import sys
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from mcp_django.admin import client_health
from mcp_django.client.pool import health_check
from mcp_django.client.pool.health import HEALTH_REGISTRY
from mcp_django.client.pool.health_check import HealthCheckResult
from mcp_django.conf import get_settings
from mcp_django.models import ClientHealth, ClientToken
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db

LIST = "admin:mcp_django_clienthealth_changelist"
CHECK = "admin:mcp_django_clienthealth_check"
CLIENTS = {
    "weather": {"COMMAND": [sys.executable, "--key=s3cret"], "ENV": {"KEY": "s3cret"}},
    "github": {"URL": "https://api.example/mcp?key=s3cret", "AUTH": {"TYPE": "oauth", "CLIENT_NAME": "Shop"}},
    "plain": {"URL": "wss://live.example/ws", "HEADERS": {"X-Key": "s3cret"}},
}


@pytest.fixture(autouse=True)
def _clients() -> Any:
    HEALTH_REGISTRY.reset_after_fork()
    with override_settings(MCP={"AUTH": "none", "CLIENTS": CLIENTS}):
        yield
    HEALTH_REGISTRY.reset_after_fork()


def browser(*permissions: str) -> Client:
    user = get_user_model()._default_manager.create_user("ada", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator() -> Client:
    return browser("view_clienthealth", "change_clienthealth")


def row(alias: str = "weather", process: str = "other:7", *, ago: float = 0, **fields: Any) -> None:
    ClientHealth.objects.create(alias=alias, process=process, updated=timezone.now() - timedelta(seconds=ago), **fields)


def page(client: Client) -> str:
    response = client.get(reverse(LIST))
    assert response.status_code == 200
    content = response.content.decode()
    assert "s3cret" not in content
    return content


def section(content: str, alias: str) -> str:
    return content.partition(f'id="{alias}"')[2].partition("</section>")[0]


def test_all_servers_of_the_setting_are_listed_without_secrets(operator: Client) -> None:
    content = page(operator)
    assert f"{sys.executable} (1 argument)" in section(content, "weather")
    for text in ("https://api.example/mcp?…", "OAuth, allowed by each user", "http"):
        assert text in section(content, "github")
    for text in ("wss://live.example/ws", "headers in the setting", "websocket"):
        assert text in section(content, "plain")
    assert content.count("No process has used it") == 3
    assert content.count("Check now") == 3


def test_reports_of_processes_are_shown_for_each_server(operator: Client) -> None:
    now = timezone.now()
    row(
        connections=2,
        since=now,
        reached=now,
        calls=41,
        latency=0.0123,
        protocol_version="r1",
        server="weatherd 2",
        tools=5,
    )
    row(process="other:8", error="CallTimeout", error_text="No answer", error_at=now)
    found = section(page(operator), "weather")
    for text in ("other:7", "other:8", "weatherd 2", "r1", "12 ms", "41", "CallTimeout", "No answer", ">in use<"):
        assert text in found


def test_a_silent_process_does_not_count_as_connected(operator: Client) -> None:
    row(connections=1, ago=600)
    found = section(page(operator), "weather")
    assert ">not used yet<" in found
    assert 'class="gone"' in found


def test_a_server_has_failed_without_a_later_success(operator: Client, subtests: pytest.Subtests) -> None:
    for reached, state in ((None, ">fails<"), (-1, ">fails<"), (1, ">answers<")):
        with subtests.test(reached=reached, state=state), rolled_back():
            now = timezone.now()
            row(error="ClientConnectionError", error_at=now, reached=reached and now + timedelta(seconds=reached))
            assert state in section(page(operator), "weather")


def test_server_info_is_escaped(operator: Client) -> None:
    row(server="<script>alert(1)</script>", protocol_version="r1", error="E", error_text="<b>", error_at=timezone.now())
    content = page(operator)
    assert "<script>alert(1)" not in content
    assert "<b>" not in content


def test_the_current_state_of_this_process_is_shown(operator: Client) -> None:
    row(process=client_health.get_process_name(), calls=1)
    HEALTH_REGISTRY.record_connected("weather", protocol_version="r2", server="mine")
    HEALTH_REGISTRY.record_call("weather", 0.5)
    found = section(page(operator), "weather")
    assert found.count("<tr") == 2
    assert "(this one)" in found
    assert "500 ms" in found


def test_rows_of_removed_servers_are_not_shown(operator: Client) -> None:
    row("gone")
    assert "gone" not in page(operator)


@override_settings(MCP={"AUTH": "none"})
def test_without_servers_the_page_names_the_setting(operator: Client) -> None:
    assert "No servers are configured" in page(operator)


@override_settings(MCP={"AUTH": "none", "CLIENTS": {"weather": {"URL": "s3cret"}}})
def test_an_invalid_setting_is_reported(operator: Client) -> None:
    assert "The MCP setting is invalid" in page(operator)
    assert operator.post(reverse(CHECK, args=["weather"])).status_code == 404


def test_the_page_needs_the_view_permission() -> None:
    assert browser("view_session").get(reverse(LIST)).status_code == 403


def test_a_check_needs_the_change_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_check, "check_client", None)
    client = browser("view_clienthealth")
    assert "Check now" not in page(client)
    assert client.post(reverse(CHECK, args=["weather"])).status_code == 403


def test_a_check_is_a_post_with_a_csrf_token(operator: Client) -> None:
    assert operator.get(reverse(CHECK, args=["weather"])).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    assert strict.post(reverse(CHECK, args=["weather"])).status_code == 403


def test_a_server_that_is_not_in_the_setting_cannot_be_checked(operator: Client) -> None:
    assert operator.post(reverse(CHECK, args=["other"])).status_code == 404


def test_a_check_shows_and_stores_its_result(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def check(alias: str, *, user: Any, timeout: float) -> HealthCheckResult:
        asked.append((alias, user.username, timeout))
        HEALTH_REGISTRY.record_check(alias, protocol_version="r1", server="weatherd 1", tools=3)
        return HealthCheckResult(alias=alias, reached=True, connecting=0.25, tools=(Any,) * 3)  # type: ignore[arg-type]

    monkeypatch.setattr(health_check, "check_client", check)
    response = operator.post(reverse(CHECK, args=["weather"]), follow=True)
    assert response.redirect_chain == [(f"{reverse(LIST)}#weather", 302)]
    assert "The server weather is available: 3 tools, connected in 250 ms." in response.content.decode()
    assert asked == [("weather", "ada", client_health.CHECK_TIMEOUT_SECONDS)]
    assert ClientHealth.objects.get(alias="weather").server == "weatherd 1"


def test_an_unreachable_server_is_reported(operator: Client) -> None:
    """All the way: the program ends at once."""
    content = operator.post(reverse(CHECK, args=["weather"]), follow=True).content.decode()
    assert "s3cret" not in content
    found = section(content, "weather")
    assert '<p class="client-result error" role="status">Connecting to the server weather failed: ' in found
    assert ">fails<" in found


def test_a_check_without_consent_of_the_user_is_an_error(operator: Client) -> None:
    found = section(operator.post(reverse(CHECK, args=["github"]), follow=True).content.decode(), "github")
    assert "github must be connected first." in found
    assert ">must be connected<" in found
    assert "AuthorizationNeeded" not in found
    assert "manage.py mcp_clients login github" in found


@pytest.mark.urls("tests.contrib.oauth.urls")
def test_a_server_without_a_token_has_a_button_to_connect_it(operator: Client) -> None:
    assert '<a class="button" href="/mcp/clients/github/connect/">' in section(page(operator), "github")
    assert "/connect/" not in section(page(operator), "weather")


def test_a_server_connected_after_its_error_has_not_failed(operator: Client) -> None:
    row("github", error="AuthorizationNeeded", error_text="Not allowed", error_at=timezone.now() - timedelta(minutes=9))
    assert ">must be connected<" in section(page(operator), "github")
    user = get_user_model()._default_manager.get(username="ada")
    ClientToken.objects.create(
        key="k", alias="github", server=get_settings().clients["github"].display_location, user=user, grant="sealed"
    )
    found = section(page(operator), "github")
    assert ">not used yet<" in found
    assert "Not allowed" not in found
    assert "Last error" not in found


def test_the_connection_of_another_user_does_not_count(operator: Client) -> None:
    other = get_user_model()._default_manager.create_user("bob")
    where = get_settings().clients["github"].display_location
    ClientToken.objects.create(key="k", alias="github", server=where, user=other, grant="sealed")
    assert ">must be connected<" in section(page(operator), "github")


def test_an_error_before_the_last_success_is_not_shown(operator: Client) -> None:
    now = timezone.now()
    row(error="CallTimeout", error_text="No answer", error_at=now - timedelta(minutes=9), reached=now)
    found = section(page(operator), "weather")
    assert ">answers<" in found
    assert "No answer" not in found


def test_the_result_of_a_check_is_shown_once_next_to_the_server(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(alias: str, **kwargs: Any) -> HealthCheckResult:
        return HealthCheckResult(alias=alias, reached=True, connecting=0.25)

    monkeypatch.setattr(health_check, "check_client", check)
    content = operator.post(reverse(CHECK, args=["weather"]), follow=True).content.decode()
    assert content.count("The server weather is available") == 1
    assert "The server weather is available" in section(content, "weather")
    assert "messagelist" not in content
