"""Control room: the page with figures, tools and callers, and its fragments."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from mcp_django import wiring
from mcp_django.admin.base import BaseAdmin
from mcp_django.contrib.control_room.export import build_csv_response
from mcp_django.contrib.control_room.models import ControlRoom
from mcp_django.contrib.control_room.pages.access import ACCESS_PERMISSION, AccessForm, build_table, iter_csv_rows
from mcp_django.contrib.control_room.pages.callers import load_callers
from mcp_django.contrib.control_room.pages.figures import SpanFigures, load_figures
from mcp_django.contrib.control_room.pages.line_charts import LineChart, Series
from mcp_django.contrib.control_room.pages.running_calls import load_running_calls, mark_cancelled
from mcp_django.contrib.control_room.pages.targets import load_target, parse_target
from mcp_django.contrib.control_room.pages.time_spans import SPANS, TimeSpan, get_span

MAX_SHOWN_TARGETS = 200


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
                ("access/", self.access_view, "access"),
                ("running/", self.running_view, "running"),
                ("cancel/", self.cancel_view, "cancel"),
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
        context |= self._build_figures_context(context)
        context |= self._build_running_context(request, context)
        return TemplateResponse(request, "mcp_control_room/room.html", context | (extra_context or {}))

    def figures_view(self, request: HttpRequest) -> HttpResponse:
        """Return the part of the page that changes."""
        self.check_view_permission(request)
        context = self.build_room_context(request)
        context |= self._build_figures_context(context)
        response = TemplateResponse(request, "mcp_control_room/figures.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def target_view(self, request: HttpRequest) -> HttpResponse:
        """Show one tool, prompt, resource or method."""
        self.check_view_permission(request)
        target = parse_target(request.GET)
        context = self.build_room_context(request, title=target.label, crumb=True)
        page = load_target(target, context["span"], with_calls=context["may_see_calls"])
        figures = page.figures
        context |= {
            "page": page,
            "total": figures.total,
            "charts": build_charts(figures, context["span"]),
            "callers": page.callers,
            "as_of": timezone.now(),
        }
        return TemplateResponse(request, "mcp_control_room/target.html", context)

    def access_view(self, request: HttpRequest) -> HttpResponseBase:
        """Show which callers may use which primitives, or export it as CSV."""
        if not self.has_access_permission(request):
            raise PermissionDenied
        form = AccessForm(request.GET or None)
        table = build_table(form.cleaned_data) if form.is_valid() else None
        if table is not None and request.GET.get("format") == "csv":
            log_act(request, "Access", "Exported as csv.")
            return build_csv_response(iter_csv_rows(table), "access.csv")
        context = self.build_room_context(
            request,
            title=_("Who may do what"),
            crumb=self.has_view_permission(request),
            form=form,
            table=table,
            csv_query=f"{request.GET.urlencode()}&format=csv",
        )
        return TemplateResponse(request, "mcp_control_room/access.html", context)

    def has_access_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may see the rights of others."""
        return request.user.has_perm(ACCESS_PERMISSION)

    def running_view(self, request: HttpRequest) -> HttpResponse:
        """Return the part of the page with the running calls and the processes."""
        self.check_view_permission(request)
        context = self.build_room_context(request)
        context |= self._build_running_context(request, context)
        response = TemplateResponse(request, "mcp_control_room/running.html", context)
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
            self.message_user(request, _("The call has ended already."), messages.WARNING)
        else:
            log_act(request, f"{call} ({call.principal})", "Cancelled.")
            self.message_user(request, _("The call %s will be cancelled.") % call, messages.SUCCESS)
        query = self.build_room_context(request)["query"]
        return HttpResponseRedirect(f"{self.get_url('changelist')}?{query}")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may cancel calls."""
        return request.user.has_perm(f"{self.opts.app_label}.cancel_call")

    def build_room_context(self, request: HttpRequest, **context: Any) -> dict[str, Any]:
        """Return the context that all pages share: time span, server, and the links to others."""
        span = get_span(request.GET.get("span"))
        aliases = wiring.list_aliases()
        server = request.GET.get("server", "")
        server = server if server in aliases else ""
        query = f"span={span.name}" + (f"&server={server}" if server else "")
        return self.build_context(
            request,
            span=span,
            spans=SPANS.values(),
            server=server,
            servers=aliases if len(aliases) > 1 else (),
            query=query,
            home_url=reverse(f"{self.admin_site.name}:index"),
            room_url=self.get_url("changelist"),
            figures_url=f"{self.get_url('figures')}?{query}",
            running_url=f"{self.get_url('running')}?{query}",
            cancel_url=f"{self.get_url('cancel')}?{query}",
            access_url=self.get_url("access") if self.has_access_permission(request) else None,
            target_url=self.get_url("target"),
            calls_url=reverse(f"{self.admin_site.name}:mcp_control_room_calllogentry_changelist"),
            may_see_calls=request.user.has_perm("mcp_control_room.view_calllogentry"),
            **context,
        )

    def _build_running_context(self, request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
        return {
            "running": load_running_calls(context["server"]),
            "may_cancel": self.has_cancel_permission(request),
            "as_of": timezone.now(),
        }

    def _build_figures_context(self, context: dict[str, Any]) -> dict[str, Any]:
        span: TimeSpan = context["span"]
        filters = {"server": context["server"]} if context["server"] else {}
        figures = load_figures(span, **filters)
        callers = load_callers(min(figures.points), **filters)
        return {
            "as_of": timezone.now(),
            "total": figures.total,
            "callers": callers,
            "charts": build_charts(figures, span),
            "tools": figures.list_targets(tools=True)[:MAX_SHOWN_TARGETS],
            "others": figures.list_targets(tools=False)[:MAX_SHOWN_TARGETS],
        }


def build_charts(figures: SpanFigures, span: TimeSpan) -> list[LineChart]:
    """Return the charts of a time span: calls by outcome, and durations."""
    labels = [span.format_start(start) for start in figures.points]
    points = list(figures.points.values())
    return [
        LineChart(
            _("Calls by outcome"),
            labels,
            [
                Series("first", _("Successful"), [point.count - point.failed for point in points]),
                Series("second", _("Failed"), [point.failed - point.bugs for point in points]),
                Series("third", _("Bugs"), [point.bugs for point in points]),
            ],
        ),
        LineChart(
            _("Durations in milliseconds"),
            labels,
            [
                Series("first", _("Half of the calls"), [point.median for point in points]),
                Series("second", _("95 %"), [point.percentile_95 for point in points]),
                Series("third", _("99 %"), [point.percentile_99 for point in points]),
            ],
        ),
    ]


def log_act(request: HttpRequest, subject: str, act: str) -> None:
    """Note an act of a user in the admin's log."""
    LogEntry.objects.create(
        user_id=request.user.pk or 0,
        content_type=ContentType.objects.get_for_model(ControlRoom, for_concrete_model=False),
        object_repr=subject[:200],
        action_flag=CHANGE,
        change_message=act,
    )
