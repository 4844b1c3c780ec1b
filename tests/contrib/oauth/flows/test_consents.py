"""Remembered consents, and requests that need another one."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone
from pytest_django.fixtures import Settings

from mcp_django.contrib.oauth.flows import consents
from mcp_django.contrib.oauth.models import Consent
from tests.contrib.oauth.oauth_client import LOOPBACK, WEB, make_client
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
MCP = "https://testserver/mcp"
OTHER = "https://testserver/other"


@pytest.fixture
def user() -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def client() -> Any:
    return make_client(WEB, LOOPBACK)


def record(user: User, client: Any, resources: list[str], scopes: list[str], redirect: str = WEB) -> None:
    consents.record_consent(user, client, resources, scopes, redirect)


def remembered(user: User, client: Any, *scopes: str, resources: tuple[str, ...] = (MCP,), redirect: str = WEB) -> bool:
    return consents.is_remembered(user, client, resources, scopes or ("read",), redirect)


def test_equal_and_fewer_scopes_are_remembered(user: User, client: Any) -> None:
    assert not remembered(user, client)
    record(user, client, [MCP], ["read", "write"])
    assert remembered(user, client)
    assert remembered(user, client, "write", "read")


def test_additional_scopes_require_consent(user: User, client: Any) -> None:
    record(user, client, [MCP], ["read"])
    assert not remembered(user, client, "read", "write")


def test_another_resource_requires_consent(user: User, client: Any) -> None:
    record(user, client, [MCP], ["read"])
    assert not remembered(user, client, resources=(OTHER,))
    assert not remembered(user, client, resources=(MCP, OTHER))
    record(user, client, [OTHER], ["read"])
    assert remembered(user, client, resources=(MCP, OTHER))


def test_nothing_is_remembered_without_a_resource(user: User, client: Any) -> None:
    assert not remembered(user, client, resources=())


def test_another_user_and_another_client_require_consent(user: User, client: Any) -> None:
    record(user, client, [MCP], ["read"])
    assert not remembered(User.objects.create_user("bob"), client)
    assert not remembered(user, make_client(WEB, name="Other"))


CHANGES: list[tuple[str, str]] = [
    ("redirect_uris", f"{WEB} https://client.example/more"),
    ("name", "Claude Pro"),
    ("client_id", "https://b.example/c"),
]


def test_a_changed_client_requires_consent(user: User, client: Any, subtests: pytest.Subtests) -> None:
    for field, value in CHANGES:
        with subtests.test(field=field), rolled_back():
            client.refresh_from_db()
            record(user, client, [MCP], ["read"])
            setattr(client, field, value)
            client.save()
            assert not remembered(user, client)


def test_the_order_of_redirect_uris_is_ignored(user: User, client: Any) -> None:
    record(user, client, [MCP], ["read"])
    client.redirect_uris = f"{LOOPBACK}  {WEB} {WEB}"
    assert remembered(user, client)


def test_a_loopback_client_requires_consent_each_time(
    user: User, client: Any, settings: Settings, subtests: pytest.Subtests
) -> None:
    for redirect in (LOOPBACK, "http://127.0.0.1:33418/", "https://localhost/cb", "cursor://a/b"):
        with subtests.test(redirect=redirect), rolled_back():
            settings.MCP = {}
            record(user, client, [MCP], ["read"], redirect)
            assert not remembered(user, client, redirect=redirect)
            settings.MCP = {"OAUTH": {"REMEMBER_LOOPBACK": True}}
            assert remembered(user, client, redirect=redirect)


def test_a_revoked_or_expired_consent_is_not_remembered(user: User, client: Any) -> None:
    record(user, client, [MCP], ["read"])
    Consent.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert not remembered(user, client)
    record(user, client, [MCP], ["read"])
    assert remembered(user, client)
    Consent.objects.update(revoked=timezone.now())
    assert not remembered(user, client)
    record(user, client, [MCP], ["read"])
    assert remembered(user, client)


def test_the_setting_turns_remembered_consents_off(user: User, client: Any, settings: Settings) -> None:
    record(user, client, [MCP], ["read"])
    settings.MCP = {"OAUTH": {"REMEMBER_CONSENT": 0}}
    assert not remembered(user, client)
    record(user, client, [MCP], ["read"])
    assert Consent.objects.get().expires is None


def test_the_newest_consent_replaces_the_previous_one(user: User, client: Any) -> None:
    record(user, client, [MCP], ["read", "write"])
    record(user, client, [MCP, MCP], ["read"])
    assert [row.scopes for row in Consent.objects.all()] == [["read"]]


def test_simultaneous_consents_become_one_row(user: User, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    record(user, client, [MCP], ["write"])
    get, missed = QuerySet.get, [Consent.DoesNotExist()]

    def miss_once(rows: Any, *args: Any, **wanted: Any) -> Any:
        if missed:
            raise missed.pop()
        return get(rows, *args, **wanted)

    monkeypatch.setattr(QuerySet, "get", miss_once)
    record(user, client, [MCP], ["read"])
    assert Consent.objects.get().scopes == ["read"]


def test_a_consent_holds_for_the_redirect_uri_that_the_user_saw(user: User, client: Any) -> None:
    other = "https://client.example/other"
    client.redirect_uris = f"{WEB} {other}"
    record(user, client, [MCP], ["read"])
    assert not remembered(user, client, redirect=other)
    record(user, client, [MCP], ["read"], other)
    assert remembered(user, client)
    assert remembered(user, client, redirect=other)
    assert Consent.objects.count() == 2


def test_the_port_of_a_loopback_redirect_is_ignored(user: User, client: Any, settings: Settings) -> None:
    settings.MCP = {"OAUTH": {"REMEMBER_LOOPBACK": True}}
    record(user, client, [MCP], ["read"], "http://127.0.0.1:4000/cb")
    assert remembered(user, client, redirect="http://127.0.0.1:5000/cb")
    assert not remembered(user, client, redirect="http://127.0.0.1:5000/other")


def test_a_consent_without_a_recorded_redirect_uri_is_not_remembered(user: User, client: Any) -> None:
    record(user, client, [MCP], ["read"])
    Consent.objects.update(redirect_uri="", redirect_digest="")
    assert not remembered(user, client)
    record(user, client, [MCP], ["read"])
    assert remembered(user, client)
