"""Control room: the page with figures, tools and callers, and its fragments.

Two fragments keep an open page fresh: `running` is cheap and fetched often, `figures` reads the counts of a time span.
Each consists of parts, which the page has in its own order.
"""

from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from mcp_django import wiring
from mcp_django.admin.base import log_act
from mcp_django.admin.client_access import withdraw
from mcp_django.contrib.control_room.alerts.muting import (
    MUTE_PERMISSION,
    MUTED_MESSAGE,
    UNMUTED_MESSAGE,
    change_mute,
)
from mcp_django.contrib.control_room.caller_credentials import REVOKE_PERMISSION, load_credentials
from mcp_django.contrib.control_room.models import CallLogEntry, ControlRoom
from mcp_django.contrib.control_room.pages.alert_rows import build_alert_row
from mcp_django.contrib.control_room.pages.callers import load_callers, load_stream_counts, load_user_names
from mcp_django.contrib.control_room.pages.figures import load_figures
from mcp_django.contrib.control_room.pages.first_call import has_recorded_calls, list_connection_texts
from mcp_django.contrib.control_room.pages.line_charts import build_charts
from mcp_django.contrib.control_room.pages.links import MANAGE, RoomLinks, list_overviews
from mcp_django.contrib.control_room.pages.running_calls import load_running_calls, mark_cancelled
from mcp_django.contrib.control_room.pages.streams import END_PERMISSION, find_stream, load_streams, mark_ended
from mcp_django.contrib.control_room.pages.targets import build_target_links, load_target, parse_target
from mcp_django.contrib.control_room.pages.tiles import (
    build_call_urls,
    build_caller_tile,
    build_figure_tiles,
    build_running_tiles,
    build_stream_tile,
)
from mcp_django.contrib.control_room.pages.time_spans import SPANS, TimeSpan, get_span
from mcp_django.extensions.admin_pages import BaseAdmin
from mcp_django.models import Access, ClientHealth, PersonalAccessToken, Session

MAX_SHOWN_TARGETS = 200


class RoomQuery(NamedTuple):
    """Time span and server of a page. As text, it is the query of a URL."""

    span: TimeSpan
    server: str
    """Alias; empty for all servers."""

    @classmethod
    def read(cls, request: HttpRequest) -> "RoomQuery":
        """Return those of a request. An unknown server counts as none."""
        server = request.GET.get("server", "")
        return cls(get_span(request.GET.get("span")), server if server in wiring.list_aliases() else "")

    def __str__(self) -> str:
        return urlencode({"span": self.span.name, **({"server": self.server} if self.server else {})})


