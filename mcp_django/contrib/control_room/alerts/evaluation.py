"""State of the alerts in rows: raised once above a limit, cleared once after a calm time.

Several processes may check at the same time. A change of a row's state is one conditional statement, so a single
process makes it and notifies people.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from time import monotonic

from django.db import models
from django.utils import timezone

from mcp_django.contrib.control_room.alert_rules import Measurement, get_rules
from mcp_django.contrib.control_room.alerts.measurements import measure
from mcp_django.contrib.control_room.alerts.muting import take_ended_mutes
from mcp_django.contrib.control_room.alerts.notification import notify_cleared, notify_raised, notify_unmuted
from mcp_django.contrib.control_room.alerts.options import AlertSettings, get_alert_settings
from mcp_django.contrib.control_room.models import Alert
from mcp_django.contrib.control_room.recording.writer import get_alias

RETENTION = timedelta(days=30)
"""Time for which a cleared alert is kept."""
TURN_RULE = ""
"""Rule of the row that holds the time of the last check."""


class AlertEvaluator:
    """Check of all limits at the time `now`."""

    def __init__(self, settings: AlertSettings, now: datetime) -> None:
        self.settings = settings
        self.now = now
        self._rows: models.QuerySet[Alert] = Alert._default_manager.using(get_alias())

    def take_turn(self) -> bool:
        """Return True if no process has checked within the interval. The caller is the one that checks then."""
        row, created = self._rows.get_or_create(rule=TURN_RULE, subject="", defaults={"checked": self.now})
        due = self.now - timedelta(seconds=self.settings.interval)
        return created or bool(self._rows.filter(pk=row.pk, checked__lte=due).update(checked=self.now))

    def evaluate(self) -> list[Alert]:
        """Measure, change the rows, and notify people. Returns the active alerts, the oldest first."""
        muted = take_ended_mutes(self._rows, self.now)
        known = {(row.rule, row.subject): row for row in self._rows.exclude(rule=TURN_RULE)}
        measured = measure(self.now)
        for measurement in measured:
            self._apply(measurement, known.pop((measurement.rule, measurement.subject[:255]), None))
        self._calm(known.values())
        for row in muted:
            self._remind(row)
        self._rows.filter(is_active=False, checked__lt=self.now - RETENTION).exclude(rule=TURN_RULE).delete()
        return list(self._rows.filter(is_active=True).order_by("since", "pk"))

    def _apply(self, measurement: Measurement, row: Alert | None) -> None:
        limit = self.settings.limits[measurement.rule]
        value = measurement.value
        if measurement.is_total and row is not None:
            # A smaller total is that of a process which has started again.
            value = measurement.value - row.total if measurement.value >= row.total else measurement.value
        if row is None:
            if value <= limit:
                return
            row, _created = self._rows.get_or_create(
                rule=measurement.rule, subject=measurement.subject[:255], defaults={"checked": self.now}
            )

        values = {"value": value, "limit": limit, "checked": self.now}
        values |= {"total": measurement.value} if measurement.is_total else {}
        is_above = value > limit
        above_since = (row.above_since or self.now) if is_above else None
        calm_since = None if is_above else row.calm_since or self.now
        self._rows.filter(pk=row.pk).update(above_since=above_since, calm_since=calm_since, **values)
        delay = timedelta(seconds=get_rules()[measurement.rule].raise_delay_seconds)
        if above_since is not None and self.now - above_since >= delay:
            self._raise(row)
        elif calm_since is not None:
            self._clear(row, calm_since)

    def _calm(self, rows: Iterable[Alert]) -> None:
        """Treat alerts without a measurement as calm: the tool has no more calls, or the process has ended."""
        for row in rows:
            if not row.is_active:
                continue
            calm_since = row.calm_since or self.now
            self._rows.filter(pk=row.pk).update(above_since=None, calm_since=calm_since, value=0, checked=self.now)
            self._clear(row, calm_since)

    def _raise(self, row: Alert) -> None:
        if self._change(row, is_active=True, since=self.now, cleared=None):
            row.refresh_from_db(using=get_alias())
            notify_raised(row, is_muted=row.is_muted(self.now))

    def _clear(self, row: Alert, calm_since: datetime) -> None:
        if not row.is_active or self.now - calm_since < timedelta(seconds=self.settings.clear_after):
            return
        if self._change(row, is_active=False, cleared=self.now):
            row.refresh_from_db(using=get_alias())
            notify_cleared(row, is_muted=row.is_muted(self.now))

    def _remind(self, row: Alert) -> None:
        """Notify people of an alert whose mute is over, unless the alert is over as well."""
        row.refresh_from_db(using=get_alias())
        if row.is_active:
            notify_unmuted(row)

    def _change(self, row: Alert, *, is_active: bool, **values: datetime | None) -> bool:
        """Change the state of a row. Returns False if another process has done so."""
        return bool(self._rows.filter(pk=row.pk, is_active=not is_active).update(is_active=is_active, **values))


def check_alerts(now: datetime | None = None) -> list[Alert]:
    """Check all limits now, and return the active alerts."""
    return AlertEvaluator(get_alert_settings(), now or timezone.now()).evaluate()


class AlertTimer:
    """Timer of one process: it checks all limits at intervals, in turn with the other processes."""

    def __init__(self) -> None:
        self._next_check = 0.0

    def check(self) -> None:
        """Check all limits, unless this or another process did so within the interval."""
        if monotonic() < self._next_check:
            return
        settings = get_alert_settings()
        self._next_check = monotonic() + settings.interval
        if settings.enabled:
            check_alerts_in_turn()


def check_alerts_in_turn(now: datetime | None = None) -> None:
    """Check all limits, unless another process did so within the interval."""
    evaluator = AlertEvaluator(get_alert_settings(), now or timezone.now())
    if evaluator.take_turn():
        evaluator.evaluate()
