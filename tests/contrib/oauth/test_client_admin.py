"""Clients in the admin."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application

from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.clients.client_metadata import ClientMetadata
from mcp_django.contrib.oauth.models import ClientProfile

pytestmark = pytest.mark.django_db
LIST = reverse("admin:mcp_oauth_clientprofile_changelist")
URL = "https://client.example/client.json"


def change(profile: ClientProfile) -> str:
    return reverse("admin:mcp_oauth_clientprofile_change", args=[profile.pk])


@pytest.fixture
def browser(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("boss"))
    return client


@pytest.fixture
def profile() -> ClientProfile:
    metadata = ClientMetadata(
        name="<b>Evil</b>",
        redirect_uris=("https://client.example/cb", "http://127.0.0.1:1/"),
        client_uri="https://client.example/",
    )
    application, _ = clients.register_client(metadata, address="192.0.2.1")
    return ClientProfile.objects.get(application=application)


@pytest.fixture
def described() -> ClientProfile:
    metadata = ClientMetadata(name="Described", redirect_uris=("https://client.example/cb",))
    later = timezone.now() + timedelta(hours=1)
    application = clients.save_document_client(URL, metadata, digest="0" * 64, expires=later)
    return ClientProfile.objects.get(application=application)


def act(browser: Client, action: str, *profiles: ClientProfile) -> str:
    data = {"action": action, "_selected_action": [profile.pk for profile in profiles]}
    return str(browser.post(LIST, data, follow=True).content.decode())


def test_operators_see_the_redirect_targets_and_the_metadata_of_a_client(
    browser: Client, profile: ClientProfile
) -> None:
    pages = [browser.get(LIST).content.decode(), browser.get(change(profile)).content.decode()]
    assert "127.0.0.1:1, client.example" in pages[0]
    for page in pages:
        assert "&lt;b&gt;Evil&lt;/b&gt;" in page
        assert "<b>Evil" not in page
        assert 'href="https://client.example' not in page
    assert "192.0.2.1" in pages[1]
    assert profile.application.client_secret not in "".join(pages)


def test_clients_are_approved_blocked_and_unblocked(browser: Client, profile: ClientProfile) -> None:
    for action, name, value in [
        ("approve", "approved", True),
        ("block", "blocked", True),
        ("unblock", "blocked", False),
    ]:
        assert "1 client was changed" in act(browser, action, profile)
        profile.refresh_from_db()
        assert getattr(profile, name) is value
        assert "0 clients were changed" in act(browser, action, profile)


def test_the_list_shows_the_decision_about_each_client(browser: Client, profile: ClientProfile) -> None:
    robot = get_user_model().objects.create_user("robot")
    for decided, label in (
        ({"approved": True}, ">approved<"),
        ({"trusted": True, "service_user": robot}, ">acts for robot<"),
        ({"blocked": True}, ">blocked<"),
    ):
        for name, value in decided.items():
            setattr(profile, name, value)
        profile.save()
        assert label in browser.get(LIST).content.decode()


def test_fields_of_a_document_are_shown_for_clients_with_a_document(
    browser: Client, profile: Any, described: Any
) -> None:
    assert "Document fetched" in browser.get(change(described)).content.decode()
    assert "Document fetched" not in browser.get(change(profile)).content.decode()


def test_a_document_is_pinned_and_read_again(browser: Client, profile: ClientProfile, described: Any) -> None:
    assert "1 client was changed" in act(browser, "pin", profile, described)
    assert Application.objects.get(client_id=URL).cimd_expires_at is None
    assert "pinned" in browser.get(change(described)).content.decode()
    assert "1 client was changed" in act(browser, "unpin", profile, described)
    assert Application.objects.get(client_id=URL).cimd_expires_at <= timezone.now()
    assert "fetched again after" in browser.get(change(described)).content.decode()
    assert Application.objects.get(pk=profile.application_id).cimd_expires_at is None


def test_scopes_and_servers_are_limited_or_not(browser: Client, profile: ClientProfile) -> None:
    limits = {"allowed_scopes": "b a", "allowed_resources": "https://testserver/mcp\n"}
    assert browser.post(change(profile), limits).status_code == 302
    profile.refresh_from_db()
    assert (profile.allowed_scopes, profile.allowed_resources) == (["a", "b"], ["https://testserver/mcp"])
    assert browser.post(change(profile), {"allowed_scopes": "", "allowed_resources": ""}).status_code == 302
    profile.refresh_from_db()
    assert (profile.allowed_scopes, profile.allowed_resources) == (None, None)
    refused = browser.post(change(profile), {"allowed_scopes": 'a"b'})
    assert "is not a scope" in refused.content.decode()


def test_declared_scopes_are_boxes(browser: Client, profile: ClientProfile, settings: Any) -> None:
    settings.MCP = {**settings.MCP, "SCOPES": {"orders:read": "Read orders"}}
    assert 'type="checkbox" name="allowed_scopes" value="orders:read"' in browser.get(change(profile)).content.decode()
    assert browser.post(change(profile), {"allowed_scopes": ["orders:read"]}).status_code == 302
    profile.refresh_from_db()
    assert profile.allowed_scopes == ["orders:read"]
    assert browser.post(change(profile), {}).status_code == 302
    profile.refresh_from_db()
    assert profile.allowed_scopes is None


def test_only_a_client_made_by_an_operator_can_be_trusted_and_have_a_user(browser: Client, profile: Any) -> None:
    robot = get_user_model().objects.create(username="robot")
    page = browser.post(change(profile), {"trusted": "on", "service_user": robot.pk}).content.decode()
    assert "Only clients created by an operator" in page
    application, _ = clients.create_client("Robot")
    ours = ClientProfile.objects.get(application=application)
    assert "needs a service user" in browser.post(change(ours), {"trusted": "on"}).content.decode()
    assert browser.post(change(ours), {"trusted": "on", "service_user": robot.pk}).status_code == 302
    ours.refresh_from_db()
    assert (ours.trusted, ours.service_user) == (True, robot)


def test_only_superusers_choose_the_user_of_a_client(client: Client) -> None:
    """Staff who manage clients do not get the rights of another user through one."""
    boss = get_user_model().objects.create_superuser("boss")
    staff = get_user_model().objects.create_user("carla", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="mcp_oauth"))
    client.force_login(staff)
    profile = clients.create_client("robot")[0].mcp_profile
    data = {"trusted": "on", "service_user": boss.pk, "allowed_scopes": "mcp:read", "allowed_resources": ""}
    assert client.post(change(profile), data).status_code == 302
    profile.refresh_from_db()
    assert (profile.trusted, profile.service_user) == (False, None)
    assert profile.allowed_scopes == ["mcp:read"]


def test_deleting_a_profile_deletes_the_client(browser: Client, profile: Any, described: Any) -> None:
    expires = timezone.now() + timedelta(hours=1)
    AccessToken.objects.create(application=profile.application, token="t", expires=expires, scope="")
    url = reverse("admin:mcp_oauth_clientprofile_delete", args=[profile.pk])
    assert "cess token" in browser.get(url).content.decode()
    assert browser.post(url, {"post": "yes"}).status_code == 302
    assert not Application.objects.filter(pk=profile.application_id).exists()
    data = {"action": "delete_selected", "_selected_action": [described.pk], "post": "yes"}
    browser.post(LIST, data)
    assert not Application.objects.exists()
    assert not AccessToken.objects.exists()


def test_view_permission_changes_nothing(client: Client, profile: ClientProfile) -> None:
    user = get_user_model().objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_clientprofile"))
    client.force_login(user)
    assert client.get(change(profile)).status_code == 200
    assert client.post(change(profile), {"approved": "on"}).status_code == 403
    act(client, "block", profile)
    profile.refresh_from_db()
    assert (profile.approved, profile.blocked) == (False, False)
    assert client.get(reverse("admin:mcp_oauth_clientprofile_add")).status_code == 403
