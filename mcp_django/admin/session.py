"""Admin of the sessions: connected clients, and actions to end sessions. Read-only."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.timesince import timesince
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.base import RowActionAdmin, ServerFilter
from mcp_django.auth.principal import PERSONAL_CLIENT_PREFIX
from mcp_django.conf import get_settings
from mcp_django.models import EndReason, PersonalAccessToken, ResourceSubscription, Session, StreamEvent
from mcp_django.protocol.display_text import clean_line
from mcp_django.runtime.sessions.activity import (
    CALLER_WINDOW,
    ReportedCaller,
    SessionActivity,
    get_reported_activity,
    get_reported_callers,
)
from mcp_django.runtime.sessions.events import call_topic_prefix, session_topic


class StateFilter(admin.SimpleListFilter):
    """Filter by state: live sessions or ended ones."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("live", _("live")), ("over", _("ended"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        live = Session.objects.live(idle=get_settings().limits.session_idle)
        match self.value():
            case "live":
                return queryset.filter(pk__in=live.values("pk"))
            case "over":
                return queryset.exclude(pk__in=live.values("pk"))
        return queryset


class ActivityFilter(admin.SimpleListFilter):
    """Filter by activity: sessions with or without open calls and streams, as last reported."""

    title = _("activity")
    parameter_name = "activity"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("open", _("calls or streams open")), ("none", _("nothing open"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        if self.value() not in ("open", "none"):
            return queryset
        active = queryset.filter(pk__in=list(get_reported_activity()), terminated_at=None)
        return active if self.value() == "open" else queryset.exclude(pk__in=active.values("pk"))


class EndReasonFilter(admin.SimpleListFilter):
    """Filter by the reason of the end, for the reasons that occur."""

    title = _("reason of the end")
    parameter_name = "end_reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        found = Session.objects.exclude(end_reason="").order_by().values_list("end_reason", flat=True).distinct()
        return [("none", _("not ended")), *((reason, get_reason_text(reason)) for reason in sorted(found))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        value = self.value()
        if value == "none":
            return queryset.filter(terminated_at=None)
        return queryset if value is None else queryset.filter(end_reason=value)


def get_reason_text(reason: str) -> str:
    """Return the text of a session's reason to end."""
    return str(dict(EndReason.choices).get(reason, reason))


class SessionChangeList(ChangeList):
    """Change list that reads the activity of all rows of a page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        activities = get_reported_activity()
        for session in self.result_list:
            session.activity = activities.get(session.pk, SessionActivity())


@admin.register(Session)
class SessionAdmin(RowActionAdmin):
    """List of sessions with actions to end them, which require the change permission."""

    list_display = ["client", "state", "user", "server", "protocol", "age", "seen", "calls", "streams"]
    list_filter = [StateFilter, ActivityFilter, ServerFilter, "revision", EndReasonFilter, "created"]
    list_select_related = ["user"]
    search_fields = ["=key_prefix", "owner", "client_info__name", "user"]
    can_add = False
    can_change = False
    actions = ["end_sessions", "end_sessions_of_users"]
    readonly_fields = (
        "client",
        "state",
        "user",
        "credential",
        "key_prefix",
        "server",
        "protocol",
        "calls",
        "streams",
        "subscriptions",
        "events",
        "initialized",
        "log_level",
        "capabilities",
        "created",
        "last_seen",
        "expires",
        "terminated_at",
    )
    fields = readonly_fields
    change_list_template = "mcp_django/admin/session_change_list.html"
    action_name = "end"
    action_label = _("End session")
    action_question = _("Running calls of the session are cancelled, and its client has to connect again.")

    def get_list_display(self, request: HttpRequest) -> Any:
        has_one_server = len(get_settings().servers) == 1
        return [name for name in self.list_display if name != "server" or not has_one_server]

    def is_action_available(self, row: Session) -> bool:
        return row.terminated_at is None

    def run_action(self, row: Session) -> str:
        Session.objects.filter(pk=row.pk).end(EndReason.ADMIN)
        return str(_("The session was ended."))

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.callers_view)
        return [path("callers/", view, name="mcp_django_session_callers"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list, with a link to the callers without a session."""
        context = {"callers_url": self.get_url("callers"), **(extra_context or {})}
        return super().changelist_view(request, context)

    def callers_view(self, request: HttpRequest) -> HttpResponse:
        """List the callers of the last minutes, with and without a session."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        context = self.build_context(
            request,
            title=_("Active callers"),
            callers=_describe_callers(get_reported_callers()),
            minutes=CALLER_WINDOW // timedelta(minutes=1),
            crumbs=[
                (reverse(f"{self.admin_site.name}:index"), _("Home")),
                (self.get_url("changelist"), capfirst(str(self.opts.verbose_name_plural))),
            ],
        )
        return TemplateResponse(request, "mcp_django/admin/callers.html", context)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SessionChangeList

    @admin.display(description=_("client"))
    def client(self, session: Session) -> str:
        """Return name and version as sent by the client."""
        info = session.client_info if isinstance(session.client_info, dict) else {}
        words = [clean_line(str(info[name]), 60) for name in ("name", "version") if info.get(name)]
        return " ".join(words) or f"{session.key_prefix}…"

    @admin.display(description=_("protocol"), ordering="revision")
    def protocol(self, session: Session) -> str:
        """Return the protocol revision, on one line."""
        return format_html('<span class="nowrap">{}</span>', session.revision)

    @admin.display(description=_("credential"))
    def credential(self, session: Session) -> str:
        """Return the key of the principal, as a link if it names a personal access token."""
        token = _find_token(session.owner.rpartition("|")[2])
        if token is None:
            return session.owner
        url = reverse(f"{self.admin_site.name}:mcp_django_personalaccesstoken_change", args=[token.pk])
        return format_html('<a href="{}">{}</a>', url, _("token %s") % token.name)

    @admin.display(description=_("client capabilities"))
    def capabilities(self, session: Session) -> str:
        """Return the names of the capabilities, with the names of their options in parentheses.

        They are sorted, because PostgreSQL stores the members of an object in an order of its own.
        """
        declared = session.client_capabilities if isinstance(session.client_capabilities, dict) else {}
        words = []
        for name, options in sorted(declared.items()):
            names = ", ".join(sorted(map(str, options))) if isinstance(options, dict) else ""
            words.append(f"{name} ({names})" if names else str(name))
        return clean_line(", ".join(words)) or str(_("none"))

    @admin.display(description=_("age"), ordering="-created")
    def age(self, session: Session) -> str:
        """Return the time since the session was opened."""
        return timesince(session.created, depth=1)

    @admin.display(description=_("last seen"), ordering="last_seen")
    def seen(self, session: Session) -> str:
        """Return the time since the last use, accurate to a minute."""
        return str(_("%s ago") % timesince(session.last_seen, depth=1))

    @admin.display(description=_("running calls"))
    def calls(self, session: Session) -> int:
        """Return the number of running calls in all processes, some seconds old.

        Calls under WSGI are not counted.
        """
        return _get_activity(session).calls

    @admin.display(description=_("open streams"))
    def streams(self, session: Session) -> int:
        """Return the number of open session streams in all processes, some seconds old."""
        return _get_activity(session).streams

    @admin.display(description=_("subscriptions"))
    def subscriptions(self, session: Session) -> int:
        """Return the number of subscribed resources."""
        return ResourceSubscription.objects.filter(session=session).count()

    @admin.display(description=_("messages kept for resumption"))
    def events(self, session: Session) -> int:
        """Return the number of logged events for this session alone."""
        topics = Q(topic=session_topic(session.pk)) | Q(topic__startswith=call_topic_prefix(session.pk))
        return StreamEvent.objects.filter(topics).count()

    @admin.display(description=_("state"))
    def state(self, session: Session) -> str:
        """Return the state: live, expired, or the reason of the end."""
        if session.terminated_at is not None:
            return get_reason_text(session.end_reason)
        return str(_("live") if session.is_live(idle=get_settings().limits.session_idle) else _("expired"))

    @admin.action(description=_("End selected sessions"), permissions=["manage"])
    def end_sessions(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """End the sessions; their clients have to initialize again."""
        self._end_and_report(request, Session.objects.filter(pk__in=queryset.values("pk")))

    @admin.action(description=_("End all sessions of these users"), permissions=["manage"])
    def end_sessions_of_users(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """End all sessions of the users of the selected sessions."""
        users = list(queryset.exclude(user=None).order_by().values_list("user", flat=True).distinct())
        if not users:
            self.message_user(request, _("The selected sessions have no user."), messages.WARNING)
            return
        self._end_and_report(request, Session.objects.filter(user__in=users))

    def _end_and_report(self, request: HttpRequest, sessions: Any) -> None:
        ended = sessions.end(EndReason.ADMIN)
        self.report_count(request, ngettext("%d session was ended.", "%d sessions were ended.", ended), ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerRow:
    """Row of the page of active callers."""

    caller: ReportedCaller
    user: Any
    client: str
    session_count: int


def _describe_callers(callers: list[ReportedCaller]) -> list[CallerRow]:
    users = get_user_model()._default_manager.in_bulk({caller.user_pk for caller in callers if caller.user_pk})
    users_by_pk = {str(pk): user for pk, user in users.items()}
    live = Session.objects.live(idle=get_settings().limits.session_idle)
    counts: Counter[str] = Counter(
        live.filter(owner__in=[caller.key for caller in callers]).values_list("owner", flat=True)
    )
    return [
        CallerRow(
            caller=caller,
            user=users_by_pk.get(caller.user_pk or ""),
            client=_find_token_name(caller.client_id) or caller.client_id,
            session_count=counts[caller.key],
        )
        for caller in callers
    ]


def _find_token(client_id: str) -> PersonalAccessToken | None:
    """Return the personal access token that a client identifier names, or None."""
    pk = client_id.removeprefix(PERSONAL_CLIENT_PREFIX)
    return PersonalAccessToken.objects.filter(pk=pk).first() if pk != client_id and pk.isdecimal() else None


def _find_token_name(client_id: str) -> str:
    token = _find_token(client_id)
    return "" if token is None else str(_("token %s") % token.name)


def _get_activity(session: Session) -> SessionActivity:
    """Return the open calls and streams of a session.

    The change list reads them for all of its rows; the page of one session reads them here.
    """
    attributes = vars(session)
    if session.terminated_at is not None:
        return SessionActivity()  # reports of processes are some seconds old
    if "activity" not in attributes:
        attributes["activity"] = get_reported_activity().get(session.pk, SessionActivity())
    activity: SessionActivity = attributes["activity"]
    return activity
