"""Admin pages of recorded calls: list, search, filters, one call, and export."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.views.main import ChangeList
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.accounts.sections import add_account_section, set_call_counter
from mcp_django.contrib.control_room import account_calls
from mcp_django.contrib.control_room.alert_rules import get_rules
from mcp_django.contrib.control_room.alerts.muting import (
    MUTE_PERMISSION,
    MUTED_MESSAGE,
    UNMUTED_MESSAGE,
    mute_alerts,
    unmute_alerts,
)
from mcp_django.contrib.control_room.call_links import iter_links
from mcp_django.contrib.control_room.export import build_export
from mcp_django.contrib.control_room.models import Alert, CallLogEntry
from mcp_django.contrib.control_room.pages.call_phases import build_phases
from mcp_django.contrib.control_room.pages.call_rounds import load_rounds
from mcp_django.contrib.control_room.pages.callers import load_user_names
from mcp_django.contrib.control_room.pages.room import ControlRoomAdmin
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.extensions.admin_pages import BaseAdmin, ServerFilter
from mcp_django.types import clean_text

__all__ = ["CallLogEntryAdmin", "ControlRoomAdmin"]
SOURCES = {
    "duration": "milliseconds",
    "waited": "waited_milliseconds",
    "user_name": "user_key",
    "actor_name": "actor_key",
    "recorded_arguments": "arguments",
}
"""Stored values of computed fields. The page of a call leaves out the empty ones."""


class DurationFilter(admin.SimpleListFilter):
    """Filter of calls by their duration."""

    title = _("duration")
    parameter_name = "longer"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("1", _("1 second or more")), ("10", _("10 seconds or more")), ("60", _("a minute or more"))]

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> "QuerySet[Any]":
        seconds = self.value()
        return queryset.filter(milliseconds__gte=int(seconds) * 1000) if seconds in {"1", "10", "60"} else queryset


@admin.register(CallLogEntry)
class CallLogEntryAdmin(BaseAdmin):
    """List recorded calls, and export the filtered ones."""

    can_add = False
    can_change = False
    can_delete = False
    list_display = ["at", "method", "name", "outcome", "duration", "people", "client", "server", "reference"]
    list_filter = ["outcome", DurationFilter, ServerFilter, "method", "name", "revision", "at"]
    search_fields = ["name", "principal", "=call_id", "=trace_id", "=reference", "=user_key", "=actor_key", "client"]
    search_help_text = _("Name, caller, client, call id, trace id, or the reference of an error.")
    linked_fields = ["milliseconds", "principal", "user_key"]
    ordering = ["-at"]
    date_hierarchy = "at"
    show_full_result_count = False
    actions = ["export_csv", "export_jsonl"]
    shown_fields = (
        "at",
        "server",
        "method",
        "name",
        "outcome",
        "error_code",
        "reference",
        "duration",
        "waited",
        "principal",
        "user_name",
        "actor_name",
        "client",
        "revision",
        "transport",
        "request_bytes",
        "response_bytes",
        "session",
        "call_id",
        "trace_id",
        "process",
    )
    readonly_fields = ("duration", "waited", "user_name", "actor_name", "recorded_arguments")
    change_form_template = "mcp_control_room/call_change_form.html"

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the phases of the call, its rounds and its links below the fields."""
        entry = kwargs.get("obj")
        if entry is not None:
            username = _get_name(entry, entry.user_key) if entry.user_key else ""
            context |= {
                "phases": build_phases(entry),
                "rounds": load_rounds(entry, get_alias()),
                "call_links": list(iter_links(request, self.admin_site, entry, username)),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        may_see_arguments = request.user.has_perm("mcp_control_room.view_call_arguments")
        fields = (*self.shown_fields, "recorded_arguments") if may_see_arguments else self.shown_fields
        return [name for name in fields if getattr(obj, SOURCES.get(name, name), None) not in (None, "")]

    def has_export_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may export calls."""
        return request.user.has_perm("mcp_control_room.export_calllogentry")

    @admin.display(description=_("duration"), ordering="milliseconds")
    def duration(self, record: CallLogEntry) -> str:
        """Return the duration in milliseconds."""
        return _format_milliseconds(record.milliseconds)

    @admin.display(description=_("waited"))
    def waited(self, record: CallLogEntry) -> str:
        """Return the time in which the call waited, in milliseconds."""
        waited = record.waited_milliseconds
        return "-" if waited is None else _format_milliseconds(waited)

    @admin.display(description=_("user"), ordering="user_key")
    def user_name(self, record: CallLogEntry) -> str:
        """Return the name of the user, or the primary key of a user without a row."""
        return _get_name(record, record.user_key)

    @admin.display(description=_("acting user"))
    def actor_name(self, record: CallLogEntry) -> str:
        """Return the name of the user who acted in the name of the caller."""
        return _get_name(record, record.actor_key)

    @admin.display(description=_("arguments"))
    def recorded_arguments(self, record: CallLogEntry) -> str:
        """Return the recorded arguments without invisible characters."""
        return clean_text(record.arguments)

    @admin.display(description=_("user"), ordering="user_key")
    def people(self, record: CallLogEntry) -> str:
        """Return the name of the user, and that of the acting user if another one."""
        if record.actor_key in ("", record.user_key):
            return self.user_name(record)
        return _("%(user)s, by %(actor)s") % {"user": self.user_name(record), "actor": self.actor_name(record)}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return CallLogEntryList

    @admin.action(description=_("Export selected calls as CSV"), permissions=["export"])
    def export_csv(self, request: HttpRequest, queryset: "QuerySet[CallLogEntry]") -> StreamingHttpResponse:
        """Send the selected calls as CSV."""
        return self._export(request, queryset, "csv")

    @admin.action(description=_("Export selected calls as JSON lines"), permissions=["export"])
    def export_jsonl(self, request: HttpRequest, queryset: "QuerySet[CallLogEntry]") -> StreamingHttpResponse:
        """Send the selected calls as JSON lines."""
        return self._export(request, queryset, "jsonl")

    def _export(self, request: HttpRequest, queryset: "QuerySet[CallLogEntry]", format: str) -> StreamingHttpResponse:
        with_arguments = request.user.has_perm("mcp_control_room.view_call_arguments")
        LogEntry.objects.create(
            user_id=request.user.pk or 0,
            content_type=ContentType.objects.get_for_model(CallLogEntry),
            object_repr=f"{queryset.count()} calls",
            action_flag=CHANGE,
            change_message=f"Exported as {format}{' with arguments' if with_arguments else ''}.",
        )
        return build_export(queryset.iterator(), format, with_arguments=with_arguments)


def _format_milliseconds(milliseconds: float) -> str:
    return gettext("%(number)s ms") % {"number": number_format(milliseconds, decimal_pos=1)}


def _get_name(record: CallLogEntry, user_key: str) -> str:
    names = getattr(record, "user_names", None)
    if names is None:
        names = load_user_names([user_key])
    return names.get(user_key, user_key) or "-"


class CallLogEntryList(ChangeList):
    """List that loads the names of all users of a page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        names = load_user_names(key for record in self.result_list for key in (record.user_key, record.actor_key))
        for record in self.result_list:
            record.user_names = names


class ActiveFilter(admin.SimpleListFilter):
    """Filter of alerts by their state."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("active", _("active")), ("muted", _("muted")), ("cleared", _("cleared"))]

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> "QuerySet[Any]":
        state = self.value()
        if state == "muted":
            return queryset.filter(muted_until__gt=timezone.now())
        return queryset.filter(is_active=state == "active") if state in {"active", "cleared"} else queryset


class RuleFilter(admin.SimpleListFilter):
    """Filter of alerts by their rule, with its label."""

    title = _("rule")
    parameter_name = "rule"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(rule.name, rule.label) for rule in get_rules().values()]

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> "QuerySet[Any]":
        rule = self.value()
        return queryset.filter(rule=rule) if rule in get_rules() else queryset


@admin.register(Alert)
class AlertAdmin(BaseAdmin):
    """List alerts, the active ones first."""

    can_add = False
    can_change = False
    can_delete = False
    list_display = ["rule_label", "subject", "is_active", "value", "limit", "since", "cleared", "mute_end"]
    list_display_links = None
    actions = ["mute", "unmute"]
    list_filter = [ActiveFilter, RuleFilter]
    search_fields = ["subject"]
    ordering = ["-is_active", "-since"]
    fields = ("rule_label", "subject", "is_active", "value", "limit", "since", "cleared", "mute_end", "checked")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the alerts that were raised at some time."""
        return super().get_queryset(request).filter(since__isnull=False)

    def has_mute_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may mute alerts."""
        return request.user.has_perm(MUTE_PERMISSION)

    @admin.action(description=_("Mute selected active alerts for an hour"), permissions=["mute"])
    def mute(self, request: HttpRequest, queryset: "QuerySet[Alert]") -> None:
        """Mute alerts: they send no mail and fail no check."""
        for alert in queryset.filter(is_active=True):
            self.log_change(request, alert, MUTED_MESSAGE)
        self.report_count(request, gettext("Muted alerts: %d"), mute_alerts(queryset))

    @admin.action(description=_("End the mutes of selected alerts"), permissions=["mute"])
    def unmute(self, request: HttpRequest, queryset: "QuerySet[Alert]") -> None:
        """End mutes before their time."""
        for alert in queryset.filter(muted_until__isnull=False):
            self.log_change(request, alert, UNMUTED_MESSAGE)
        self.report_count(request, gettext("Ended mutes: %d"), unmute_alerts(queryset))

    @admin.display(description=_("muted until"), ordering="muted_until")
    def mute_end(self, alert: Alert) -> str:
        """Return the end of a mute that goes on, as text: the page of an alert shows objects as Python does."""
        until = alert.muted_until if alert.is_muted() else None
        return "-" if until is None else date_format(timezone.localtime(until), "DATETIME_FORMAT")

    @admin.display(description=_("rule"), ordering="rule")
    def rule_label(self, alert: Alert) -> str:
        """Return the name of the value that the rule measures."""
        return alert.label


add_account_section(account_calls.build_section)
set_call_counter(account_calls.count_calls)
