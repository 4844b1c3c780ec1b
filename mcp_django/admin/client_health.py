"""Admin page of the servers that this project uses: addresses, health and checks."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.base import BaseAdmin
from mcp_django.client.pool.health import HEALTH_REGISTRY, HEARTBEAT_TIMEOUT_SECONDS, get_process_name
from mcp_django.client.pool.health_check import HealthCheckResult, check_client
from mcp_django.conf import get_settings, is_usable
from mcp_django.conf.clients import ClientSettings
from mcp_django.models import ClientHealth

CHECK_TIMEOUT_SECONDS = 10.0
"""Timeout of a check in seconds. It is short because the user waits for the page."""
CREDENTIAL_LABELS = {
    ("bearer", False): _("a token of the project"),
    ("bearer", True): _("a token of each user"),
    ("oauth", False): _("OAuth, allowed once for the project"),
    ("oauth", True): _("OAuth, allowed by each user"),
    ("client_credentials", False): _("OAuth with client credentials"),
}


@dataclass
class ServerOverview:
    """Used server, as shown on the page."""

    settings: ClientSettings
    rows: list[ClientHealth]
    check_url: str
    live_rows: list[ClientHealth] = field(init=False)
    """Rows of processes that reported recently."""

    def __post_init__(self) -> None:
        since = timezone.now() - timedelta(seconds=HEARTBEAT_TIMEOUT_SECONDS)
        self.live_rows = [row for row in self.rows if row.updated >= since]

    @property
    def credentials(self) -> Any:
        """Kind of credential sent to the server."""
        auth = self.settings.auth
        if auth is None or auth.type is None:
            return _("headers in the setting") if self.settings.headers else _("none")
        return CREDENTIAL_LABELS[auth.type, auth.per_user]

    @property
    def state(self) -> str:
        """State of the server: "connected", "failed" or "idle"."""
        if any(row.connections for row in self.live_rows):
            return "connected"
        return "failed" if self.latest_row is not None and self.latest_row.is_failing else "idle"

    @property
    def state_name(self) -> Any:
        """State of the server as a translated text."""
        return {"connected": _("connected"), "failed": _("failed"), "idle": _("not connected")}[self.state]

    @property
    def latest_row(self) -> ClientHealth | None:
        """The row that was updated last."""
        return max(self.rows, key=lambda row: row.updated, default=None)

    @property
    def last_error(self) -> ClientHealth | None:
        """The row with the newest error."""
        failed = [(row.error_at, row) for row in self.rows if row.error_at is not None]
        return max(failed, key=lambda pair: pair[0])[1] if failed else None

    @property
    def known(self) -> ClientHealth | None:
        """The row of the last process that reached the server."""
        reached = [row for row in self.rows if row.protocol_version]
        return max(reached, key=lambda row: row.updated, default=None)


@admin.register(ClientHealth)
class ClientHealthAdmin(BaseAdmin):
    """Single page of all used servers. A check of a server requires the change permission."""

    can_add = False
    can_delete = False

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the page and of the check. Rows have no pages of their own."""
        wrap = self.admin_site.admin_view
        return [
            path("", wrap(self.changelist_view), name="mcp_django_clienthealth_changelist"),
            path("<slug:alias>/check/", wrap(self.check_view), name="mcp_django_clienthealth_check"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show all servers of the setting."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied

        context = self.build_context(
            request,
            title=capfirst(str(self.opts.verbose_name_plural)),
            is_usable=is_usable(),
            servers=self._build_overviews() if is_usable() else [],
            may_check=self.has_change_permission(request),
            this_process=get_process_name(),
            believed=timezone.now() - timedelta(seconds=HEARTBEAT_TIMEOUT_SECONDS),
        )
        context |= extra_context or {}
        return TemplateResponse(request, "mcp_django/admin/clients.html", context)

    def check_view(self, request: HttpRequest, alias: str) -> HttpResponse:
        """Connect to one server now, on behalf of the current user."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_change_permission(request):
            raise PermissionDenied
        if not is_usable() or alias not in get_settings().clients:
            raise Http404
        result = async_to_sync(check_client)(alias, user=request.user, timeout=CHECK_TIMEOUT_SECONDS)
        ClientHealth.objects.report(get_process_name(), alias, HEALTH_REGISTRY.get(alias).to_row())
        self._show_result(request, result)
        return HttpResponseRedirect(f"{self.get_url('changelist')}#{alias}")

    def _show_result(self, request: HttpRequest, result: HealthCheckResult) -> None:
        if result.reached:
            values = {"alias": result.alias, "tools": len(result.tools), "ms": round((result.connecting or 0) * 1000)}
            text = ngettext(
                "The server %(alias)s is available: %(tools)d tool, connected in %(ms)d ms.",
                "The server %(alias)s is available: %(tools)d tools, connected in %(ms)d ms.",
                len(result.tools),
            )
            self.message_user(request, text % values, messages.SUCCESS)
            return
        values = {"alias": result.alias, "error": result.error, "text": result.error_text}
        self.message_user(
            request, _("Connecting to the server %(alias)s failed: %(error)s. %(text)s") % values, messages.ERROR
        )

    def _build_overviews(self) -> list[ServerOverview]:
        rows: dict[str, list[ClientHealth]] = {}
        for row in ClientHealth.objects.exclude(process=get_process_name()).order_by("process"):
            rows.setdefault(row.alias, []).append(row)
        for health in HEALTH_REGISTRY.list_all():
            if health.calls or health.connections or health.error or health.reached:
                own_row = ClientHealth(
                    process=get_process_name(), alias=health.alias, updated=timezone.now(), **health.to_row()
                )
                rows.setdefault(health.alias, []).insert(0, own_row)
        return [
            ServerOverview(settings, rows.get(alias, []), self.get_url("check", alias))
            for alias, settings in get_settings().clients.items()
        ]
