import threading
from datetime import timedelta

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.models import EventSequence, StreamEvent
from mcp_django.runtime.events.event_log import Event, EventDraft, EventLog

from .serving import real_threads

pytestmark = pytest.mark.django_db
LOG = EventLog()


def test_numbers_follow_one_another_over_appends() -> None:
    first = LOG.append([EventDraft("a", "message", {"n": 1})])
    more = LOG.append([EventDraft("b", "message", 2), EventDraft("a", "ended")])
    start = first[0].seq
    assert [event.seq for event in more] == [start + 1, start + 2]
    assert LOG.read(start - 1) == [*first, *more]
    assert LOG.head() == start + 2


def test_an_event_is_read_as_it_was_written() -> None:
    payload = {"text": "Zürich \u0000 \U0001f600", "list": [1, 2.5, None, True], "nested": {"empty": {}}}
    [event] = LOG.append([EventDraft("session:1", "message", payload)])
    assert LOG.read(event.seq - 1) == [Event(event.seq, "session:1", "message", payload)]


def test_a_topic_is_read_without_the_others() -> None:
    events = LOG.append([EventDraft(topic, "message", n) for n, topic in enumerate("abababab")])
    assert LOG.read(events[1].seq, topic="b", limit=2) == [events[3], events[5]]


def test_an_empty_append_writes_nothing() -> None:
    before = LOG.head()
    assert LOG.append([]) == []
    assert LOG.head() == before


def test_numbers_go_on_where_the_log_ends_when_the_sequence_is_lost() -> None:
    [event] = LOG.append([EventDraft("a", "message")])
    EventSequence.objects.all().delete()
    assert LOG.append([EventDraft("a", "message")])[0].seq == event.seq + 1


def test_a_transaction_that_is_rolled_back_leaves_no_gap() -> None:
    [before] = LOG.append([EventDraft("a", "message")])
    with transaction.atomic():
        LOG.append([EventDraft("a", "message")])
        transaction.set_rollback(True)
    assert LOG.append([EventDraft("a", "message")])[0].seq == before.seq + 1


@real_threads
def test_an_append_is_one_short_transaction_that_begins_with_its_write() -> None:
    LOG.append([EventDraft("a", "message")])
    with CaptureQueriesContext(connection) as statements:
        LOG.append([EventDraft("a", "message"), EventDraft("b", "message")])
    commands = [statement["sql"].split()[0] for statement in statements.captured_queries]
    assert commands == (
        ["WITH"] if connection.vendor == "postgresql" else ["BEGIN", "UPDATE", "SELECT", "INSERT", "COMMIT"]
    )


@real_threads
def test_the_transaction_of_an_append_does_not_wait_for_the_disk_and_others_do() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("synchronous_commit is PostgreSQL's (--ds tests.settings_postgres)")
    LOG.append([EventDraft("a", "message")])
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("on",)
    with transaction.atomic():
        LOG.append([EventDraft("a", "message")])
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("on",)


@real_threads
def test_readers_see_no_gap_before_a_number_while_many_append() -> None:
    LOG.append([EventDraft("a", "message")])
    start, writers, each = LOG.head(), 4, 25
    over = threading.Event()
    problems: list[str] = []

    def write(writer: int) -> None:
        for n in range(each):
            LOG.append([EventDraft(f"t{writer}", "message", [n, part]) for part in range(2)])
        connections.close_all()

    def watch() -> None:
        while not over.is_set():
            seen = [event.seq for event in LOG.read(start)]
            if seen != list(range(start + 1, start + 1 + len(seen))):
                problems.append(f"a gap: {seen}")
        connections.close_all()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    watcher = threading.Thread(target=watch)
    for thread in (*threads, watcher):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    watcher.join()
    assert not problems
    assert len(LOG.read(start)) == writers * each * 2
    for writer in range(writers):
        written = [event.payload for event in LOG.read(start, topic=f"t{writer}")]
        assert written == [[n, part] for n in range(each) for part in range(2)]


@real_threads
def test_appends_at_once_succeed_under_repeatable_read() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("isolation levels are PostgreSQL's (--ds tests.settings_postgres)")
    LOG.append([EventDraft("a", "message")])
    start, problems = LOG.head(), list[Exception]()

    def write() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        try:
            for _ in range(20):
                LOG.append([EventDraft("a", "message")])
        except Exception as problem:
            problems.append(problem)
        connections.close_all()

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert LOG.head() == start + 60


def test_a_purge_deletes_a_bounded_number_of_old_events() -> None:
    events = LOG.append([EventDraft("a", "message", n) for n in range(6)])
    old = [event.seq for event in events[:4]]
    StreamEvent.objects.filter(seq__in=old).update(created=timezone.now() - timedelta(minutes=11))
    assert LOG.delete_old(max_age_seconds=600, limit=3) == 3
    assert LOG.delete_old(max_age_seconds=600, limit=3) == 1
    assert LOG.delete_old(max_age_seconds=600, limit=3) == 0
    assert LOG.read(events[0].seq - 1) == events[4:]
    assert LOG.head() == events[-1].seq
