import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.models import EndReason, Session, SessionCount
from mcp_django.models.session import SessionLimit, SlotContention, TooManySessions
from mcp_django.signals import session_closed

IDLE = 3600.0


def row(owner: str = "o", *, seen: float = 0, opened: float = 0, lasts: float = 1e6, **fields: Any) -> Session:
    """An unsaved session: seen, and opened, so many seconds ago; it lasts so many more."""
    now = timezone.now()
    session = Session(
        owner=owner,
        server="default",
        revision="r",
        created=now - timedelta(seconds=opened),
        last_seen=now - timedelta(seconds=seen),
        expires=now + timedelta(seconds=lasts),
        **fields,
    )
    session.generate_key()
    return session


def saved(owner: str = "o", **fields: Any) -> Session:
    session = row(owner, **fields)
    session.save()
    return session


def holders(owner: str = "o") -> set[int]:
    return set(Session.objects.filter(owner=owner, slot__isnull=False).values_list("pk", flat=True))


@contextmanager
def closings() -> Iterator[list[tuple[int, str]]]:
    received: list[tuple[int, str]] = []

    def record(*, session: Session, reason: str, **_: Any) -> None:
        received.append((session.pk, reason))

    session_closed.connect(record)
    try:
        yield received
    finally:
        session_closed.disconnect(record)


def together(count: int, work: Callable[[int], object]) -> list[Any]:
    """Do the work in so many threads at once, each with a connection of its own."""
    gate, outcomes = threading.Barrier(count), []

    def run(number: int) -> None:
        gate.wait()
        try:
            outcomes.append(work(number))
        except Exception as problem:
            outcomes.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes


def test_the_row_has_no_more_of_the_key_than_its_beginning() -> None:
    session = row()
    key = session.generate_key()
    assert Session.hash(key) == session.key_hash
    assert key not in repr(vars(session))
    assert key[9:] not in f"{session!r} {session}"


