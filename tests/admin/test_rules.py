"""Policies and grants in the admin: choices of declared names, validation, log entries, and immediate effect."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.models import ScopeGrant, ToolPolicy
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
ADD = {"policy": "admin:mcp_django_toolpolicy_add", "grant": "admin:mcp_django_scopegrant_add"}


@pytest.fixture(autouse=True)
def _declared(settings: Any) -> None:
    settings.MCP = {**settings.MCP, "SCOPES": {"orders:read": "See <orders>", "orders:write": "Change orders"}}


@pytest.fixture
def browser() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


def write(browser: Client, kind: str, **fields: Any) -> Any:
    return browser.post(reverse(ADD[kind]), fields, follow=True)


def page(response: Any) -> str:
    return str(response.content.decode())


def test_a_policy_is_saved_logged_and_applies_at_once(browser: Client) -> None:
    Group.objects.create(name="editors")
    response = write(
        browser, "policy", tool="order_*", scopes=["orders:write"], groups=["editors"], rate="10/m", note="busy"
    )
    row = ToolPolicy.objects.get()
    assert (row.tool, row.server, row.scopes, row.groups, row.rate) == (
        *("order_*", "", ["orders:write"]),
        *(["editors"], "10/m"),
    )
    asked = RULE_CACHE.load().get_requirements("default", "order_get")
    assert asked.scopes == {"orders:write"}
    assert LogEntry.objects.get().get_change_message() == "Added."
    assert "No registered tool matches this name" in page(response)


def test_the_declared_scopes_are_choices_with_their_descriptions(browser: Client) -> None:
    for kind in ADD:
        found = page(browser.get(reverse(ADD[kind])))
        assert "orders:read: See &lt;orders&gt;" in found
        assert "orders:write: Change orders" in found


def test_invalid_rules_are_reported_at_their_field(browser: Client, subtests: pytest.Subtests) -> None:
    cases = (
        ({}, "This policy has no effect"),
        ({"disabled": "on", "tool": "a b"}, "letters without accents"),
        ({"disabled": "on", "tool": "[a-z]"}, "letters without accents"),
        ({"rate": "often"}, "Invalid rate"),
        ({"scopes": ["other"]}, "not one of the available choices"),
        ({"groups": ["nobody"]}, "not one of the available choices"),
        ({"disabled": "on", "server": "elsewhere"}, "not one of the available choices"),
        ({"disabled": "on", "tool": "a\0b"}, "Null characters"),
    )
    for fields, problem in cases:
        with subtests.test(fields=fields, problem=problem), rolled_back():
            response = write(browser, "policy", **{"tool": "x", **fields})
            assert problem in page(response)
            assert not ToolPolicy.objects.exists()


def test_a_tool_has_one_policy_on_a_server(browser: Client) -> None:
    ToolPolicy.objects.create(tool="x", disabled=True)
    assert "already exists" in page(write(browser, "policy", tool="x", disabled="on"))


def test_a_grant_is_saved(browser: Client) -> None:
    Group.objects.create(name="editors")
    write(browser, "grant", scope="orders:read", groups=["editors"], clients="https://a.example/*\n\nclient-1\n")
    row = ScopeGrant.objects.get()
    assert (row.groups, row.clients, row.tokens) == (["editors"], ["https://a.example/*", "client-1"], False)
    assert "orders:read" in RULE_CACHE.load().grants


def test_users_of_a_grant_are_named_and_stored_by_key(browser: Client) -> None:
    bob = User.objects.create_user("bob")
    assert "Unknown user eve." in page(write(browser, "grant", scope="orders:read", users="bob\neve"))
    write(browser, "grant", scope="orders:read", users="bob")
    row = ScopeGrant.objects.get()
    assert row.users == [str(bob.pk)]

    User.objects.filter(pk=bob.pk).update(username="robert")
    assert "robert" in page(browser.get(reverse("admin:mcp_django_scopegrant_changelist")))
    bob.delete()
    url = reverse("admin:mcp_django_scopegrant_change", args=[row.pk])
    gone = f"#{row.users[0]}"
    assert gone in page(browser.get(url))
    browser.post(url, {"scope": "orders:read", "users": gone})
    row.refresh_from_db()
    assert row.users == [gone.removeprefix("#")]


def test_a_scope_with_a_grant_is_not_offered_for_another(browser: Client) -> None:
    ScopeGrant.objects.create(scope="orders:read")
    assert "See &lt;orders&gt;" not in page(browser.get(reverse(ADD["grant"])))
    assert "not one of the available choices" in page(write(browser, "grant", scope="orders:read"))


def test_a_deleted_group_is_kept_in_the_rule_and_marked(browser: Client) -> None:
    group = Group.objects.create(name="editors")
    row = ToolPolicy.objects.create(tool="x", groups=["editors"])
    group.delete()
    url = reverse("admin:mcp_django_toolpolicy_change", args=[row.pk])
    assert "editors (unknown group)" in page(browser.get(url))
    response = browser.post(url, {"tool": "x", "groups": ["editors"]}, follow=True)
    assert "Unknown group editors" in page(response)
    row.refresh_from_db()
    assert row.groups == ["editors"]
    assert "groups: editors (unknown group)" in page(browser.get(reverse("admin:mcp_django_toolpolicy_changelist")))


def test_the_lists_describe_the_rules(browser: Client) -> None:
    ToolPolicy.objects.create(tool="*", scopes=["orders:read"], note="all of them")
    ScopeGrant.objects.create(scope="orders:write", clients=["one", "two"])
    assert "all of them" in page(browser.get(reverse("admin:mcp_django_toolpolicy_changelist")))
    listed = page(browser.get(reverse("admin:mcp_django_scopegrant_changelist")))
    assert "Change orders" in listed
    assert "one, two" in listed


def test_view_permission_changes_nothing(browser: Client) -> None:
    user = User.objects.create_user("viewer", is_staff=True)
    client = Client()
    client.force_login(user)
    assert client.get(reverse("admin:mcp_django_toolpolicy_changelist")).status_code == 403
    assert client.post(reverse(ADD["policy"]), {"tool": "x", "disabled": "on"}).status_code == 403
