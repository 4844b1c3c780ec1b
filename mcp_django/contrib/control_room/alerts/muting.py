"""Mutes of alerts: for an hour, an alert sends no mail and fails no check.

A mute ends by itself. If the alert is still active then, people get a mail again.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.utils import timezone

from mcp_django.contrib.control_room.models import Alert
from mcp_django.contrib.control_room.recording.writer import get_alias

MUTE_PERMISSION = "mcp_control_room.mute_alert"
MUTE_DURATION = timedelta(hours=1)
MUTED_MESSAGE = "Muted for an hour."
UNMUTED_MESSAGE = "Unmuted."
"""Texts of the admin's log, which stay in one language."""


def mute_alerts(alerts: "models.QuerySet[Alert]", now: datetime | None = None) -> int:
    """Mute the active ones of some alerts from now on; return their number."""
    return alerts.filter(is_active=True).update(muted_until=(now or timezone.now()) + MUTE_DURATION)


def unmute_alerts(alerts: "models.QuerySet[Alert]") -> int:
    """End the mutes of some alerts; return their number."""
    return alerts.filter(muted_until__isnull=False).update(muted_until=None)


def change_mute(key: str, *, ends_mute: bool) -> Alert | None:
    """Mute an active alert by its primary key, or end its mute; return it.

    Returns None if it is not in the expected state.
    """
    if not key.isdecimal():
        return None
    alerts: models.QuerySet[Alert] = Alert._default_manager.using(get_alias()).filter(pk=key)
    alert = alerts.first()
    changed = unmute_alerts(alerts) if ends_mute else mute_alerts(alerts)
    return alert if changed else None


def take_ended_mutes(alerts: "models.QuerySet[Alert]", now: datetime) -> list[Alert]:
    """Forget the mutes that are over; return the active alerts among them.

    Several processes may do so at once. A single one gets each alert.
    """
    ended: Any = alerts.filter(muted_until__lte=now)
    ended.filter(is_active=False).update(muted_until=None)
    return [
        alert
        for alert in ended.filter(is_active=True)
        if alerts.filter(pk=alert.pk, is_active=True, muted_until=alert.muted_until).update(muted_until=None)
    ]
