"""Notification of people about alerts: log, signals and mail."""

from typing import Any

from django.core.mail import mail_admins, send_mail
from django.dispatch import Signal
from django.utils.translation import gettext as _

from mcp_django.contrib.control_room.alerts.options import get_alert_settings
from mcp_django.contrib.control_room.models import Alert
from mcp_django.contrib.control_room.signals import alert_cleared, alert_raised
from mcp_django.extensions.calls import get_logger
from mcp_django.protocol.display_text import clean_line

MAX_SUBJECT_CHARACTERS = 200
"""Maximum characters of the subject of a mail."""

logger = get_logger("mcp_django.alerts")


def notify_raised(alert: Alert, *, is_muted: bool = False) -> None:
    """Notify people of a new alert. Failures are logged. A muted alert sends its signal only."""
    logger.warning("Alert raised: %s %r is %g, above %g", alert.rule, alert.subject, alert.value, alert.limit)
    _send_signal(alert_raised, alert)
    if not is_muted:
        _send_mail(_("MCP alert: %(alert)s") % {"alert": alert}, alert)


def notify_unmuted(alert: Alert) -> None:
    """Notify people of an alert that is still active at the end of its mute. Failures are logged."""
    logger.warning("Alert no longer muted: %s %r is %g, above %g", alert.rule, alert.subject, alert.value, alert.limit)
    _send_mail(_("MCP alert is no longer muted: %(alert)s") % {"alert": alert}, alert)


def notify_cleared(alert: Alert, *, is_muted: bool = False) -> None:
    """Notify people of the end of an alert. Failures are logged. A muted alert sends its signal only."""
    logger.info("Alert cleared: %s %r is %g, not above %g", alert.rule, alert.subject, alert.value, alert.limit)
    _send_signal(alert_cleared, alert)
    if not is_muted:
        _send_mail(_("MCP alert is over: %(alert)s") % {"alert": alert}, alert)


def _send_signal(signal: Signal, alert: Alert) -> None:
    for receiver, result in signal.send_robust(sender=Alert, alert=alert):
        if isinstance(result, Exception):
            logger.error("A receiver of an alert failed: %r", receiver, exc_info=result)


def _send_mail(subject: str, alert: Alert) -> None:
    # The subject of an alert names a tool or a server. A line break in it would be refused as a second header.
    subject = clean_line(subject, MAX_SUBJECT_CHARACTERS)
    body = "\n".join(clean_line(f"{label}: {value}") for label, value in _iter_lines(alert)) + "\n"
    addresses = get_alert_settings().mail
    try:
        if addresses is None:
            mail_admins(subject, body)
        elif addresses:
            send_mail(subject, body, None, list(addresses))
    except Exception:  # A mail server may fail in any way, and must not stop the recorder.
        logger.exception("The mail about an alert could not be sent")


def _iter_lines(alert: Alert) -> "list[tuple[Any, Any]]":
    lines = [(_("Rule"), alert.label), (_("Subject"), alert.subject or "-")]
    lines += [(_("Value"), f"{alert.value:g}"), (_("Limit"), f"{alert.limit:g}")]
    if alert.since is not None:
        lines.append((_("Since"), alert.since.isoformat(timespec="seconds")))
    if alert.cleared is not None:
        lines.append((_("Cleared"), alert.cleared.isoformat(timespec="seconds")))
    return lines
