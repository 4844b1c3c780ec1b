import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import OperationalError, transaction

import mcp_django
from mcp_django import (
    anotify_list_changed,
    anotify_resource_updated,
    notifications,
    notify_list_changed,
    notify_resource_updated,
    publish_changes,
)
from mcp_django.extensions import anotify_session, notify_session
from mcp_django.notifications import abroadcast, anotify_extension_key, broadcast, notify_extension_key
from mcp_django.runtime.events.event_log import EventLog
from mcp_django.runtime.threads.executor import LeasingExecutor
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.django_db
Published = list[tuple[str, str, Any]]


@pytest.fixture
def published() -> Callable[[], Published]:
    """List topic, kind and payload of all events published since the test began."""
    start = EventLog().head()
    return lambda: [tuple(event[1:]) for event in EventLog().read(start)]  # type: ignore[misc]


@pytest.fixture
def two_servers(settings: Any) -> None:
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, "staff": {}}}


@pytest.fixture
def run_commit_hooks(django_capture_on_commit_callbacks: Any) -> Any:
    """Run the block, and its commit hooks at the end."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


def test_an_update_is_published_to_every_server(two_servers: None, run_commit_hooks: Any, published: Any) -> None:
    with run_commit_hooks():
        notify_resource_updated("airport://ZRH")
    update = "updated", {"uri": "airport://ZRH"}
    assert published() == [("changes:default", *update), ("changes:staff", *update)]


def test_an_update_can_be_for_one_owner_only(run_commit_hooks: Any, published: Any) -> None:
    with run_commit_hooks(), transaction.atomic():
        for owner in ("django|1", "django|1", "django|2", None):
            notify_resource_updated("memory://facts", owner=owner)
    assert [payload for _, _, payload in published()] == [
        {"uri": "memory://facts", "owner": "django|1"},
        {"uri": "memory://facts", "owner": "django|2"},
        {"uri": "memory://facts"},
    ]


def test_a_server_can_be_named(two_servers: None, run_commit_hooks: Any, published: Any) -> None:
    with run_commit_hooks():
        notify_list_changed("tools", server="staff")
    assert published() == [("changes:staff", "list_changed", {"kind": "tools"})]


def test_a_key_of_an_extension_is_published_to_the_server_that_has_it(
    two_servers: None, run_commit_hooks: Any, published: Any
) -> None:
    with run_commit_hooks():
        notify_extension_key("entryIds", "17", server="staff")
    assert published() == [("changes:staff", "extension", {"field": "entryIds", "key": "17"})]


def test_a_broadcast_carries_its_params(run_commit_hooks: Any, published: Any) -> None:
    with run_commit_hooks():
        broadcast("notifications/acme/closing", {"minutes": 5})
        broadcast("notifications/acme/closed")
    assert published() == [
        ("changes:default", "broadcast", {"method": "notifications/acme/closing", "params": {"minutes": 5}}),
        ("changes:default", "broadcast", {"method": "notifications/acme/closed"}),
    ]


def test_one_transaction_publishes_a_change_once_and_each_broadcast(run_commit_hooks: Any, published: Any) -> None:
    with run_commit_hooks(), transaction.atomic():
        for _ in range(3):
            notify_resource_updated("airport://ZRH")
            broadcast("notifications/acme/tick")
            notify_resource_updated("airport://GVA")
    assert [(kind, payload.get("uri")) for _, kind, payload in published()] == [
        ("updated", "airport://ZRH"),
        ("broadcast", None),
        ("updated", "airport://GVA"),
        ("broadcast", None),
        ("broadcast", None),
    ]


def test_events_of_one_transaction_are_appended_together(
    run_commit_hooks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends: list[int] = []
    append = EventLog.append

    def counted(self: EventLog, drafts: Any) -> Any:
        appends.append(len(drafts))
        return append(self, drafts)

    monkeypatch.setattr(EventLog, "append", counted)
    with run_commit_hooks(), transaction.atomic():
        for number in range(100):
            notify_resource_updated(f"airport://{number}")
    assert appends == [100]


def test_events_of_a_rolled_back_savepoint_are_not_published(run_commit_hooks: Any, published: Any) -> None:
    with run_commit_hooks(), transaction.atomic():
        notify_resource_updated("airport://kept")
        with transaction.atomic():
            notify_resource_updated("airport://lost")
            transaction.set_rollback(True)
        with transaction.atomic():
            notify_resource_updated("airport://later")
    assert [payload["uri"] for _, _, payload in published()] == ["airport://kept", "airport://later"]


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_an_event_is_published_at_once(published: Any) -> None:
    notify_resource_updated("airport://ZRH")
    assert len(published()) == 1


@pytest.fixture
def unreachable_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the database of the event log unreachable."""

    def fail(self: EventLog, drafts: Any) -> Any:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(EventLog, "append", fail)


