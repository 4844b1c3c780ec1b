"""Admin pages of recorded calls: list, search, filters, one call, and export."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.views.main import ChangeList
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.base import BaseAdmin, ServerFilter
from mcp_django.contrib.control_room.export import iter_lines
from mcp_django.contrib.control_room.models import Alert, AlertRule, CallLogEntry
from mcp_django.contrib.control_room.pages.callers import load_user_names
from mcp_django.contrib.control_room.pages.room import ControlRoomAdmin
from mcp_django.contrib.control_room.playground_page import PlaygroundAdmin

__all__ = ["CallLogEntryAdmin", "ControlRoomAdmin", "PlaygroundAdmin"]
CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}


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
    list_display = ["at", "method", "name", "outcome", "duration", "user_name", "client", "server", "reference"]
    list_filter = ["outcome", DurationFilter, ServerFilter, "method", "name", "revision", "at"]
    search_fields = ["name", "principal", "=call_id", "=trace_id", "=reference", "=user_key", "client"]
    search_help_text = _("Name, caller, client, call id, trace id, or the reference of an error.")
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
        "principal",
        "user_name",
        "client",
        "revision",
        "session",
        "call_id",
        "trace_id",
        "process",
    )
    readonly_fields = ("duration", "user_name")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if request.user.has_perm("mcp_control_room.view_call_arguments"):
            return (*self.shown_fields, "arguments")
        return self.shown_fields

    def has_export_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may export calls."""
        return request.user.has_perm("mcp_control_room.export_calllogentry")

    @admin.display(description=_("duration"), ordering="milliseconds")
    def duration(self, record: CallLogEntry) -> str:
        """Return the duration in milliseconds."""
        return f"{number_format(record.milliseconds, decimal_pos=1)} ms"

    @admin.display(description=_("user"), ordering="user_key")
    def user_name(self, record: CallLogEntry) -> str:
        """Return the name of the user, or the primary key of a user without a row."""
        names = getattr(record, "user_names", None)
        if names is None:
            names = load_user_names([record.user_key])
        return names.get(record.user_key, record.user_key) or "-"

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
        lines = iter_lines(queryset.iterator(), format, with_arguments=with_arguments)
        response = StreamingHttpResponse(lines, content_type=CONTENT_TYPES[format])
        response["Content-Disposition"] = f'attachment; filename="calls.{format}"'
        response["Cache-Control"] = "no-store"
        return response


class CallLogEntryList(ChangeList):
    """List that loads the names of all users of a page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        names = load_user_names(record.user_key for record in self.result_list)
        for record in self.result_list:
            record.user_names = names


class ActiveFilter(admin.SimpleListFilter):
    """Filter of alerts by their state."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("active", _("active")), ("cleared", _("cleared"))]

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> "QuerySet[Any]":
        state = self.value()
        return queryset.filter(is_active=state == "active") if state in {"active", "cleared"} else queryset


class RuleFilter(admin.SimpleListFilter):
    """Filter of alerts by their rule, with its label."""

    title = _("rule")
    parameter_name = "rule"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(AlertRule.choices)

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> "QuerySet[Any]":
        rule = self.value()
        return queryset.filter(rule=rule) if rule in AlertRule.values else queryset


@admin.register(Alert)
class AlertAdmin(BaseAdmin):
    """List alerts, the active ones first."""

    can_add = False
    can_change = False
    can_delete = False
    list_display = ["rule_label", "subject", "is_active", "value", "limit", "since", "cleared"]
    list_display_links = None
    list_filter = [ActiveFilter, RuleFilter]
    search_fields = ["subject"]
    ordering = ["-is_active", "-since"]
    fields = ("rule_label", "subject", "is_active", "value", "limit", "since", "cleared", "checked")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the alerts that were raised at some time."""
        return super().get_queryset(request).filter(since__isnull=False)

    @admin.display(description=_("rule"), ordering="rule")
    def rule_label(self, alert: Alert) -> str:
        """Return the name of the value that the rule measures."""
        return alert.label
