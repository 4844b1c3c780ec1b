"""Maintenance of the rows.

Sums of hours and days, deletion by age, and removal of users.
"""

import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter, sleep
from typing import Any

from django.contrib.auth import get_user_model
from django.db import models
from django.utils import timezone

from mcp_django.contrib.control_room.models import (
    REMOVED_PREFIX,
    CallLogEntry,
    CallRollup,
    LongCall,
    Period,
    ReportedStream,
    ServerRollup,
    UsageRollup,
)
from mcp_django.contrib.control_room.options import get_settings
from mcp_django.contrib.control_room.recording.chain.heads import select_old_heads
from mcp_django.contrib.control_room.recording.chain.removals import remove_from_sealed_rows
from mcp_django.contrib.control_room.recording.chain.seals import CLEARED_FIELDS, UNSEALED
from mcp_django.contrib.control_room.recording.compaction import merge_values
from mcp_django.contrib.control_room.recording.writer import ROLLUP_KEY, ROLLUP_VALUES, get_alias, save_rows
from mcp_django.extensions.callers import PROJECT_ISSUER

MAX_LATE_HOURS = 3
"""Hours that each merge sums again, because the rows of a process may come late."""
MAX_LATE_DAYS = 2
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MAX_UNSUMMED = timedelta(days=8)
"""Age above which a period is not summed any more. The pages show a week."""
DELETION_ROWS = 500
"""Rows that one statement deletes."""
MAX_DELETION_SHARE = 0.1
"""Share of the time that a command deletes. It pauses for the rest."""
MAX_PAUSE_SECONDS = 5.0
_GROUP_FIELDS = ("server", "method", "name", "outcome")


def merge_rollups(now: datetime | None = None) -> None:
    """Write the sums of the last hours and days, and of all since the last sums.

    Repeating it changes nothing, so any process may do so.
    """
    for _part in iter_merges(now):
        pass


def iter_merges(now: datetime | None = None) -> Iterator[None]:
    """Write the sums of `merge_rollups` one by one. Yield after each period."""
    hour = (now or timezone.now()).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    alias = get_alias()
    rollups = CallRollup.objects.using(alias)
    minutes, hours = rollups.filter(period=Period.MINUTE), rollups.filter(period=Period.HOUR)
    for start in _iter_starts(minutes, hours, hour, HOUR, MAX_LATE_HOURS):
        _merge_period(minutes, Period.HOUR, start, HOUR)
        yield
    servers = ServerRollup.objects.using(alias).all()
    for start in _iter_starts(hours, servers, hour, HOUR, MAX_LATE_HOURS):
        _merge_hour_of_servers(hours, start)
        yield
    for start in _iter_starts(hours, rollups.filter(period=Period.DAY), hour.replace(hour=0), DAY, MAX_LATE_DAYS):
        _merge_period(hours, Period.DAY, start, DAY)
        yield


def _iter_starts(
    source: "models.QuerySet[Any]", sums: "models.QuerySet[Any]", end: datetime, length: timedelta, late: int
) -> Iterator[datetime]:
    """Yield the starts of the periods to sum, the oldest first.

    These are the last ones before `end`, `late` in number, and all since the last sum: a project may have been stopped.
    """
    last = sums.filter(start__lt=end).aggregate(last=models.Max("start"))["last"]
    rest = source.filter(start__lt=end, start__gte=end - MAX_UNSUMMED)
    if last is not None:
        rest = rest.filter(start__gte=last + length)
    first = rest.aggregate(first=models.Min("start"))["first"]
    start = end - late * length
    while first is not None and start > first:
        start -= length
    while start < end:
        yield start
        start += length


def _merge_period(source: "models.QuerySet[CallRollup]", target: Period, start: datetime, length: timedelta) -> None:
    rows = source.filter(start__gte=start, start__lt=start + length)
    sums = [
        CallRollup(
            period=target,
            start=start,
            process="",
            **dict(zip(_GROUP_FIELDS, key, strict=True)),
            **merge_values(group, ROLLUP_VALUES),
        )
        for key, group in _group(rows, _GROUP_FIELDS).items()
    ]
    save_rows(sums, ROLLUP_KEY, ROLLUP_VALUES, rows.db)


def _merge_hour_of_servers(hours: "models.QuerySet[CallRollup]", start: datetime) -> None:
    fields = ("server", "outcome")
    sums = [
        ServerRollup(start=start, **dict(zip(fields, key, strict=True)), **merge_values(group, ROLLUP_VALUES))
        for key, group in _group(hours.filter(start=start), fields).items()
    ]
    save_rows(sums, ("start", *fields), ROLLUP_VALUES, hours.db)


def _group(rows: "models.QuerySet[CallRollup]", fields: Sequence[str]) -> dict[tuple[str, ...], list[CallRollup]]:
    groups: dict[tuple[str, ...], list[CallRollup]] = defaultdict(list)
    for row in rows.iterator():
        groups[tuple(getattr(row, name) for name in fields)].append(row)
    return groups


@dataclass(frozen=True, slots=True)
class PruneStep:
    """Rows of one kind that are older than their retention."""

    kind: str
    rows: "models.QuerySet[Any]"
    time_field: str
    before: datetime