@pytest.mark.django_db(transaction=True)
async def test_without_a_transaction_publishing_fails_with_the_error_of_the_log(
    unreachable_log: None, subtests: pytest.Subtests
) -> None:
    for publish in (
        lambda: anotify_resource_updated("airport://ZRH"),
        lambda: anotify_list_changed("tools"),
        lambda: abroadcast("notifications/acme"),
        lambda: anotify_extension_key("entryIds", "17"),
        lambda: anotify_session(7, "notifications/audit", {}),
    ):
        with subtests.test(publish=publish), pytest.raises(OperationalError, match="server closed"):
            await publish()


@pytest.mark.django_db(transaction=True)
def test_a_log_that_cannot_be_written_fails_no_transaction_and_is_logged(
    unreachable_log: None, caplog: pytest.LogCaptureFixture
) -> None:
    later: list[str] = []
    with transaction.atomic():
        notify_resource_updated("airport://ZRH")
        transaction.on_commit(lambda: later.append("hook"))
    assert later == ["hook"]
    (record,) = caplog.records
    assert record.name == "mcp_django.events"
    assert "after the commit" in record.message
    assert "server closed the connection" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_row_that_is_saved_is_not_failed_by_its_notification(
    unreachable_log: None, caplog: pytest.LogCaptureFixture
) -> None:
    undo = publish_changes(Group, "group://{name}")
    try:
        Group.objects.create(name="editors")
    finally:
        undo()
    assert Group.objects.filter(name="editors").exists()
    assert [record.name for record in caplog.records] == ["mcp_django.events"] * 2
    assert "Notifying clients of changed rows failed" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_with_autocommit_off_an_event_is_part_of_the_transaction(published: Any) -> None:
    transaction.set_autocommit(False)
    try:
        notify_resource_updated("airport://lost")
        transaction.rollback()
        assert published() == []
        notify_resource_updated("airport://kept")
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert [payload["uri"] for _, _, payload in published()] == ["airport://kept"]


def test_an_invalid_notification_is_refused_by_the_call(subtests: pytest.Subtests, two_servers: None) -> None:
    for call in [
        lambda: notify_resource_updated(""),
        lambda: notify_resource_updated("a:" + "x" * 8192),
        lambda: notify_resource_updated("a:\0"),
        lambda: notify_list_changed("toys"),
        lambda: broadcast("tools/call"),
        lambda: broadcast("notifications/"),
        lambda: notify_resource_updated("a:b", server="stuff"),
        lambda: broadcast("notifications/acme", {"when": object()}),
    ]:
        with subtests.test(call=call), pytest.raises((ValueError, TypeError, ImproperlyConfigured)):
            call()


def test_an_alias_that_is_misspelt_is_suggested(two_servers: None) -> None:
    with pytest.raises(ImproperlyConfigured, match='did you mean "staff"'):
        notify_list_changed("tools", server="stuff")


def test_a_sync_call_in_async_code_is_an_error_with_advice(published: Any) -> None:
    async def main() -> None:
        for call in (
            lambda: notify_resource_updated("a:b"),
            lambda: notify_list_changed("tools"),
            lambda: broadcast("notifications/acme"),
        ):
            with pytest.raises(SynchronousOnlyOperation, match="with the prefix a"):
                call()

    asyncio.run(main())
    assert published() == []


async def test_the_async_variants_publish_the_same(run_commit_hooks: Any, published: Any) -> None:
    def begin() -> Any:
        block = run_commit_hooks()
        block.__enter__()
        return block

    block = await sync_to_async(begin)()
    await anotify_resource_updated("airport://ZRH")
    await anotify_list_changed("prompts")
    await abroadcast("notifications/acme", {"n": 1})
    await sync_to_async(block.__exit__)(None, None, None)
    assert [(kind, payload) for _, kind, payload in await sync_to_async(published)()] == [
        ("updated", {"uri": "airport://ZRH"}),
        ("list_changed", {"kind": "prompts"}),
        ("broadcast", {"method": "notifications/acme", "params": {"n": 1}}),
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("roll_back", [False, True])
def test_an_atomic_call_publishes_at_its_commit(roll_back: bool, published: Any) -> None:
    async def main() -> None:
        executor = LeasingExecutor(max_threads=1)
        try:
            with executor.context():
                async with executor.atomic(["default"]):
                    await anotify_resource_updated("airport://ZRH")
                    assert await executor.run(published) == []
                    await executor.run(transaction.set_rollback, roll_back)
        finally:
            executor.close(timeout=WAIT_SECONDS)

    asyncio.run(main())
    assert len(published()) == (0 if roll_back else 1)


def test_the_names_are_public_and_imported_lazily() -> None:
    assert mcp_django.notify_resource_updated is notify_resource_updated
    assert {"notify_list_changed", "publish_changes"} <= set(dir(mcp_django))
    assert {"abroadcast", "broadcast"} <= set(notifications.__all__)


def test_a_notification_of_an_extension_is_published_to_one_session(run_commit_hooks: Any, published: Any) -> None:
    with run_commit_hooks():
        notify_session(7, "notifications/audit", {"entryId": "1"})
    message = {"jsonrpc": "2.0", "method": "notifications/audit", "params": {"entryId": "1"}}
    assert published() == [("session:7", "message", message)]

    with pytest.raises(ValueError, match="begins with"):
        notify_session(7, "audit", {})
