"""Clients that came by themselves and are not used any more."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import override_settings
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, Grant, RefreshToken

from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.clients.client_metadata import ClientMetadata
from mcp_django.contrib.oauth.models import ClientProfile

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(days=400)


def made(name: str, *, age: timedelta = LONG_AGO, **changes: Any) -> Application:
    said = ClientMetadata(name=name, redirect_uris=("https://client.example/cb",))
    application, _ = clients.register_client(said, address=None)
    ClientProfile.objects.filter(application=application).update(created=timezone.now() - age, **changes)
    return application


def token(application: Application, text: str, *, left: timedelta = timedelta(minutes=5)) -> AccessToken:
    user, _ = get_user_model().objects.get_or_create(username="alice")
    return AccessToken.objects.create(
        user=user, application=application, token=text, expires=timezone.now() + left, scope=""
    )


def names() -> set[str]:
    return set(Application.objects.values_list("name", flat=True))


def test_an_unused_client_is_deleted() -> None:
    made("old")
    made("new", age=timedelta(days=29))
    made("just used", last_used=timezone.now())
    made("used once", last_used=timezone.now() - LONG_AGO)
    assert clients.delete_unused(days=30, dry_run=True) == 2
    assert names() == {"old", "new", "just used", "used once"}
    assert clients.delete_unused(days=30) == 2
    assert names() == {"new", "just used"}


def test_a_client_with_valid_tokens_is_kept() -> None:
    now, user = timezone.now(), get_user_model().objects.create(username="bob")
    access, refresh, code = made("access"), made("refresh"), made("code")
    token(access, "a")
    RefreshToken.objects.create(user=user, application=refresh, token="r")
    Grant.objects.create(
        user=user, application=code, code="c", expires=now + timedelta(minutes=1), redirect_uri="https://x.example/"
    )
    expired, revoked, spent = made("expired"), made("revoked"), made("spent")
    token(expired, "b", left=-timedelta(days=1))
    RefreshToken.objects.create(user=user, application=revoked, token="s", revoked=now)
    RefreshToken.objects.create(user=user, application=spent, token="t")
    RefreshToken.objects.filter(token="t").update(created=now - timedelta(days=31))
    assert clients.delete_unused(days=30) == 3
    assert names() == {"access", "refresh", "code"}
    assert AccessToken.objects.count() == 1


def test_a_client_with_a_decision_of_an_operator_is_kept() -> None:
    user = get_user_model().objects.create(username="robot")
    made("approved", approved=True)
    made("blocked", blocked=True)
    made("trusted", trusted=True, service_user=user)
    made("manual", source=ClientProfile.Source.MANUAL)
    pinned = made("pinned", source=ClientProfile.Source.DOCUMENT)
    fetched = made("fetched", source=ClientProfile.Source.DOCUMENT)
    Application.objects.filter(pk=fetched.pk).update(cimd_expires_at=timezone.now() - LONG_AGO)
    Application.objects.create(name="of the toolkit", client_type="public", authorization_grant_type="password")
    assert pinned.cimd_expires_at is None
    assert clients.delete_unused(days=30) == 1
    assert names() == {"approved", "blocked", "trusted", "manual", "pinned", "of the toolkit"}


def test_clients_without_any_token_are_deleted_when_the_limit_is_reached() -> None:
    with override_settings(MCP={"AUTH": "none", "OAUTH": {"MOST_CLIENTS": 2}}):
        made("abandoned", age=timedelta(hours=2))
        used = made("used", age=timedelta(hours=2))
        token(used, "long gone", left=-LONG_AGO)
        made("third", age=timedelta(minutes=1))
        assert names() == {"used", "third"}
        with pytest.raises(clients.TooManyClients):
            made("fourth")
        ClientProfile.objects.filter(application=used).update(approved=True)
        made("fifth", age=timedelta(minutes=1))
    assert names() == {"used", "third", "fifth"}


def test_the_command_prints_the_number_of_clients(capsys: pytest.CaptureFixture[str]) -> None:
    made("old")
    call_command("mcp_clearclients", "--dry-run")
    assert capsys.readouterr().out == "1 client(s) without use for 30 days would be deleted.\n"
    call_command("mcp_clearclients", "--days", "500")
    assert capsys.readouterr().out == "0 client(s) without use for 500 days deleted.\n"
    call_command("mcp_clearclients")
    assert capsys.readouterr().out == "1 client(s) without use for 30 days deleted.\n"
    assert not names()


def test_the_command_takes_a_number_of_days(subtests: pytest.Subtests) -> None:
    for days in ("-1", "nan", "inf", "99999999"):
        with subtests.test(days=days), pytest.raises(CommandError):
            call_command("mcp_clearclients", "--days", days)