def iter_prune_steps(now: datetime | None = None) -> Iterator[PruneStep]:
    """Yield the kinds of rows and their limits of age."""
    now = now or timezone.now()
    limits = {kind: now - timedelta(days=days) for kind, days in get_settings().keep.items()}
    alias = get_alias()
    rollups = CallRollup.objects.using(alias)
    yield PruneStep("calls", CallLogEntry.objects.using(alias).all(), "at", limits["calls"])
    yield PruneStep("chains", select_old_heads(alias), "at", limits["calls"])
    yield PruneStep("minutes", rollups.filter(period=Period.MINUTE), "start", limits["minutes"])
    yield PruneStep("hours", rollups.filter(period=Period.HOUR), "start", limits["hours"])
    yield PruneStep("server hours", ServerRollup.objects.using(alias).all(), "start", limits["hours"])
    yield PruneStep("usage", UsageRollup.objects.using(alias).all(), "start", limits["hours"])
    yield PruneStep("days", rollups.filter(period=Period.DAY), "start", limits["days"])


def count_old_rows(step: PruneStep) -> int:
    """Return the number of rows that `delete_old_rows` would delete."""
    return step.rows.filter(**{f"{step.time_field}__lt": step.before}).count()


def delete_old_rows(step: PruneStep) -> int:
    """Delete the old rows of a kind in batches; return their number."""
    return sum(iter_deletions(step))


def iter_deletions(step: PruneStep) -> Iterator[int]:
    """Delete the old rows of a kind, the oldest first. Yield the number of rows after each batch.

    Each statement is a transaction of its own and touches few rows, so writers do not wait. Batches follow the index of
    the time. Each starts at the end of the last one, so that no statement reads the deleted rows again.
    """
    name = step.time_field
    old = rest = step.rows.filter(**{f"{name}__lt": step.before})
    while True:
        end = rest.order_by(name).values_list(name, flat=True)[DELETION_ROWS - 1 : DELETION_ROWS].first()
        if end is None:
            yield rest._raw_delete(rest.db)
            return
        yield rest.filter(**{f"{name}__lte": end})._raw_delete(rest.db)
        rest = old.filter(**{f"{name}__gte": end})


def pause_between(deletions: Iterator[int]) -> Iterator[int]:
    """Yield the results of deletions, and give the rest of the project time in between. Blocks."""
    start = perf_counter()
    for deleted in deletions:
        yield deleted
        if deleted >= DELETION_ROWS:
            sleep(min((perf_counter() - start) * (1 / MAX_DELETION_SHARE - 1), MAX_PAUSE_SECONDS))
        start = perf_counter()


def remove_user(user_key: str) -> int:
    """Replace a user in all rows by a random name; return the number of changed rows.

    Counts stay. Arguments, waits and client names of the user's calls are deleted, and the labels that are also in
    later rows of the user, in its session or in logs. The user is replaced as well in the calls for others.
    Later calls of the user are recorded as before. A process that has counted earlier calls of this hour finds its row
    without the user, and counts the later ones in a new row.
    """
    if not user_key:
        return 0  # rows of callers without a user
    # A compaction at the same time replaces rows that the first pass waits for. The second pass finds the new ones.
    return sum(_remove_user(user_key) for _pass in range(2))


def _remove_user(user_key: str) -> int:
    alias = get_alias()
    changed = remove_from_sealed_rows(user_key, _build_name, alias)
    calls = CallLogEntry.objects.using(alias).filter(UNSEALED)
    for rows, cleared in (
        (calls, dict.fromkeys(CLEARED_FIELDS, "")),
        (UsageRollup.objects.using(alias), {"client": ""}),
        (LongCall.objects.using(alias), {"client": ""}),
        (ReportedStream.objects.using(alias), {"client": ""}),
    ):
        own = rows.filter(user_key=user_key)
        for principal in own.order_by().values_list("principal", flat=True).distinct():
            changed += own.filter(principal=principal).update(principal=_build_name(), user_key="", **cleared)
    return changed + calls.filter(actor_key=user_key).update(actor_key=_build_name())


def _build_name() -> str:
    return REMOVED_PREFIX + secrets.token_hex(8)


def remove_deleted_user(sender: type[models.Model], instance: models.Model, **kwargs: Any) -> None:
    """Remove a user who was deleted (`post_delete`)."""
    if issubclass(sender, get_user_model()) and instance.pk is not None:
        remove_user(str(instance.pk))


def remove_deleted_users(now: datetime | None = None) -> None:
    """Remove the deleted users that are in rows of the last hours.

    A process writes its calls a few seconds late, so a row may come after the deletion of its user. Callers of other
    issuers are left out: their users need no rows.
    """
    since = (now or timezone.now()) - timedelta(hours=MAX_LATE_HOURS)
    alias = get_alias()
    keys: set[str] = set()
    for rows in (
        UsageRollup.objects.using(alias).filter(start__gte=since),
        CallLogEntry.objects.using(alias).filter(at__gte=since),
    ):
        users = rows.filter(principal__startswith=f"{PROJECT_ISSUER}|").exclude(user_key="").order_by()
        keys.update(users.values_list("user_key", flat=True).distinct())
    acted = CallLogEntry.objects.using(alias).filter(at__gte=since).exclude(actor_key="").order_by()
    actors = acted.exclude(actor_key__startswith=REMOVED_PREFIX)
    keys.update(actors.values_list("actor_key", flat=True).distinct())
    model = get_user_model()
    found = model._default_manager.filter(pk__in=keys).values_list("pk", flat=True)
    for key in keys - set(map(str, found)):
        remove_user(key)


def iter_maintenance() -> Iterator[None]:
    """Sum the last hours and days, remove deleted users, and delete old rows.

    Yield after each short part.
    """
    yield from iter_merges()
    remove_deleted_users()
    for step in iter_prune_steps():
        for _deleted in iter_deletions(step):
            yield