@admin.register(ControlRoom)
class ControlRoomAdmin(BaseAdmin):
    """Pages of the control room. Its model has no rows of its own."""

    can_add = False
    can_change = False
    can_delete = False

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the page and of its fragments. Rows have no pages."""
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path(pattern, self.admin_site.admin_view(view), name=f"{prefix}_{name}")
            for pattern, view, name in (
                ("", self.changelist_view, "changelist"),
                ("figures/", self.figures_view, "figures"),
                ("calls/", self.target_view, "target"),
                ("running/", self.running_view, "running"),
                ("cancel/", self.cancel_view, "cancel"),
                ("mute/", self.mute_view, "mute"),
                ("end-stream/", self.end_stream_view, "end_stream"),
                ("revoke/", self.revoke_view, "revoke"),
            )
        ]

    def check_view_permission(self, request: HttpRequest) -> None:
        """Raise PermissionDenied if the user may not open the pages."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the page."""
        self.check_view_permission(request)
        context = self.build_room_context(request, title=capfirst(str(self.opts.verbose_name)))
        context |= self._build_figures_context(request, context)
        context |= self._build_running_context(request, context)
        return TemplateResponse(request, "mcp_control_room/room.html", context | (extra_context or {}))

    def figures_view(self, request: HttpRequest) -> HttpResponse:
        """Return the parts of the page with the figures of the time span."""
        self.check_view_permission(request)
        context = self.build_room_context(request)
        context |= self._build_figures_context(request, context)
        response = TemplateResponse(request, "mcp_control_room/figures.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def target_view(self, request: HttpRequest) -> HttpResponse:
        """Show one tool, prompt, resource or method."""
        self.check_view_permission(request)
        target = parse_target(request.GET)
        context = self.build_room_context(request, title=target.label, crumb=True)
        page = load_target(target, context["span"], with_calls=bool(context["calls_url"]))
        context |= build_target_links(target, page.figures, context["span"], context["links"])
        context |= {
            "page": page,
            "total": page.figures.total,
            "charts": build_charts(page.figures, context["span"]),
            "callers": page.callers,
            "as_of": timezone.now(),
        }
        return TemplateResponse(request, "mcp_control_room/target.html", context)

    def running_view(self, request: HttpRequest) -> HttpResponse:
        """Return the parts of the page with the alerts, the running calls and the processes."""
        self.check_view_permission(request)
        context = self.build_room_context(request)
        context |= self._build_running_context(request, context)
        response = TemplateResponse(request, "mcp_control_room/running_parts.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def cancel_view(self, request: HttpRequest) -> HttpResponse:
        """Cancel a running call, in whichever process it runs."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self.check_view_permission(request)
        if not self.has_cancel_permission(request):
            raise PermissionDenied
        call = mark_cancelled(request.POST.get("key", ""))
        if call is None:
            return self._return_to_room(request, _("The call has ended already."), messages.WARNING)
        log_act(request, ControlRoom, f"{call} ({call.principal})", "Cancelled.")
        return self._return_to_room(request, _("The call %s will be cancelled.") % call, messages.SUCCESS)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may cancel calls."""
        return request.user.has_perm(f"{self.opts.app_label}.cancel_call")

    def mute_view(self, request: HttpRequest) -> HttpResponse:
        """Mute an active alert for an hour, or end its mute."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self.check_view_permission(request)
        if not request.user.has_perm(MUTE_PERMISSION):
            raise PermissionDenied
        ends_mute = request.POST.get("act") == "unmute"
        alert = change_mute(request.POST.get("alert", ""), ends_mute=ends_mute)
        if alert is None:
            return self._return_to_room(request, _("The alert has changed meanwhile."), messages.WARNING)
        log_act(request, ControlRoom, str(alert), UNMUTED_MESSAGE if ends_mute else MUTED_MESSAGE)
        return self._return_to_room(request)

    def end_stream_view(self, request: HttpRequest) -> HttpResponse:
        """Ask whether to end a stream without a session; on POST, end it in whichever process it is."""
        self._check_act(request, END_PERMISSION)
        stream = find_stream(request.GET.get("key", ""))
        if stream is None:
            return self._return_to_room(request, _("The stream has ended already."), messages.WARNING)
        if request.method != "POST":
            question = _("The stream ends within seconds. Its client may open it again, unless you revoke its access.")
            return self._ask(request, _("End the stream"), str(stream), question)
        mark_ended(stream.key)
        log_act(request, ControlRoom, str(stream), "Ended the stream.")
        return self._return_to_room(request, _("The stream will be ended."), messages.SUCCESS)

    def revoke_view(self, request: HttpRequest) -> HttpResponse:
        """Ask whether to revoke the access of an OAuth client for a user; on POST, revoke it."""
        self._check_act(request, REVOKE_PERMISSION)
        principal = request.GET.get("principal", "")
        credential = load_credentials([principal]).get(principal)
        if credential is None or credential.access is None:
            return self._return_to_room(request, _("The client has no access any more."), messages.WARNING)
        user = load_user_names([credential.access.user_key]).get(credential.access.user_key, "-")
        subject = _("%(client)s, for %(user)s") % {"client": credential.name, "user": user}
        if request.method != "POST":
            question = _("All tokens of the client for this user become invalid. The user has to allow it once more.")
            return self._ask(request, _("Revoke access"), subject, question)
        withdraw(credential.access)
        log_act(request, ControlRoom, f"{credential.name} ({principal})", "Revoked the access of the client.")
        return self._return_to_room(request, _("The access was revoked: %s") % subject, messages.SUCCESS)

    def _check_act(self, request: HttpRequest, permission: str) -> None:
        """Raise PermissionDenied if the user may not open the pages, or lacks a permission."""
        self.check_view_permission(request)
        if not request.user.has_perm(permission):
            raise PermissionDenied

    def _ask(self, request: HttpRequest, title: str, subject: str, question: str) -> HttpResponse:
        """Show the page that confirms an act."""
        context = self.build_room_context(request, title=title, crumb=True, subject=subject, question=question)
        return TemplateResponse(request, "mcp_control_room/confirmation.html", context)

    def _return_to_room(self, request: HttpRequest, text: str = "", level: int = messages.INFO) -> HttpResponse:
        """Redirect to the page with its time span and server. An empty text shows no message."""
        if text:
            self.message_user(request, text, level)
        return HttpResponseRedirect(f"{self.get_url('changelist')}?{RoomQuery.read(request)}")

    def build_room_context(self, request: HttpRequest, **context: Any) -> dict[str, Any]:
        """Return the context that all pages share: time span, server, and the links to others."""
        query, aliases = RoomQuery.read(request), wiring.list_aliases()
        links = RoomLinks(request, self.admin_site)
        return self.build_context(
            request,
            span=query.span,
            spans=SPANS.values(),
            server=query.server,
            servers=aliases if len(aliases) > 1 else (),
            query=str(query),
            home_url=reverse(f"{self.admin_site.name}:index"),
            room_url=self.get_url("changelist"),
            figures_url=f"{self.get_url('figures')}?{query}",
            running_url=f"{self.get_url('running')}?{query}",
            cancel_url=f"{self.get_url('cancel')}?{query}",
            access_url=links.find(Access),
            target_url=self.get_url("target"),
            links=links,
            calls_url=links.find(CallLogEntry),
            sessions_url=links.find(Session),
            may_end_sessions=links.find_admin(Session, MANAGE) is not None,
            may_revoke_tokens=links.find_admin(PersonalAccessToken, MANAGE) is not None,
            revoke_url=f"{self.get_url('revoke')}?{query}" if request.user.has_perm(REVOKE_PERMISSION) else "",
            may_end_streams=request.user.has_perm(END_PERMISSION),
            end_stream_url=f"{self.get_url('end_stream')}?{query}",
            **context,
        )

    def _build_running_context(self, request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
        running = load_running_calls(context["server"])
        return {
            "running": running,
            "running_tiles": list(build_running_tiles(running)),
            "alerts": [
                build_alert_row(alert, context["links"], context["target_url"], has_one_server=not context["servers"])
                for alert in running.alerts
            ],
            "may_cancel": self.has_cancel_permission(request),
            "may_mute": request.user.has_perm(MUTE_PERMISSION),
            "mute_url": f"{self.get_url('mute')}?{context['query']}",
            "as_of": timezone.now(),
        }

    def _build_figures_context(self, request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
        span: TimeSpan = context["span"]
        links: RoomLinks = context["links"]
        filters = {"server": context["server"]} if context["server"] else {}
        figures = load_figures(span, **filters)
        since = min(figures.points)
        callers = load_callers(since, **filters)
        streams = load_streams(context["server"])
        urls = build_call_urls(links, figures.total, since, **filters)
        tiles = [
            *build_figure_tiles(figures.total, since, span.count_minutes(), urls),
            build_caller_tile(callers),
            build_stream_tile(load_stream_counts(context["server"]), streams.total, links),
        ]
        is_new = not figures.total.count and not has_recorded_calls()
        return {
            "as_of": timezone.now(),
            "total": figures.total,
            "tiles": tiles,
            "callers": callers,
            "streams": streams,
            "charts": build_charts(figures, span),
            "tools": figures.list_targets(tools=True)[:MAX_SHOWN_TARGETS],
            "others": figures.list_targets(tools=False)[:MAX_SHOWN_TARGETS],
            "is_new": is_new,
            "connections": list_connection_texts(request, context["server"]) if is_new else (),
            **self._build_overview_context(request, links),
        }

    def _build_overview_context(self, request: HttpRequest, links: RoomLinks) -> dict[str, Any]:
        """Return the remote servers, and the figures of other models."""
        remotes = links.find_admin(ClientHealth)
        return {
            "remotes": [] if remotes is None else remotes.load_overviews(request.user),
            "remotes_url": links.find(ClientHealth),
            "may_check": links.find_admin(ClientHealth, MANAGE) is not None,
            "overviews": list_overviews(request, self.admin_site),
        }
