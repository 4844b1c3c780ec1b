import asyncio
import contextlib
import threading
import weakref
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.db import DatabaseError, connection
from django.test import override_settings
from django.utils import timezone

from mcp_django.models import EndReason
from mcp_django.models import Session as Row
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.revisions import LATEST_HANDSHAKE, REVISIONS
from mcp_django.runtime.sessions import expiry
from mcp_django.runtime.sessions import store as module
from mcp_django.runtime.sessions.store import LOCAL_OWNER, TRUST_SECONDS, DatabaseSessionStore
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Overloaded
from mcp_django.signals import session_closed, session_opened

pytestmark = pytest.mark.django_db

HOUR = 3600


class Clock:
    """Monotonic time that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class RunningCall:
    """A call in flight that records its cancellation."""

    def __init__(self) -> None:
        self.cancelled, self._loop = asyncio.Event(), asyncio.get_running_loop()

    def cancel(self) -> None:
        self.cancelled.set()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def store(clock: Clock) -> DatabaseSessionStore:
    return DatabaseSessionStore(LeasingExecutor())


@pytest.fixture
def elsewhere(clock: Clock) -> DatabaseSessionStore:
    """Provide the store of another worker."""
    other = DatabaseSessionStore(LeasingExecutor())
    session_closed.disconnect(other._on_closed, sender=Row)
    return other


async def open_session(
    store: DatabaseSessionStore, owner: str = "ada", *, initialized: bool = True, **options: Any
) -> ServerSession:
    info: dict[str, Any] = {"name": "client", "version": "1"}
    options = {"client_info": info, "capabilities": {"roots": {}}, "server": "default", **options}
    session = await store.open(owner=owner, revision=LATEST_HANDSHAKE, **options)
    if initialized:
        session.initialized = True
        await store.save(session)
    return session


async def age(session: ServerSession, **columns: Any) -> None:
    """Change the row without the store, as another worker or time would."""
    await Row.objects.filter(key_hash=Row.hash(session.key)).aupdate(**columns)


async def settle(store: DatabaseSessionStore) -> None:
    """Wait for the background tasks of the store."""
    await asyncio.gather(*store._tasks)


def ago(seconds: float) -> Any:
    return timezone.now() - timedelta(seconds=seconds)


@contextlib.contextmanager
def record_sessions(signal: Any) -> Iterator[list[Row]]:
    rows: list[Row] = []

    def record(*, session: Row, **_: Any) -> None:
        rows.append(session)

    signal.connect(record)
    try:
        yield rows
    finally:
        signal.disconnect(record)


class TestOpening:
    async def test_the_row_has_the_details_of_the_client(self, store: DatabaseSessionStore) -> None:
        user = await get_user_model()._default_manager.acreate(username="ada")
        with record_sessions(session_opened) as rows:
            session = await open_session(store, user_id=user.pk, initialized=False)
        row = await Row.objects.aget()
        assert rows == [row]
        assert (row.owner, row.server, row.revision, row.user_id) == (
            "ada",
            "default",
            session.revision.version,
            user.pk,
        )
        assert (row.client_info, row.client_capabilities) == (session.client_info, {"roots": {}})
        assert (row.key_hash, row.initialized, row.slot is not None) == (Row.hash(session.key), False, True)
        assert row.expires - row.created == timedelta(days=7)
        assert session.pk == row.pk

    async def test_text_that_postgresql_cannot_store_is_replaced(self, store: DatabaseSessionStore) -> None:
        session = await open_session(store, client_info={"name": "a\0b", "n\0": [{"x": "\0"}]})
        await Row.objects.aget()
        assert session.client_info == {"name": "a\ufffdb", "n\ufffd": [{"x": "\ufffd"}]}

    async def test_a_client_with_too_long_details_is_refused(self, store: DatabaseSessionStore) -> None:
        with pytest.raises(InvalidParams):
            await open_session(store, client_info={"name": "x" * 70_000})
        assert not await Row.objects.aexists()

    @override_settings(MCP={"LIMITS": {"SESSIONS_PER_OWNER": 2}})
    async def test_above_the_quota_the_session_idle_longest_ends_at_once(self, store: DatabaseSessionStore) -> None:
        idle, used = await open_session(store), await open_session(store)
        await age(idle, last_seen=ago(50))
        await age(used, last_seen=ago(10))
        newest = await open_session(store)
        assert store.peek(idle.key, "ada") is None
        assert await store.load(idle.key, "ada") is None
        assert await store.load(used.key, "ada") is used
        assert await store.load(newest.key, "ada") is newest

    @override_settings(MCP={"LIMITS": {"SESSIONS_PER_OWNER": 2}})
    async def test_a_busy_session_is_not_the_first_to_end_above_the_quota(self, store: DatabaseSessionStore) -> None:
        busy, idle = await open_session(store), await open_session(store)
        await age(busy, last_seen=ago(50))
        busy.in_flight[1] = RunningCall()
        await open_session(store)
        assert await store.load(busy.key, "ada") is busy
        assert await store.load(idle.key, "ada") is None

    @override_settings(MCP={"LIMITS": {"SESSIONS_PER_OWNER": 1}})
    async def test_the_local_principal_has_no_quota(self, store: DatabaseSessionStore) -> None:
        sessions = [await open_session(store, LOCAL_OWNER) for _ in range(3)]
        assert [await store.load(session.key, LOCAL_OWNER) for session in sessions] == sessions

    @override_settings(MCP={"LIMITS": {"SESSIONS": 2}})
    async def test_above_the_cap_of_a_server_no_session_opens(self, store: DatabaseSessionStore) -> None:
        await open_session(store, "a")
        other = await open_session(store, LOCAL_OWNER)
        with pytest.raises(Overloaded) as refused:
            await open_session(store, "b")
        assert refused.value.retry_after > 0
        await open_session(store, "b", server="staff")
        await store.end(other, "client")
        await open_session(store, "b")

    @override_settings(MCP={"LIMITS": {"SESSIONS": 1}})
    async def test_expired_sessions_do_not_count_before_they_are_reaped(
        self, store: DatabaseSessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await age(await open_session(store), last_seen=ago(HOUR + 1))
        monkeypatch.setattr(expiry, "expire_sessions", lambda *_, **__: None)
        await open_session(store)


class TestFinding:
    def test_a_recently_read_session_is_found_without_a_query(
        self, store: DatabaseSessionStore, django_assert_num_queries: Any
    ) -> None:
        session = async_to_sync(open_session)(store)
        with django_assert_num_queries(0):
            assert store.peek(session.key, "ada") is session

    async def test_it_is_read_again_after_a_while_into_the_same_object(
        self, store: DatabaseSessionStore, clock: Clock
    ) -> None:
        session = await open_session(store)
        clock.now += TRUST_SECONDS
        assert store.peek(session.key, "ada") is None
        await age(session, log_level="error")
        assert await store.load(session.key, "ada") is session
        assert session.log_level == "error"
        assert store.peek(session.key, "ada") is session

    async def test_another_worker_reads_it_from_the_row(
        self, store: DatabaseSessionStore, elsewhere: DatabaseSessionStore
    ) -> None:
        session = await open_session(store)
        session.log_level = "debug"
        await store.save(session)
        found = await elsewhere.load(session.key, "ada")
        assert found is not None
        assert found is not session
        assert (found.key, found.owner, found.revision) == (session.key, "ada", session.revision)
        assert (found.client_info, found.client_capabilities) == (session.client_info, session.client_capabilities)
        assert (found.log_level, found.initialized, found.pk) == ("debug", True, session.pk)

    async def test_a_session_of_another_owner_is_not_found_and_goes_on(
        self, subtests: pytest.Subtests, store: DatabaseSessionStore, elsewhere: DatabaseSessionStore
    ) -> None:
        for owner in ["bob", "", "ADA", "local"]:
            with subtests.test(owner=owner):
                session = await open_session(store)
                session.in_flight[1] = call = RunningCall()
                assert store.peek(session.key, owner) is None
                assert await store.load(session.key, owner) is None
                assert await elsewhere.load(session.key, owner) is None
                assert store.peek(session.key, "ada") is session
                assert not call.cancelled.is_set()

    async def test_an_unknown_key_is_no_session(self, subtests: pytest.Subtests, store: DatabaseSessionStore) -> None:
        for key in ["", "unknown", "x" * 5000, "\udc80\0ü"]:
            with subtests.test(key=key):
                assert store.peek(key, "ada") is None
                assert await store.load(key, "ada") is None

    async def test_a_session_of_another_server_is_unknown_to_a_store_that_has_one(
        self, store: DatabaseSessionStore, clock: Clock
    ) -> None:
        session = await open_session(store, server="staff")
        assert await DatabaseSessionStore(LeasingExecutor(), server="default").load(session.key, "ada") is None
        assert await DatabaseSessionStore(LeasingExecutor(), server="staff").load(session.key, "ada") is not None

    async def test_an_owner_with_a_very_long_key_finds_the_session(
        self, store: DatabaseSessionStore, elsewhere: DatabaseSessionStore
    ) -> None:
        owner = "https://issuer.example/|" + "s" * 400
        session = await open_session(store, owner)
        assert store.peek(session.key, owner) is session
        assert await elsewhere.load(session.key, owner) is not None
        assert await elsewhere.load(session.key, owner + "t") is None

    async def test_a_revision_no_longer_served_ends_its_sessions(
        self, store: DatabaseSessionStore, elsewhere: DatabaseSessionStore
    ) -> None:
        session = await open_session(store)
        await age(session, revision="1999")
        assert await elsewhere.load(session.key, "ada") is None

    async def test_before_initialized_every_request_reads_the_row(
        self, store: DatabaseSessionStore, elsewhere: DatabaseSessionStore
    ) -> None:
        session = await open_session(store, initialized=False)
        assert store.peek(session.key, "ada") is None
        there = await elsewhere.load(session.key, "ada")
        assert there is not None
        there.initialized = True
        await elsewhere.save(there)
        assert (await store.load(session.key, "ada"), session.initialized) == (session, True)
        assert store.peek(session.key, "ada") is session

    async def test_two_requests_that_read_the_row_at_once_share_one_session(
        self, store: DatabaseSessionStore, elsewhere: DatabaseSessionStore
    ) -> None:
        session = await open_session(store)
        first, second = await asyncio.gather(*(elsewhere.load(session.key, "ada") for _ in range(2)))
        assert first is not None
        assert first is second

    async def test_the_cache_is_bounded_but_for_sessions_with_running_calls(
        self, store: DatabaseSessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_CACHED_SESSIONS", 2)
        busy = await open_session(store)
        busy.in_flight[1] = RunningCall()
        idle = [await open_session(store) for _ in range(3)]
        assert store.peek(busy.key, "ada") is busy
        assert [store.peek(session.key, "ada") for session in idle] == [None, None, idle[2]]
        assert len(store._entries) == len(store._keys_by_pk) == 2
        assert await store.load(idle[0].key, "ada") is not None


class TestExpiry:
    async def test_an_ended_session_is_unknown_after_its_row_is_read_again(
        self, subtests: pytest.Subtests, store: DatabaseSessionStore, clock: Clock
    ) -> None:
        for columns in [{"last_seen": ago(HOUR + 1)}, {"expires": ago(1)}, {"terminated_at": ago(1)}]:
            with subtests.test(columns=columns):
                session = await open_session(store)
                await age(session, **columns)
                clock.now += TRUST_SECONDS
                assert await store.load(session.key, "ada") is None
                assert store._entries == {}

    async def test_a_call_of_a_session_that_ended_on_another_worker_is_cancelled(
        self, store: DatabaseSessionStore, clock: Clock
    ) -> None:
        session = await open_session(store)
        session.in_flight[1] = call = RunningCall()
        await age(session, terminated_at=ago(1))
        clock.now += TRUST_SECONDS
        assert await store.load(session.key, "ada") is None
        await call.cancelled.wait()

    async def test_a_session_that_serves_a_call_is_not_idle(self, store: DatabaseSessionStore, clock: Clock) -> None:
        session = await open_session(store)
        session.in_flight[1] = RunningCall()
        await age(session, last_seen=ago(2 * HOUR))
        clock.now += TRUST_SECONDS
        assert await store.load(session.key, "ada") is session
        assert (await Row.objects.aget()).last_seen > ago(60)

    async def test_opening_reaps_expired_sessions_but_not_busy_ones(
        self, store: DatabaseSessionStore, clock: Clock
    ) -> None:
        idle, busy, old = await open_session(store, "a"), await open_session(store, "b"), await open_session(store, "c")
        busy.in_flight[1] = RunningCall()
        await age(idle, last_seen=ago(HOUR + 1))
        await age(busy, last_seen=ago(HOUR + 1))
        await age(old, expires=ago(1))
        clock.now += expiry.EXPIRY_INTERVAL_SECONDS
        with record_sessions(session_closed) as rows:
            await open_session(store, "d")
        assert {(row.owner, row.end_reason) for row in rows} == {("a", EndReason.IDLE), ("c", EndReason.LIFETIME)}
        assert (await Row.objects.aget(owner="b")).last_seen > ago(60)

    async def test_reaping_is_rare(self, store: DatabaseSessionStore, clock: Clock) -> None:
        await age(await open_session(store, "a"), last_seen=ago(HOUR + 1))
        clock.now += expiry.EXPIRY_INTERVAL_SECONDS - 1
        await open_session(store, "b")
        assert (await Row.objects.aget(owner="a")).terminated_at is None
        clock.now += 1
        await open_session(store, "c")
        assert (await Row.objects.aget(owner="a")).terminated_at is not None

    async def test_ended_sessions_are_deleted_after_a_day(self, store: DatabaseSessionStore, clock: Clock) -> None:
        for owner, seconds in (("old", 25 * HOUR), ("new", 23 * HOUR)):
            await age(await open_session(store, owner), terminated_at=ago(seconds))
        clock.now += expiry.EXPIRY_INTERVAL_SECONDS
        await open_session(store, "c")
        assert {row.owner async for row in Row.objects.all()} == {"new", "c"}

    async def test_the_number_of_kept_ended_sessions_is_bounded(
        self, store: DatabaseSessionStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(expiry, "MAX_ENDED_SESSIONS", 2)
        for seconds in (40, 30, 20, 10):
            await age(await open_session(store, f"{seconds} ago"), terminated_at=ago(seconds))
        clock.now += expiry.EXPIRY_INTERVAL_SECONDS
        await open_session(store, "c")
        assert {row.owner async for row in Row.objects.all()} == {"20 ago", "10 ago", "c"}

    async def test_sessions_of_a_client_that_opens_and_ends_many_are_deleted(
        self, store: DatabaseSessionStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(expiry, "MAX_ENDED_SESSIONS", 2)
        monkeypatch.setattr(expiry, "MAX_OPENED_BETWEEN_RUNS", 3)
        for _ in range(20):
            await store.end(await open_session(store), "deleted by the client")
        assert await Row.objects.acount() <= 2 + 3


class TestSaving:
    async def test_the_log_level_and_initialized_are_written(self, store: DatabaseSessionStore) -> None:
        session = await open_session(store, initialized=False)
        session.log_level, session.initialized = "warning", True
        await store.save(session)
        row = await Row.objects.aget()
        assert (row.log_level, row.initialized) == ("warning", True)

    async def test_one_worker_does_not_overwrite_the_columns_of_another(
        self, store: DatabaseSessionStore, elsewhere: DatabaseSessionStore
    ) -> None:
        here = await open_session(store, initialized=False)
        there = await elsewhere.load(here.key, "ada")
        assert there is not None
        there.log_level = "debug"
        await elsewhere.save(there)
        here.initialized = True
        await store.save(here)
        there.log_level = "error"
        await elsewhere.save(there)
        row = await Row.objects.aget()
        assert (row.log_level, row.initialized) == ("error", True)

    async def test_a_read_that_crosses_a_write_does_not_undo_it(
        self, store: DatabaseSessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = await open_session(store)
        find = store._find_row

        def slow_find(*arguments: Any, **options: Any) -> Row | None:
            row = find(*arguments, **options)
            session.log_level = "error"
            async_to_sync(store.save)(session)
            return row

        monkeypatch.setattr(store, "_find_row", slow_find)
        assert await store.load(session.key, "ada") is session
        assert session.log_level == "error"

    def test_unchanged_values_are_not_written(
        self, store: DatabaseSessionStore, django_assert_num_queries: Any
    ) -> None:
        session = async_to_sync(open_session)(store, initialized=False)
        with django_assert_num_queries(0):
            async_to_sync(store.save)(session)


class TestEnding:
    async def test_an_ended_session_is_unknown_everywhere_and_its_calls_are_cancelled(
        self, store: DatabaseSessionStore, elsewhere: DatabaseSessionStore
    ) -> None:
        session = await open_session(store)
        session.in_flight[1] = call = RunningCall()
        with record_sessions(session_closed) as rows:
            await store.end(session, EndReason.CLIENT)
        assert call.cancelled.is_set()
        assert store.peek(session.key, "ada") is None
        assert await store.load(session.key, "ada") is None
        assert await elsewhere.load(session.key, "ada") is None
        assert [(row.key_hash, row.end_reason) for row in rows] == [(Row.hash(session.key), "client")]

    async def test_a_session_ended_by_the_admin_of_this_process_ends_at_once(self, store: DatabaseSessionStore) -> None:
        session = await open_session(store)
        session.in_flight[1] = call = RunningCall()
        # From a thread that has nothing to do with the event loop.
        thread = threading.Thread(target=store._on_closed, kwargs={"session": await Row.objects.aget()})
        thread.start()
        await call.cancelled.wait()
        thread.join()
        assert store.peek(session.key, "ada") is None

    async def test_a_session_that_ends_while_its_row_is_read_is_not_revived(
        self, store: DatabaseSessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = await open_session(store)
        find = store._find_row

        def slow_find(*arguments: Any, **options: Any) -> Row | None:
            row = find(*arguments, **options)
            Row.objects.filter(key_hash=Row.hash(session.key)).end("admin")
            return row

        monkeypatch.setattr(store, "_find_row", slow_find)
        assert await store.load(session.key, "ada") is None
        assert store.peek(session.key, "ada") is None

    async def test_the_first_reason_is_kept(self, store: DatabaseSessionStore) -> None:
        session = await open_session(store)
        await store.end(session, "client")
        await store.end(session, "admin")
        assert (await Row.objects.aget()).end_reason == "client"


class TestTouching:
    def test_one_write_a_minute_and_in_the_background(
        self, store: DatabaseSessionStore, clock: Clock, django_assert_num_queries: Any
    ) -> None:
        session = async_to_sync(open_session)(store)
        async_to_sync(age)(session, last_seen=ago(300))

        async def touch() -> None:
            store.touch(session)
            store.touch(session)
            await settle(store)

        clock.now += module.TOUCH_INTERVAL_SECONDS
        with django_assert_num_queries(1):
            async_to_sync(touch)()
        assert Row.objects.get().last_seen > ago(60)
        clock.now += module.TOUCH_INTERVAL_SECONDS - 1
        with django_assert_num_queries(0):
            async_to_sync(touch)()

    async def test_a_touch_that_another_worker_made_is_not_repeated(
        self, store: DatabaseSessionStore, clock: Clock
    ) -> None:
        session = await open_session(store)
        await age(session, last_seen=(moment := ago(5)))
        clock.now += module.TOUCH_INTERVAL_SECONDS
        store.touch(session)
        await settle(store)
        assert (await Row.objects.aget()).last_seen == moment
        assert store.peek(session.key, "ada") is None
        assert await store.load(session.key, "ada") is session

    async def test_touching_a_session_that_ended_elsewhere_cancels_its_calls(
        self, store: DatabaseSessionStore, clock: Clock
    ) -> None:
        session = await open_session(store)
        session.in_flight[1] = call = RunningCall()
        await age(session, terminated_at=ago(1))
        clock.now += module.TOUCH_INTERVAL_SECONDS
        store.touch(session)
        await call.cancelled.wait()
        assert session.key not in store._entries

    async def test_a_long_call_keeps_its_session_alive_by_itself(
        self, store: DatabaseSessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "TOUCH_INTERVAL_SECONDS", 0.001)
        session = await open_session(store)
        touched, often = [], asyncio.Event()

        def touch(which: ServerSession) -> None:
            touched.append(which)
            if len(touched) == 3:
                often.set()

        monkeypatch.setattr(store, "touch", touch)
        session.in_flight[1] = RunningCall()
        await often.wait()
        assert set(touched) == {session}

    async def test_an_idle_session_is_tracked_only_while_a_call_can_begin(
        self, store: DatabaseSessionStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = await open_session(store)
        monkeypatch.setattr(store, "touch", lambda _: pytest.fail("it serves no call"))
        known = store._entries[session.key]
        store._on_touch_timer(weakref.ref(known))
        assert known.touch_timer is not None
        clock.now += TRUST_SECONDS
        store._on_touch_timer(weakref.ref(known))
        assert known.touch_timer is None
        await store.load(session.key, "ada")
        assert known.touch_timer is not None

    async def test_an_ended_session_is_not_tracked(self, store: DatabaseSessionStore) -> None:
        session = await open_session(store)
        known = store._entries[session.key]
        await store.end(session, "client")
        session.in_flight[1] = RunningCall()
        store._on_touch_timer(weakref.ref(known))
        assert known.touch_timer is None
        assert not store._tasks

    async def test_an_ended_session_is_released_before_its_timer_is_due(self, store: DatabaseSessionStore) -> None:
        session = await open_session(store)
        known = weakref.ref(store._entries[session.key])
        assert known() is not None
        await store.end(session, "client")
        assert known() is None

    async def test_a_database_outage_does_not_end_sessions(
        self,
        store: DatabaseSessionStore,
        clock: Clock,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def away(*_: Any, **__: Any) -> bool:
            raise DatabaseError("gone")

        session = await open_session(store)
        clock.now += module.TOUCH_INTERVAL_SECONDS
        monkeypatch.setattr(expiry, "touch_session", away)
        store.touch(session)
        await settle(store)
        assert session.key in store._entries
        assert "Failed to write" in caplog.text
        assert session.key not in caplog.text

    @override_settings(MCP={"LIMITS": {"SESSION_IDLE": 20}})
    async def test_a_short_idle_time_is_touched_more_often(self, store: DatabaseSessionStore, clock: Clock) -> None:
        session = await open_session(store)
        clock.now += 5
        store.touch(session)
        assert store._tasks
        await settle(store)


@pytest.mark.django_db(transaction=True)
def test_many_loops_in_many_threads_share_a_store(clock: Clock) -> None:
    """As under WSGI, where every request has a loop of its own."""
    store = DatabaseSessionStore(LeasingExecutor())
    problems: list[BaseException] = []

    async def live() -> None:
        session = await open_session(store, "crowd")
        await store.load(session.key, "crowd")
        await store.end(session, "client")
        assert await store.load(session.key, "crowd") is None

    def run() -> None:
        try:
            for _ in range(5):
                async_to_sync(live)()
        except BaseException as problem:
            problems.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert not Row.objects.filter(terminated_at=None).exists()
    assert store._entries == {}


def test_every_handshake_revision_fits_its_column() -> None:
    size = Row._meta.get_field("revision").max_length
    assert size is not None
    assert all(len(version) <= size for version in REVISIONS)
