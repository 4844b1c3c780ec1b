"""Event log shared by all workers, in one total order.

The number of a row is taken from the one row of EventSequence, in the transaction that inserts the event. The lock on
that row is held until the commit. Therefore numbers have no gaps and become visible in order: a process that has read
one number has read all numbers before it. An auto-increment field guarantees neither.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Self

from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Max
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager
from mcp_django.protocol.jsonrpc import dumps

TOPIC_LENGTH = 191
KIND_LENGTH = 32
SEQUENCE_PK = 1

# One statement: one round trip, and the sequence is locked for the shortest time. It does not wait for the disk,
# because other transactions wait for the lock. A crash of the database loses only the last events. The events are
# passed as one text: psycopg's array dumper takes a second per megabyte, in which no other thread runs.
POSTGRES_INSERT = """
WITH {quick} taken AS (
    UPDATE {sequence} SET last = last + %s WHERE id = %s RETURNING last - %s AS before
)
INSERT INTO {events} (seq, topic, kind, payload, created)
SELECT taken.before + new.n, new.topic, new.kind, new.payload, statement_timestamp()
FROM {source} ROWS FROM (json_to_recordset(%s::json) AS (topic text, kind text, payload text))
    WITH ORDINALITY AS new (topic, kind, payload, n)
RETURNING seq
"""
ASYNC_COMMIT_CTE = "quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),"


class NewEvent(NamedTuple):
    """Event to append to the log."""

    topic: str
    kind: str
    payload: str


class StreamEventQuerySet(models.QuerySet["StreamEvent"]):
    """Query set of events, with methods to append and to find old ones."""

    def append(self, new: Sequence[NewEvent]) -> int:
        """Append events in order and return the number of the first.

        The others follow without a gap. Runs in the surrounding transaction or in a new one.
        """
        connection = connections[self.db]
        while True:
            first = (
                _append_on_postgres(connection, new)
                if connection.vendor == "postgresql"
                else self._append_with_orm(new)
            )
            if first is not None:
                return first
            # This is the first event, or the tables were emptied. If rows are left, numbering continues after them.
            last = self.model._default_manager.using(self.db).aggregate(last=Max("seq"))["last"] or 0
            row = EventSequence(pk=SEQUENCE_PK, last=last)
            EventSequence.objects.using(self.db).bulk_create([row], ignore_conflicts=True)

    def get_last_number(self) -> int:
        """Return the number of the latest event; 0 if the log is empty."""
        last = EventSequence.objects.using(self.db).filter(pk=SEQUENCE_PK).values_list("last", flat=True).first()
        return last or 0

    def older_than(self, *, seconds: float, limit: int) -> Self:
        """Return those of the `limit` oldest events that are at least `seconds` old."""
        max_age = timedelta(seconds=seconds)
        # Both times are the database's, because the clocks of processes differ.
        oldest = self.order_by("seq").values_list("seq", "created", Now())[:limit]
        # Filtered by number, because numbers are in the order of time. An index on the time would slow down every
        # append.
        last = max((seq for seq, created, now in oldest if created <= now - max_age), default=0)
        return self.filter(seq__lte=last)

    def _append_with_orm(self, new: Sequence[NewEvent]) -> int | None:
        with transaction.atomic(using=self.db):
            sequence = EventSequence.objects.using(self.db).filter(pk=SEQUENCE_PK)
            if not sequence.update(last=F("last") + len(new)):
                return None
            first = sequence.values_list("last", flat=True).get() - len(new) + 1
            self.bulk_create(
                [
                    self.model(seq=first + n, topic=topic, kind=kind, payload=payload, created=Now())
                    for n, (topic, kind, payload) in enumerate(new)
                ],
                batch_size=100,
            )
        return first


def _append_on_postgres(connection: BaseDatabaseWrapper, new: Sequence[NewEvent]) -> int | None:
    # In a caller's transaction, the caller decides about durability.
    owns_transaction = not connection.in_atomic_block and connection.get_autocommit()
    quote = connection.ops.quote_name
    statement = POSTGRES_INSERT.format(
        quick=ASYNC_COMMIT_CTE if owns_transaction else "",
        source="quick, taken," if owns_transaction else "taken,",
        sequence=quote(EventSequence._meta.db_table),
        events=quote(StreamEvent._meta.db_table),
    )

    rows = dumps([event._asdict() for event in new]).decode()
    with connection.cursor() as cursor:
        cursor.execute(statement, [len(new), SEQUENCE_PK, len(new), rows])
        written = cursor.fetchall()
    return min(seq for (seq,) in written) if written else None


class StreamEvent(models.Model):
    """Event for the subscribers of its topic."""

    seq = models.PositiveBigIntegerField(_("number"), primary_key=True)
    topic = models.CharField(_("topic"), max_length=TOPIC_LENGTH)
    kind = models.CharField(_("kind"), max_length=KIND_LENGTH)
    payload = models.TextField(_("payload"))
    created = models.DateTimeField(_("created"), default=timezone.now)

    objects = PrimaryManager.from_queryset(StreamEventQuerySet)()

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        default_permissions = ()
        indexes = [models.Index(fields=["topic", "seq"], name="mcp_event_topic_seq")]

    def __str__(self) -> str:
        return f"{self.seq}: {self.kind}"


class EventSequence(models.Model):
    """Number of the latest event, in a single row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=SEQUENCE_PK)
    last = models.PositiveBigIntegerField(_("latest number"), default=0)

    objects = PrimaryManager()

    class Meta:
        verbose_name = _("event sequence")
        verbose_name_plural = _("event sequences")
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.last)