def test_keys_are_visible_ascii_and_never_the_same() -> None:
    keys = {row().generate_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(0x21 <= ord(letter) <= 0x7E for key in keys for letter in key)
    assert all(len(key) >= 32 for key in keys)


def test_an_owner_too_long_for_its_column_is_hashed() -> None:
    long = "https://issuer.example|" + "x" * 300
    assert Session.encode_owner("issuer|subject|client") == "issuer|subject|client"
    assert len(Session.encode_owner(long)) <= 255
    assert Session.encode_owner(long) != Session.encode_owner(long + "y")


@pytest.mark.django_db
class TestEnding:
    def test_live_sessions_are_neither_ended_nor_expired(self) -> None:
        live, idle, old, ended = saved(), saved(seen=IDLE + 1), saved(lasts=-1), saved()
        Session.objects.filter(pk=ended.pk).end("client")
        assert set(Session.objects.live(idle=IDLE)) == {live}
        assert live.is_live(idle=IDLE)
        assert not idle.is_live(idle=IDLE)
        assert not old.is_live(idle=IDLE)

    def test_an_end_is_marked_frees_the_slot_and_is_announced(self) -> None:
        session = row()
        Session.objects.admit(session, quota=1)
        with closings() as received:
            assert Session.objects.filter(pk=session.pk).end("client") == 1
        session.refresh_from_db()
        assert (session.slot, session.end_reason, received) == (None, "client", [(session.pk, "client")])
        assert session.terminated_at is not None

    def test_a_session_ends_once(self) -> None:
        session = saved()
        Session.objects.filter(pk=session.pk).end("client")
        with closings() as received:
            assert Session.objects.filter(pk=session.pk).end("admin") == 0
        session.refresh_from_db()
        assert (session.end_reason, received) == ("client", [])

    def test_sessions_that_another_worker_ended_first_are_not_announced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = saved(), saved()
        update = type(Session.objects.all()).update

        def overtaken(self: Any, **changes: Any) -> int:
            monkeypatch.undo()
            Session.objects.filter(pk=first.pk).update(terminated_at=timezone.now(), end_reason="elsewhere")
            return update(self, **changes)

        monkeypatch.setattr(type(Session.objects.all()), "update", overtaken)
        with closings() as received:
            assert Session.objects.filter(pk__in=[first.pk, second.pk]).end("admin") == 1
        assert received == [(second.pk, "admin")]

    def test_a_receiver_that_fails_does_not_stop_the_end(self) -> None:
        def fail(**_: Any) -> None:
            raise RuntimeError("receiver")

        session = saved()
        session_closed.connect(fail)
        try:
            assert Session.objects.filter(pk=session.pk).end("client") == 1
        finally:
            session_closed.disconnect(fail)

    def test_reaping_ends_expired_sessions_with_the_reason_and_spares_busy_ones(self) -> None:
        live, idle, old, busy = saved(), saved(seen=IDLE + 1), saved(lasts=-1), saved(seen=IDLE + 1)
        with closings() as received:
            assert Session.objects.end_expired(idle=IDLE, busy_hashes=[busy.key_hash]) == 2
        assert Counter(received) == Counter([(idle.pk, EndReason.IDLE), (old.pk, EndReason.LIFETIME)])
        assert set(Session.objects.filter(terminated_at=None)) == {live, busy}

    def test_reaping_works_in_batches(self) -> None:
        for _ in range(5):
            saved(seen=IDLE + 1)
        assert [Session.objects.end_expired(idle=IDLE, limit=2) for _ in range(4)] == [2, 2, 1, 0]

    def test_a_session_used_during_the_reaping_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = saved(seen=IDLE + 1)
        update = type(Session.objects.all()).update

        def used_meanwhile(self: Any, **changes: Any) -> int:
            monkeypatch.undo()
            Session.objects.filter(pk=session.pk).update(last_seen=timezone.now())
            return update(self, **changes)

        monkeypatch.setattr(type(Session.objects.all()), "update", used_meanwhile)
        with closings() as received:
            assert Session.objects.end_expired(idle=IDLE) == 0
        assert received == []
        assert Session.objects.filter(pk=session.pk, terminated_at=None).exists()

    def test_purging_deletes_a_batch_of_sessions_that_ended_earlier(self) -> None:
        kept, *ended = [saved() for _ in range(4)]
        Session.objects.filter(pk__in=[session.pk for session in ended]).end("client")
        assert Session.objects.ended(before=timezone.now() - timedelta(days=1)).purge() == 0
        assert Session.objects.ended(before=timezone.now()).purge(limit=2) == 2
        assert Session.objects.ended().purge(limit=2) == 1
        assert set(Session.objects.all()) == {kept}

    def test_touching_writes_due_rows_only(self) -> None:
        due, fresh, over = saved(seen=61), saved(seen=59), saved(seen=61)
        Session.objects.filter(pk=over.pk).end("client")
        assert Session.objects.touch(min_interval=60) == 1
        assert Session.objects.get(pk=due.pk).last_seen > due.last_seen
        assert Session.objects.get(pk=fresh.pk).last_seen == fresh.last_seen


@pytest.mark.django_db
class TestQuota:
    def test_each_owner_has_slots_of_its_own(self) -> None:
        for owner in ("a", "b"):
            for _ in range(3):
                Session.objects.admit(row(owner), quota=3)
        assert (len(holders("a")), len(holders("b"))) == (3, 3)
        assert not Session.objects.filter(terminated_at__isnull=False).exists()

    def test_above_the_quota_the_session_with_the_longest_idle_time_is_evicted(self) -> None:
        for seen in (10, 30, 20):
            Session.objects.admit(row(seen=seen, log_level=str(seen)), quota=3)
        with closings() as received:
            Session.objects.admit(row(log_level="new"), quota=3)
        [gone] = Session.objects.filter(terminated_at__isnull=False)
        assert (gone.log_level, gone.end_reason, gone.slot) == ("30", EndReason.QUOTA, None)
        assert received == [(gone.pk, EndReason.QUOTA)]
        assert len(holders()) == 3

    def test_a_session_with_a_running_call_is_evicted_last(self) -> None:
        busy, idle = row(seen=30), row(seen=10)
        for session in (busy, idle):
            Session.objects.admit(session, quota=2)
        Session.objects.admit(row(), quota=2, busy_hashes=[busy.key_hash])
        assert busy.pk in holders()
        assert idle.pk not in holders()

    def test_an_ended_session_releases_its_slot(self) -> None:
        first = row()
        Session.objects.admit(first, quota=1)
        Session.objects.filter(pk=first.pk).end("client")
        Session.objects.admit(row(), quota=1)
        assert not Session.objects.filter(end_reason=EndReason.QUOTA).exists()

    def test_a_lowered_quota_is_reached_with_the_next_session(self) -> None:
        for seen in range(5):
            Session.objects.admit(row(seen=seen + 1), quota=5)
        newest = row()
        Session.objects.admit(newest, quota=2)
        assert len(holders()) == 2
        assert newest.pk in holders()

    def test_without_a_quota_no_slot_is_taken(self) -> None:
        for _ in range(3):
            Session.objects.admit(row("local"), quota=None)
        assert holders("local") == set()
        assert Session.objects.filter(owner="local", terminated_at=None).count() == 3

    def test_the_database_refuses_a_slot_that_is_taken(self) -> None:
        saved(slot=1)
        with pytest.raises(IntegrityError), transaction.atomic():
            saved(slot=1)

    def test_no_session_is_evicted_for_one_that_cannot_be_saved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Session.objects.admit(held := row(), quota=1)

        def taken(self: Session, **_: Any) -> None:
            raise IntegrityError("owner, slot")

        monkeypatch.setattr(Session, "save", taken)
        with closings() as received, pytest.raises(SlotContention):
            Session.objects.admit(row(), quota=1)
        assert holders() == {held.pk}
        assert received == []

    def test_a_session_ended_by_another_worker_is_not_evicted_as_well(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Session.objects.admit(held := row(), quota=1)
        choose = type(Session.objects.all())._choose_slot

        def overtaken(self: Any, *args: Any) -> Session | None:
            monkeypatch.undo()
            leaving = choose(self, *args)
            Session.objects.filter(pk=held.pk).update(terminated_at=timezone.now(), end_reason="client", slot=None)
            return leaving

        monkeypatch.setattr(type(Session.objects.all()), "_choose_slot", overtaken)
        with closings() as received:
            Session.objects.admit(newest := row(), quota=1)
        held.refresh_from_db()
        assert (held.end_reason, received, holders()) == ("client", [], {newest.pk})

    def test_a_slot_that_others_keep_taking_is_a_contention_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(Session.objects.all()), "_try_insert", lambda *_: False)
        with pytest.raises(SlotContention):
            Session.objects.admit(row(), quota=1)


CAP = SessionLimit(3, IDLE)


def bound(server: str = "default") -> int:
    return SessionCount.objects.get(server=server).at_most


@pytest.mark.django_db
class TestCap:
    def test_a_server_admits_sessions_up_to_its_cap(self) -> None:
        for owner in ("a", "b", "local"):
            Session.objects.admit(row(owner), quota=None if owner == "local" else 5, limit=CAP)
        for quota in (None, 5):
            with pytest.raises(TooManySessions):
                Session.objects.admit(row("c"), quota=quota, limit=CAP)
        assert Session.objects.count() == 3

    def test_servers_count_their_own_sessions_only(self) -> None:
        for _ in range(3):
            Session.objects.admit(row("a"), quota=9, limit=CAP)
        other = row("a")
        other.server = "staff"
        Session.objects.admit(other, quota=9, limit=CAP)
        assert (bound(), bound("staff")) == (3, 1)

    @pytest.mark.parametrize("how", ["end", "delete", "expire", "raw"])
    def test_every_end_of_a_session_makes_room_for_another(self, how: str) -> None:
        for number in range(3):
            Session.objects.admit(row(str(number)), quota=9, limit=CAP)
        going = Session.objects.filter(owner="1")
        match how:
            case "end":
                going.end("client")
            case "delete":
                going.delete()
            case "expire":
                going.update(last_seen=timezone.now() - timedelta(seconds=IDLE + 1))
            case "raw":
                going._raw_delete(going.db)
        Session.objects.admit(row("new"), quota=9, limit=CAP)
        with pytest.raises(TooManySessions):
            Session.objects.admit(row("newer"), quota=9, limit=CAP)

    def test_a_lowered_or_raised_cap_applies_at_once(self) -> None:
        for _ in range(3):
            Session.objects.admit(row(), quota=9, limit=CAP)
        with pytest.raises(TooManySessions):
            Session.objects.admit(row(), quota=9, limit=SessionLimit(2, IDLE))
        Session.objects.admit(row(), quota=9, limit=SessionLimit(4, IDLE))

    def test_sessions_are_counted_only_when_the_bound_reaches_the_cap(self) -> None:
        def opening(cap: SessionLimit) -> list[str]:
            with CaptureQueriesContext(connection) as queries:
                Session.objects.admit(row("local"), quota=None, limit=cap)
            return [query["sql"].split()[0] for query in queries if "COUNT(" in query["sql"]]

        assert opening(CAP) == ["SELECT"], "the first of a server has no bound yet"
        assert opening(CAP) == opening(CAP) == []
        Session.objects.all().end("client")
        assert opening(CAP) == ["SELECT"]
        assert opening(CAP) == opening(CAP) == []

    def test_a_lost_or_wrong_count_is_corrected_by_counting(self) -> None:
        for _ in range(3):
            saved()
        with pytest.raises(TooManySessions):
            Session.objects.admit(row(), quota=9, limit=CAP)
        SessionCount.objects.update(at_most=0)
        assert Session.objects.recount("default", idle=IDLE) == bound() == 3
        SessionCount.objects.all().delete()
        with pytest.raises(TooManySessions):
            Session.objects.admit(row(), quota=9, limit=CAP)

    def test_a_session_that_could_not_be_saved_is_not_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Session.objects.admit(row("local"), quota=None, limit=CAP)

        def fail(self: Session, **_: Any) -> None:
            raise RuntimeError("save")

        monkeypatch.setattr(Session, "save", fail)
        with pytest.raises(RuntimeError):
            Session.objects.admit(row("local"), quota=None, limit=CAP)
        assert bound() == 1


@pytest.mark.django_db(transaction=True)
class TestConcurrency:
    @pytest.mark.parametrize("quota", [None, 4])
    def test_the_cap_is_exact_when_many_open_at_once(self, quota: int | None) -> None:
        cap = SessionLimit(10, IDLE)

        def work(number: int) -> int:
            admitted = 0
            for turn in range(5):
                try:
                    Session.objects.admit(row(f"{number} {turn}"), quota=quota, limit=cap)
                except TooManySessions:
                    continue
                admitted += 1
            return admitted

        assert sum(together(6, work)) == 10
        assert Session.objects.live(idle=IDLE).count() == 10

    def test_the_cap_is_exact_while_sessions_end(self) -> None:
        cap, most = SessionLimit(4, IDLE), []

        def work(number: int) -> int:
            for turn in range(8):
                session = row(f"{number} {turn}")
                try:
                    Session.objects.admit(session, quota=2, limit=cap)
                except TooManySessions:
                    continue
                most.append(Session.objects.live(idle=IDLE).count())
                if number % 2:
                    Session.objects.filter(pk=session.pk).end("client")
            return number

        assert sorted(together(4, work)) == [0, 1, 2, 3]
        assert max(most) <= 4
        assert Session.objects.live(idle=IDLE).count() <= 4

    def test_the_quota_is_exact_when_many_open_at_once(self) -> None:
        threads, each, quota = 6, 6, 3

        def work(number: int) -> int:
            for _ in range(each):
                Session.objects.admit(row("crowd"), quota=quota)
            return each

        assert together(threads, work) == [each] * threads
        assert len(holders("crowd")) == quota
        # No session is lost, and none was refused without need.
        assert Session.objects.filter(owner="crowd").count() == threads * each
        assert Session.objects.filter(owner="crowd", end_reason=EndReason.QUOTA).count() == threads * each - quota
        assert Session.objects.filter(owner="crowd", terminated_at=None).count() == quota

    def test_the_quota_is_exact_while_sessions_end(self) -> None:
        def work(number: int) -> int:
            for _ in range(8):
                session = row("crowd")
                Session.objects.admit(session, quota=2)
                if number % 2:
                    Session.objects.filter(pk=session.pk).end("client")
            return number

        assert sorted(together(4, work)) == [0, 1, 2, 3]
        live = Session.objects.filter(owner="crowd", terminated_at=None)
        assert live.count() == len(holders("crowd"))
        assert live.count() <= 2

    def test_one_of_many_that_end_a_session_at_once_announces_it(self) -> None:
        session = saved()
        with closings() as received:
            ended = together(5, lambda _: Session.objects.filter(pk=session.pk).end("client"))
        assert sorted(ended) == [0, 0, 0, 0, 1]
        assert received == [(session.pk, "client")]

    def test_a_lowered_quota_does_not_lock_its_openers_against_each_other(self) -> None:
        for _ in range(12):
            Session.objects.admit(row("crowd"), quota=12)
        outcomes = together(4, lambda _: Session.objects.admit(row("crowd"), quota=2))
        assert outcomes == [None] * 4
        assert len(holders("crowd")) == 2


@pytest.mark.django_db
def test_a_session_whose_row_is_deleted_has_ended() -> None:
    over, alive = saved(), saved()
    Session.objects.filter(pk=over.pk).end("r")
    pk = alive.pk
    with closings() as received:
        Session.objects.all().delete()
    assert received == [(pk, EndReason.DELETED)]
