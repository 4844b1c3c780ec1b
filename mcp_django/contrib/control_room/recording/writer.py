"""Writing of counts and calls, in one transaction for each flush."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from django.db import connections, models, router, transaction

from mcp_django.contrib.control_room.models import (
    KEY_CHARACTERS,
    PROCESS_CHARACTERS,
    CallLogEntry,
    CallRollup,
    Period,
    UsageRollup,
)
from mcp_django.contrib.control_room.options import get_settings
from mcp_django.contrib.control_room.recording.chain.anchors import publish_anchor
from mcp_django.contrib.control_room.recording.chain.heads import save_head
from mcp_django.contrib.control_room.recording.chain.seals import ChainState
from mcp_django.contrib.control_room.recording.counts import CallCount, ProcessCounts, RollupKey, UsageKey
from mcp_django.contrib.control_room.recording.entries import CallEntry
from mcp_django.contrib.control_room.recording.histogram import pack

ROLLUP_KEY = ("period", "start", "server", "method", "name", "outcome", "process")
ROLLUP_VALUES = ("count", "milliseconds_sum", "milliseconds_max", "histogram")
USAGE_KEY = ("start", "server", "method", "name", "principal", "process")
USAGE_VALUES = ("client", "user_key", "count", "failed", "milliseconds_sum")
BATCH_ROWS = 200
UsageRow = tuple[int, UsageKey, CallCount]
"""Start of the hour, key, and count."""
_RECORD_COLUMNS = tuple(field for field in CallLogEntry._meta.concrete_fields if not field.primary_key)
_TIME_COLUMN = CallLogEntry._meta.get_field("at")
_get_row = itemgetter(*(field.name for field in _RECORD_COLUMNS))
"""Return the values of a row, in the order of its columns."""


def get_alias() -> str:
    """Return the alias of the database with the rows."""
    return router.db_for_write(CallRollup)


class RowWriter:
    """Writer of the rows of one process."""

    def __init__(self, process: str) -> None:
        self.process = process[:PROCESS_CHARACTERS]
        self._chain = ChainState()
        self._failed: Sequence[CallEntry] = ()
        """Calls of the last write if it failed. Its commit may have succeeded."""

    def write(self, counts: ProcessCounts, records: Sequence[CallEntry]) -> list[CallCount]:
        """Write the changed counts and the calls, all or none.

        Returns the written counts. Raises `Error`. After it, the next call repeats the calls, before new ones.
        """
        changed = list(counts.calls.iter_changed())
        usage = list(counts.usage.iter_changed())
        if not changed and not usage and not records:
            return []

        alias = get_alias()
        known = self._failed
        self._failed = records[:]
        with transaction.atomic(using=alias):
            save_rows([self._build_rollup(*row) for row in changed], ROLLUP_KEY, ROLLUP_VALUES, alias)
            self._forget_removed(usage, alias)
            save_rows([self._build_usage(*row) for row in usage], USAGE_KEY, USAGE_VALUES, alias)
            chain = self._insert_records(records, self._count_committed(records, known, alias), alias)
        is_sealed = chain is not self._chain
        self._chain = chain
        self._failed = ()
        if is_sealed:
            publish_anchor(self.process, chain)
        return [count for _start, _key, count in (*changed, *usage)]

    def _forget_removed(self, usage: Sequence[UsageRow], alias: str) -> None:
        """Leave out the calls whose row has lost its caller since the last write (`remove_user`).

        The new row counts the later calls only. The lock keeps the removal out until both are written.
        """
        written = {self._get_usage_key(start, key): count for start, key, count in usage if count.written[0]}
        rows = UsageRollup.objects.using(alias).filter(process=self.process, start__in={key[0] for key in written})
        principals = sorted({key[-1] for key in written})
        for first in range(0, len(principals), BATCH_ROWS):
            chosen = rows.filter(principal__in=principals[first : first + BATCH_ROWS])
            for found in chosen.select_for_update().values_list(*USAGE_KEY[:-1]):
                written.pop(found, None)
        for count in written.values():
            count.forget_written()

    def _get_usage_key(self, start: int, key: UsageKey) -> tuple[Any, ...]:
        """Return the values of `USAGE_KEY` without the process."""
        server, method, name, principal = key
        return (datetime.fromtimestamp(start, UTC), server, method[:64], name, principal[:KEY_CHARACTERS])

    def _build_rollup(self, start: int, key: RollupKey, count: CallCount) -> CallRollup:
        server, method, name, outcome = key
        return CallRollup(
            period=Period.MINUTE,
            start=datetime.fromtimestamp(start, UTC),
            server=server,
            method=method[:64],
            name=name,
            outcome=outcome,
            process=self.process,
            count=count.count,
            milliseconds_sum=count.milliseconds_sum,
            milliseconds_max=count.milliseconds_max,
            histogram=pack(count.histogram),
        )

    def _build_usage(self, start: int, key: UsageKey, count: CallCount) -> UsageRollup:
        return UsageRollup(
            **dict(zip(USAGE_KEY, self._get_usage_key(start, key), strict=False)),
            user_key=count.user_key,
            client=count.client[:KEY_CHARACTERS],
            process=self.process,
            count=count.count,
            failed=count.failed,
            milliseconds_sum=count.milliseconds_sum,
        )

    def _count_committed(self, records: Sequence[CallEntry], failed: Sequence[CallEntry], alias: str) -> int:
        """Return the number of calls that a write has committed before its connection was lost."""
        if not failed or not records or records[0] is not failed[0]:
            return 0
        values = self._build_values(failed[0])
        first = {name: values[name] for name in ("at", "process", "server", "method", "name", "call_id")}
        return len(failed) if CallLogEntry.objects.using(alias).filter(**first).exists() else 0

    def _insert_records(self, records: Sequence[CallEntry], committed: int, alias: str) -> ChainState:
        """Insert rows of calls by one statement for many rows. Returns the end of the chain after them.

        The first rows may be committed already, and are not inserted again.

        The ORM's `bulk_create` takes ten times as long for each row, in a thread that competes with calls. The time is
        the only value that a database receives in a form of its own.
        """
        if not records:
            return self._chain
        connection = connections[alias]
        quote = connection.ops.quote_name
        columns = ", ".join(quote(str(field.column)) for field in _RECORD_COLUMNS)
        places = ", ".join(["%s"] * len(_RECORD_COLUMNS))
        statement = f"INSERT INTO {quote(CallLogEntry._meta.db_table)} ({columns}) VALUES ({places})"  # noqa: S608  # names of columns only
        chain, is_chained = self._chain, get_settings().chain
        rows, times = [], []
        for number, values in enumerate(map(self._build_values, records)):
            times.append(values["at"])
            if is_chained:
                seal, chain = chain.seal_next(values)
                values["seal"] = str(seal)
            if number >= committed:
                values["at"] = _TIME_COLUMN.get_db_prep_save(values["at"], connection)
                rows.append(_get_row(values))
        if rows:
            with connection.cursor() as cursor:
                cursor.executemany(statement, rows)
        if is_chained:
            save_head(self.process, chain, times, alias)
        return chain

    def _build_values(self, entry: CallEntry) -> dict[str, Any]:
        group = entry.group
        return {
            "at": datetime.fromtimestamp(entry.at, UTC),
            "server": group.server,
            "method": group.method[:64],
            "name": group.name,
            "outcome": group.outcome.value,
            "milliseconds": entry.seconds * 1000,
            "principal": group.principal[:KEY_CHARACTERS],
            "user_key": group.user_key,
            "process": self.process,
            "seal": "",
            **entry.detail._asdict(),
        }


def save_rows(rows: Iterable[models.Model], key: Sequence[str], values: Sequence[str], alias: str) -> None:
    """Insert rows, or replace the values of those with the same key."""
    rows = list(rows)
    if not rows:
        return
    has_target = connections[alias].features.supports_update_conflicts_with_target
    type(rows[0])._default_manager.using(alias).bulk_create(
        rows,
        batch_size=BATCH_ROWS,
        update_conflicts=True,
        update_fields=list(values),
        unique_fields=list(key) if has_target else None,
    )
