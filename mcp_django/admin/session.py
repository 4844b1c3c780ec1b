"""Admin of the sessions: connected clients, and actions to end sessions. Read-only."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.timesince import timesince
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.base import BaseAdmin
from mcp_django.conf import get_settings
from mcp_django.models import EndReason, ResourceSubscription, Session, StreamEvent
from mcp_django.runtime.sessions.activity import SessionActivity, get_reported_activity
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
        match self.value():
            case "open":
                return queryset.filter(pk__in=list(get_reported_activity()))
            case "none":
                return queryset.exclude(pk__in=list(get_reported_activity()))
        return queryset


class SessionChangeList(ChangeList):
    """Change list that reads the activity of all rows of a page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        activities = get_reported_activity()
        for session in self.result_list:
            session.activity = activities.get(session.pk, SessionActivity())


@admin.register(Session)
class SessionAdmin(BaseAdmin):
    """List of sessions with actions to end them, which require the change permission."""

    list_display = ["client", "revision", "user", "server", "age", "seen", "calls", "streams", "state"]
    list_filter = [StateFilter, ActivityFilter, "server", "revision", "end_reason", "created"]
    list_select_related = ["user"]
    search_fields = ["=key_prefix", "owner", "client_info__name", "user"]
    can_add = False
    can_change = False
    actions = ["end_sessions", "end_sessions_of_users"]
    readonly_fields = (
        "client",
        "key_prefix",
        "server",
        "revision",
        "user",
        "owner",
        "state",
        "calls",
        "streams",
        "subscriptions",
        "events",
        "initialized",
        "log_level",
        "client_info",
        "client_capabilities",
        "created",
        "last_seen",
        "expires",
        "terminated_at",
        "end_reason",
    )
    fields = readonly_fields

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SessionChangeList

    @admin.display(description=_("client"))
    def client(self, session: Session) -> str:
        """Return name and version as sent by the client."""
        info = session.client_info if isinstance(session.client_info, dict) else {}
        words = [str(info[name])[:60] for name in ("name", "version") if info.get(name)]
        return " ".join(words) or f"{session.key_prefix}…"

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

    @admin.display(description=_("events"))
    def events(self, session: Session) -> int:
        """Return the number of logged events for this session alone."""
        topics = Q(topic=session_topic(session.pk)) | Q(topic__startswith=call_topic_prefix(session.pk))
        return StreamEvent.objects.filter(topics).count()

    @admin.display(description=_("state"))
    def state(self, session: Session) -> str:
        """Return the state: live, expired, or the reason of the end."""
        if session.terminated_at is not None:
            known = dict(EndReason.choices)
            return str(known.get(session.end_reason, session.end_reason))
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


def _get_activity(session: Session) -> SessionActivity:
    """Return the open calls and streams of a session.

    The change list reads them for all of its rows; the page of one session reads them here.
    """
    attributes = vars(session)
    if "activity" not in attributes:
        attributes["activity"] = get_reported_activity().get(session.pk, SessionActivity())
    activity: SessionActivity = attributes["activity"]
    return activity
