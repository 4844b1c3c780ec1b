"""The log that workers share: what happened for whom, in one order.

A row's number is taken from the one row of EventSequence in the transaction that inserts it, and the lock on that row
is held until the commit. So numbers have no gaps and become visible in order: whoever has seen one has seen all before
it. An auto-increment field promises neither.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Self

from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Max
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models.managers import PrimaryManager
from mcp_django.protocol.jsonrpc import dumps

TOPIC_LENGTH = 191
KIND_LENGTH = 32
ONLY_ROW = 1

# One statement, so one round trip and the shortest time that the sequence is locked. Without waiting for the disk:
# others wait for the lock meanwhile, and a crash of the database loses the last events and nothing else. The events are
# one text: psycopg's dumper of arrays takes a second for each megabyte, in which no other thread runs.
POSTGRES = """
WITH {quick} taken AS (
    UPDATE {sequence} SET last = last + %s WHERE id = %s RETURNING last - %s AS before
)
INSERT INTO {events} (seq, topic, kind, payload, created)
SELECT taken.before + new.n, new.topic, new.kind, new.payload, %s
FROM {source} ROWS FROM (json_to_recordset(%s::json) AS (topic text, kind text, payload text))
    WITH ORDINALITY AS new (topic, kind, payload, n)
RETURNING seq
"""
QUICK = "quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),"


class NewEvent(NamedTuple):
    """What is to become a row."""

    topic: str
    kind: str
    payload: str


class StreamEventQuerySet(models.QuerySet["StreamEvent"]):
    """The ways in and out of the log."""

    def append(self, new: Sequence[NewEvent]) -> int:
        """Write these in order, in a transaction of their own or the surrounding one. Returns the number of the first;
        the others follow it without a gap.
        """
        connection = connections[self.db]
        while True:
            first = (
                _append_on_postgres(connection, new)
                if connection.vendor == "postgresql"
                else self._append_anywhere(new)
            )
            if first is not None:
                return first
            # The very first event, or the tables have been emptied. Numbers go on where rows are left.
            last = self.model._default_manager.using(self.db).aggregate(last=Max("seq"))["last"] or 0
            row = EventSequence(pk=ONLY_ROW, last=last)
            EventSequence.objects.using(self.db).bulk_create([row], ignore_conflicts=True)

    def head(self) -> int:
        """The number of the latest event; 0 when there has been none."""
        last = EventSequence.objects.using(self.db).filter(pk=ONLY_ROW).values_list("last", flat=True).first()
        return last or 0

    def older(self, *, seconds: float, most: int) -> Self:
        """Of the `most` oldest, those that were written more than so many seconds ago."""
        before = timezone.now() - timedelta(seconds=seconds)
        oldest = self.order_by("seq").values_list("seq", "created")[:most]
        # By number, in which they are ordered by time as well: an index on the time would cost every append.
        last = max((seq for seq, created in oldest if created < before), default=0)
        return self.filter(seq__lte=last)

    def _append_anywhere(self, new: Sequence[NewEvent]) -> int | None:
        with transaction.atomic(using=self.db):
            sequence = EventSequence.objects.using(self.db).filter(pk=ONLY_ROW)
            if not sequence.update(last=F("last") + len(new)):
                return None
            first = sequence.values_list("last", flat=True).get() - len(new) + 1
            created = timezone.now()
            self.bulk_create(
                [
                    self.model(seq=first + n, topic=topic, kind=kind, payload=payload, created=created)
                    for n, (topic, kind, payload) in enumerate(new)
                ],
                batch_size=100,
            )
        return first


def _append_on_postgres(connection: BaseDatabaseWrapper, new: Sequence[NewEvent]) -> int | None:
    # Inside somebody's transaction it is theirs to say how durable that is.
    alone = not connection.in_atomic_block and connection.get_autocommit()
    quote = connection.ops.quote_name
    statement = POSTGRES.format(
        quick=QUICK if alone else "",
        source="quick, taken," if alone else "taken,",
        sequence=quote(EventSequence._meta.db_table),
        events=quote(StreamEvent._meta.db_table),
    )
    rows = dumps([event._asdict() for event in new]).decode()
    with connection.cursor() as cursor:
        cursor.execute(statement, [len(new), ONLY_ROW, len(new), timezone.now(), rows])
        written = cursor.fetchall()
    return min(seq for (seq,) in written) if written else None


class StreamEvent(models.Model):
    """One thing that happened, for whoever follows its topic."""

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
    """The number of the latest event, in one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY_ROW)
    last = models.PositiveBigIntegerField(_("latest number"), default=0)

    objects = PrimaryManager()

    class Meta:
        verbose_name = _("event sequence")
        verbose_name_plural = _("event sequences")
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.last)
