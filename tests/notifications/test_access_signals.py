from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from mcp_django import wiring
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.notifications import access_signals
from mcp_django.runtime.events.event_log import EventLog

pytestmark = pytest.mark.django_db
ListChanges = Callable[[Callable[[], Any]], list[tuple[str, str | None]]]


@pytest.fixture
def guarded(settings: Any) -> Iterator[None]:
    """Configure a server with a tool that needs a permission, and one whose lists are the same for all."""
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, "unguarded": {}}}
    server = wiring.get_server("default")
    server.tool(lambda: "", name="guarded_by_rights", permission="testapp.view_book")
    yield
    server.registry.tools.remove("guarded_by_rights")


@pytest.fixture
def list_changes(django_capture_on_commit_callbacks: Any) -> ListChanges:
    """Return the owners whose lists changed during a piece of work."""

    def run(work: Callable[[], Any]) -> list[tuple[str, str | None]]:
        start = EventLog().head()
        with django_capture_on_commit_callbacks(execute=True):
            work()
        events = EventLog().read(start)
        assert {event.topic for event in events} <= {"changes:default"}, events
        assert all(event.kind == "list_changed" and event.payload["rights"] == "changed" for event in events)
        return [(event.payload["kind"], event.payload.get("user")) for event in events]

    return run


@pytest.fixture
def jane() -> User:
    return User.objects.create(username="jane")


@pytest.fixture
def permission() -> Permission:
    return Permission.objects.get(content_type__app_label="testapp", codename="view_book")


def test_changed_permissions_of_a_user_change_that_users_lists(
    guarded: None, list_changes: ListChanges, jane: User, permission: Permission
) -> None:
    mine = [("tools", str(jane.pk))]
    assert list_changes(lambda: jane.user_permissions.add(permission)) == mine
    assert list_changes(lambda: jane.user_permissions.add(permission)) == []
    assert list_changes(jane.user_permissions.clear) == mine
    assert list_changes(lambda: permission.user_set.add(jane)) == mine


def test_changed_groups_of_a_user_change_that_users_lists(guarded: None, list_changes: ListChanges, jane: User) -> None:
    group = Group.objects.create(name="readers")
    assert list_changes(lambda: jane.groups.add(group)) == [("tools", str(jane.pk))]
    assert list_changes(lambda: group.user_set.remove(jane)) == [("tools", str(jane.pk))]


def test_changed_permissions_of_a_group_change_all_lists(
    guarded: None, list_changes: ListChanges, permission: Permission
) -> None:
    group = Group.objects.create(name="readers")
    assert list_changes(lambda: group.permissions.add(permission)) == [("tools", None)]
    assert list_changes(group.delete) == [("tools", None)]


def test_changes_of_many_users_change_all_lists(guarded: None, list_changes: ListChanges) -> None:
    group = Group.objects.create(name="readers")
    users = User.objects.bulk_create(User(username=f"user{n}") for n in range(21))
    assert list_changes(lambda: group.user_set.add(*users)) == [("tools", None)]
    assert list_changes(group.user_set.clear) == [("tools", None)]


def test_a_changed_user_changes_that_users_lists_but_a_login_does_not(
    guarded: None, list_changes: ListChanges, jane: User
) -> None:
    jane.is_superuser = True
    assert list_changes(jane.save) == [("tools", str(jane.pk))]
    assert list_changes(lambda: jane.save(update_fields=["last_login"])) == []
    assert list_changes(lambda: User.objects.create(username="new")) == []


def test_lists_without_permissions_do_not_change(guarded: None) -> None:
    assert access_signals._get_restricted_kinds("default") == ["tools"]
    assert access_signals._get_restricted_kinds("unguarded") == []


def test_a_change_clears_the_cached_permissions_of_a_user(
    guarded: None, list_changes: ListChanges, jane: User, permission: Permission
) -> None:
    principal = DjangoPrincipal(issuer="x", subject="jane", user=jane)
    assert not principal.has_perm("testapp.view_book")
    assert principal.cached_perm("testapp.view_book") is False
    list_changes(lambda: jane.user_permissions.add(permission))
    assert principal.cached_perm("testapp.view_book") is None
    assert principal.has_perm("testapp.view_book")


def test_a_failed_publish_does_not_fail_the_save(
    guarded: None, jane: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wiring, "get_server", lambda alias: 1 // 0)
    jane.save()
    assert "Notifying clients of changed permissions failed" in caplog.text
