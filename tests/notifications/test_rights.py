from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from mcp_django import wiring
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.notifications import access_signals
from mcp_django.runtime.events.event_log import EventLog

pytestmark = pytest.mark.django_db
Told = Callable[[Callable[[], Any]], list[tuple[str, str | None]]]


@pytest.fixture
def guarded(settings: Any) -> Iterator[None]:
    """One server with a tool that takes a permission, and one whose lists are everybody's."""
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, "unguarded": {}}}
    server = wiring.get_server("default")
    server.tool(lambda: "", name="guarded_by_rights", permission="testapp.view_book")
    yield
    server.registry.tools.remove("guarded_by_rights")


@pytest.fixture
def told(django_capture_on_commit_callbacks: Any) -> Told:
    """Whose lists of what have changed, by a piece of work."""

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


def test_permissions_of_a_user_are_told_to_that_user(
    guarded: None, told: Told, jane: User, permission: Permission
) -> None:
    mine = [("tools", str(jane.pk))]
    assert told(lambda: jane.user_permissions.add(permission)) == mine
    assert told(lambda: jane.user_permissions.add(permission)) == []
    assert told(jane.user_permissions.clear) == mine
    assert told(lambda: permission.user_set.add(jane)) == mine


def test_groups_of_a_user_are_told_to_that_user(guarded: None, told: Told, jane: User) -> None:
    group = Group.objects.create(name="readers")
    assert told(lambda: jane.groups.add(group)) == [("tools", str(jane.pk))]
    assert told(lambda: group.user_set.remove(jane)) == [("tools", str(jane.pk))]


def test_permissions_of_a_group_are_told_to_everybody(guarded: None, told: Told, permission: Permission) -> None:
    group = Group.objects.create(name="readers")
    assert told(lambda: group.permissions.add(permission)) == [("tools", None)]
    assert told(group.delete) == [("tools", None)]


def test_many_users_at_once_are_everybody(guarded: None, told: Told) -> None:
    group = Group.objects.create(name="readers")
    users = User.objects.bulk_create(User(username=f"user{n}") for n in range(21))
    assert told(lambda: group.user_set.add(*users)) == [("tools", None)]
    assert told(group.user_set.clear) == [("tools", None)]


def test_a_user_whose_standing_may_have_changed_is_told_and_one_who_logs_in_is_not(
    guarded: None, told: Told, jane: User
) -> None:
    jane.is_superuser = True
    assert told(jane.save) == [("tools", str(jane.pk))]
    assert told(lambda: jane.save(update_fields=["last_login"])) == []
    assert told(lambda: User.objects.create(username="new")) == []


def test_where_no_list_depends_on_permissions_there_is_nothing_to_tell(guarded: None) -> None:
    assert access_signals._get_restricted_kinds("default") == ["tools"]
    assert access_signals._get_restricted_kinds("unguarded") == []


def test_what_was_believed_of_a_user_is_forgotten(
    guarded: None, told: Told, jane: User, permission: Permission
) -> None:
    principal = DjangoPrincipal(issuer="x", subject="jane", user=jane)
    assert not principal.has_perm("testapp.view_book")
    assert principal.cached_perm("testapp.view_book") is False
    told(lambda: jane.user_permissions.add(permission))
    assert principal.cached_perm("testapp.view_book") is None
    assert principal.has_perm("testapp.view_book")


def test_what_cannot_be_told_fails_no_save(
    guarded: None, jane: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wiring, "get_server", lambda alias: 1 // 0)
    jane.save()
    assert "Notifying clients of changed permissions failed" in caplog.text
