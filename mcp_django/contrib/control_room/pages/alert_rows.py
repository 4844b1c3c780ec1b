"""Active alerts in words, with links to their subjects."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from mcp_django.contrib.control_room.alert_rules import get_rules
from mcp_django.contrib.control_room.models import Alert, AlertRule
from mcp_django.contrib.control_room.pages.figures import TOOL_METHOD, CallTarget
from mcp_django.contrib.control_room.pages.links import RoomLinks
from mcp_django.contrib.control_room.templatetags.room_figures import duration, percent
from mcp_django.models import ClientHealth
from mcp_django.server.eras.handshake import INITIALIZE

TOOL_RULES = frozenset({AlertRule.ERRORS, AlertRule.BUGS, AlertRule.SLOW, AlertRule.OLDEST_CALL})
"""Rules whose subject is the server and the name of a tool, or of a method without names."""
PROCESS_RULES = frozenset({AlertRule.THREAD_QUEUE, AlertRule.SILENT_PROCESS, AlertRule.DROPPED})
"""Rules whose subject is a process."""
FAILURES = "tool_error,bug,timeout"
OUTCOMES = {AlertRule.ERRORS: FAILURES, AlertRule.BUGS: "bug", AlertRule.REFUSALS: "overloaded"}
"""Outcomes of the calls that a rule counts."""
COUNT_TEXTS: dict[str, Any] = {
    AlertRule.BUGS: ngettext_lazy("%(count)d bug", "%(count)d bugs", "count"),
    AlertRule.THREAD_QUEUE: ngettext_lazy(
        "%(count)d call waits for a thread", "%(count)d calls wait for a thread", "count"
    ),
    AlertRule.DROPPED: ngettext_lazy("%(count)d record was dropped", "%(count)d records were dropped", "count"),
    AlertRule.REMOTE: ngettext_lazy("fails in %(count)d process", "fails in %(count)d processes", "count"),
    AlertRule.REFUSALS: ngettext_lazy(
        "%(count)d call was refused by a limit", "%(count)d calls were refused by a limit", "count"
    ),
}
"""Texts about the values of rules that count."""


@dataclass(frozen=True, slots=True)
class AlertRow:
    """Alert, as shown on the page."""

    alert: Alert
    subject: str
    text: str
    """Value and limit, in words."""
    url: str = ""
    """Page or part of the page about the subject; empty without one."""
    calls_url: str = ""
    """List of the recorded calls; empty without one."""


def build_alert_row(alert: Alert, links: RoomLinks, target_url: str, *, has_one_server: bool) -> AlertRow:
    """Return an alert in words. `target_url` is the page of a tool, without its query."""
    text = describe_alert(alert)
    if alert.rule in PROCESS_RULES:
        return AlertRow(alert, alert.subject, text, "#processes")
    if alert.rule == AlertRule.REMOTE:
        page = links.find(ClientHealth)
        return AlertRow(alert, alert.subject, text, f"{page}#{alert.subject}" if page else "")
    if alert.rule == AlertRule.REFUSALS:
        calls = links.find_calls(server=alert.subject, outcome__in=OUTCOMES[AlertRule.REFUSALS])
        return AlertRow(alert, alert.subject, text, calls_url=calls)
    if alert.rule not in TOOL_RULES:
        return AlertRow(alert, alert.subject, text)

    server, _separator, name = alert.subject.partition(": ")
    is_method = "/" in name or name == INITIALIZE
    target = CallTarget(server, name, "") if is_method else CallTarget(server, TOOL_METHOD, name)
    lookups: dict[str, Any] = {"server": server, "method" if is_method else "name": name}
    outcomes = OUTCOMES.get(AlertRule(alert.rule))
    lookups |= {"outcome__in": outcomes} if outcomes else {}
    subject = name if has_one_server else alert.subject
    return AlertRow(alert, subject, text, f"{target_url}?{target.query}", links.find_calls(**lookups))


def describe_alert(alert: Alert) -> str:
    """Return the value of an alert and its limit, in words."""
    if alert.rule == AlertRule.ERRORS:
        values = {"value": percent(100 * alert.value), "limit": percent(100 * alert.limit)}
        return _("%(value)s of the calls failed (limit: %(limit)s)") % values
    rule = get_rules().get(alert.rule)
    if rule is not None and rule.time_text:
        values = {"value": duration(1000 * alert.value), "limit": duration(1000 * alert.limit)}
        return str(rule.time_text) % values
    if alert.rule in COUNT_TEXTS:
        return str(COUNT_TEXTS[alert.rule] % {"count": round(alert.value)})
    return str(alert)
