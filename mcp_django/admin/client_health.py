"""Admin page of the servers that this project uses: addresses, health and checks."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, TextChoices
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.base import BaseAdmin
from mcp_django.client.errors import AuthorizationNeeded
from mcp_django.client.oauth.http import get_connect_path
from mcp_django.client.pool.health import HEALTH_REGISTRY, HEARTBEAT_TIMEOUT_SECONDS, get_process_name
from mcp_django.conf import get_settings, is_usable
from mcp_django.conf.clients import ClientSettings
from mcp_django.models import ClientHealth, ClientToken

if TYPE_CHECKING:
    from mcp_django.client.pool.health_check import HealthCheckResult

CHECK_TIMEOUT_SECONDS = 10.0
"""Timeout of a check in seconds. It is short because the user waits for the page."""
CHECK_TAG = "check-"
"""Prefix of the tag of messages about a check; the alias follows."""
CREDENTIAL_LABELS = {
    ("bearer", False): _("a token of the project"),
    ("bearer", True): _("a token of each user"),
    ("oauth", False): _("OAuth, allowed once for the project"),
    ("oauth", True): _("OAuth, allowed by each user"),
    ("client_credentials", False): _("OAuth with client credentials"),
}


class ServerState(TextChoices):
    """State of a used server, from the reports of all processes and the stored tokens."""

    IN_USE = "in_use", _("in use")
    ANSWERS = "answers", _("answers")
    UNUSED = "unused", _("not used yet")
    UNAUTHORIZED = "unauthorized", _("must be connected")
    FAILING = "failing", _("fails")


@dataclass
class ServerOverview:
    """Used server, as shown on the page."""

    settings: ClientSettings
    rows: list[ClientHealth]
    check_url: str
    token: ClientToken | None
    """Tokens that requests of the current user would send, for OAuth with a user's authorization."""
    results: list[Any] = field(default_factory=list)
    """Messages about checks, shown beside the server."""
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
    def state(self) -> ServerState:
        """First state that applies: in use, unauthorized, failing, unused, or else answering."""
        if any(row.connections for row in self.live_rows):
            return ServerState.IN_USE
        if self.needs_authorization:
            return ServerState.UNAUTHORIZED
        if self.last_error is not None:
            return ServerState.FAILING
        return ServerState.UNUSED if self.reached_at is None else ServerState.ANSWERS

    @property
    def needs_authorization(self) -> bool:
        """Return True if a person has to authorize the server first."""
        auth = self.settings.auth
        return auth is not None and auth.type == "oauth" and (self.token is None or not self.token.is_connected)

    @property
    def connect_url(self) -> str | None:
        """URL of the page to authorize the server; None if the site has none."""
        return get_connect_path(self.settings) if self.needs_authorization else None

    @property
    def reached_at(self) -> datetime | None:
        """Time of the last success in any process."""
        return max((row.reached for row in self.rows if row.reached is not None), default=None)

    @property
    def last_error(self) -> ClientHealth | None:
        """The row with the newest error, unless a process reached the server after it."""
        failed = [(row.error_at, row) for row in self.unresolved_rows if row.error_at is not None]
        if not failed:
            return None
        error_at, row = max(failed, key=lambda pair: pair[0])
        return None if self.reached_at is not None and self.reached_at >= error_at else row

    @property
    def unresolved_rows(self) -> list[ClientHealth]:
        """Rows of processes whose last event is an error. The user's authorization resolves the lack of one."""
        authorized_at = self.token.updated if self.token is not None and self.token.is_connected else None
        return [
            row
            for row in self.rows
            if row.is_failing
            and not (
                row.error == AuthorizationNeeded.__name__
                and authorized_at is not None
                and row.error_at is not None
                and authorized_at >= row.error_at
            )
        ]

    @property
    def failing_processes(self) -> list[str]:
        """Names of the processes whose errors are shown in their rows, because the server shows none itself."""
        return [] if self.last_error is not None else [row.process for row in self.unresolved_rows]

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

        is_setting_usable = is_usable()
        servers = self.load_overviews(request.user) if is_setting_usable else []
        context = self.build_context(
            request,
            messages=_assign_messages(request, servers),
            title=capfirst(str(self.opts.verbose_name_plural)),
            is_usable=is_setting_usable,
            servers=servers,
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
        # The import of the SDK takes a quarter of the start of a process, and few processes serve this page.
        check_client = import_string("mcp_django.client.pool.health_check.check_client")
        result: HealthCheckResult = async_to_sync(check_client)(alias, user=request.user, timeout=CHECK_TIMEOUT_SECONDS)
        ClientHealth.objects.report(get_process_name(), alias, HEALTH_REGISTRY.get(alias).to_row())
        self._show_result(request, result)
        return HttpResponseRedirect(f"{self.get_url('changelist')}#{alias}")

    def _show_result(self, request: HttpRequest, result: "HealthCheckResult") -> None:
        if result.reached:
            values = {"alias": result.alias, "tools": len(result.tools), "ms": round((result.connecting or 0) * 1000)}
            text = ngettext(
                "The server %(alias)s is available: %(tools)d tool, connected in %(ms)d ms.",
                "The server %(alias)s is available: %(tools)d tools, connected in %(ms)d ms.",
                len(result.tools),
            )
            level, text = messages.SUCCESS, text % values
        elif result.error == AuthorizationNeeded.__name__:
            level, text = messages.WARNING, _("%(alias)s must be connected first.") % {"alias": result.alias}
        else:
            detail = format_html('<span lang="en">{}</span>', result.error_text)
            failure = str(_("Connecting to the server {alias} failed: {detail}"))
            level, text = messages.ERROR, format_html(failure, alias=result.alias, detail=detail)
        self.message_user(request, text, level, extra_tags=f"{CHECK_TAG}{result.alias}")

    def load_overviews(self, user: Any) -> list[ServerOverview]:
        """Return the servers of the setting, as `user` may use them. Runs at most two statements."""
        clients = get_settings().clients
        if not clients:
            return []
        tokens = {
            (token.alias, token.server, token.user_id is not None): token
            for token in ClientToken.objects.filter(Q(user=user) | Q(user=None))
        }
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
            ServerOverview(
                settings,
                rows.get(alias, []),
                self.get_url("check", alias),
                tokens.get((alias, settings.display_location, settings.per_user)),
            )
            for alias, settings in clients.items()
        ]


def _assign_messages(request: HttpRequest, servers: Iterable[ServerOverview]) -> list[Any]:
    """Move the messages about checks to their servers; return the remaining ones.

    The page scrolls to the server after a check, so a message at the top would be out of sight.
    """
    servers_by_tag = {f"{CHECK_TAG}{server.settings.alias}": server for server in servers}
    remaining: list[Any] = []
    for message in messages.get_messages(request):
        server = servers_by_tag.get(message.extra_tags)
        (remaining if server is None else server.results).append(message)
    return remaining
