"""Callers of a time span: people, tokens and clients, with and without a session."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Count, Max, Q, QuerySet, Sum, Window

from mcp_django.conf import get_settings
from mcp_django.contrib.control_room.caller_credentials import CallerCredential, load_credentials
from mcp_django.contrib.control_room.models import OTHER_NAMES, UsageRollup
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.models import ResourceSubscription, Session
from mcp_django.protocol.display_text import clean_line
from mcp_django.runtime.sessions.activity import ReportedCaller, get_reported_activity, get_reported_callers

MAX_SHOWN_CALLERS = 50
MAX_SHOWN_SESSIONS = 5
"""Open sessions that a caller's row names."""
MAX_CLIENT_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Session that a caller has open."""

    pk: int
    client: str
    """Name and version of the client, and the revision."""


@dataclass(slots=True)
class CallerFigures:
    """Calls of one caller."""

    principal: str
    user: str
    """Name of the user; empty without one."""
    client: str
    """Name of the token, or identifier of the client."""
    count: int
    failed: int
    last_hour: datetime
    """Start of the last hour with a call."""
    last_active: datetime | None
    """Time of the last call of the last minutes; None if there was none."""
    credential: CallerCredential | None = None
    """Credential of the caller, if it still exists."""
    sessions: list[OpenSession] = field(default_factory=list)
    """Open sessions, the latest first."""

    @property
    def failed_percent(self) -> float:
        """Share of failed calls in percent."""
        return 100 * self.failed / self.count if self.count else 0.0

    @property
    def shown_sessions(self) -> list[OpenSession]:
        """Open sessions that the row names."""
        return self.sessions[:MAX_SHOWN_SESSIONS]

    @property
    def hidden_sessions(self) -> int:
        """Number of further open sessions."""
        return len(self.sessions) - len(self.shown_sessions)


@dataclass(frozen=True, slots=True)
class CallerList:
    """Callers with the most calls, and the number of all."""

    rows: list[CallerFigures]
    total: int
    with_session: int
    """Number of callers that have a session open now."""
    since: datetime
    """Start of the first hour. Callers are counted by the hour."""

    @property
    def hidden(self) -> int:
        """Number of callers that are not in the list."""
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """Open streams and subscriptions of the sessions, in all processes."""

    streams: int
    """Number of open streams that belong to a session and to no call, some seconds old."""
    subscriptions: int
    """Number of resources to which open sessions are subscribed."""


def load_callers(since: datetime, **filters: Any) -> CallerList:
    """Read the callers of all hours from the one with `since`. Runs at most seven statements."""
    first = since.replace(minute=0, second=0, microsecond=0)
    usage = UsageRollup.objects.using(get_alias()).filter(start__gte=first, **filters).order_by()
    is_caller = ~Q(principal=OTHER_NAMES)
    has_session = Q(principal__in=_find_session_owners())
    sums = usage.values("principal", "user_key").annotate(
        calls=Sum("count"),
        failures=Sum("failed"),
        last=Max("start"),
        client_id=Max("client"),
        all_callers=Window(Count("principal", filter=is_caller)),
        callers_with_session=Window(Count("principal", filter=is_caller & has_session)),
    )
    found = list(sums.order_by("-calls", "principal")[:MAX_SHOWN_CALLERS])

    users = load_user_names(row["user_key"] for row in found)
    active = _load_active_callers()
    credentials = load_credentials(row["principal"] for row in found)
    sessions = _load_sessions([row["principal"] for row in found])
    rows = [
        CallerFigures(
            principal=row["principal"],
            user=users.get(row["user_key"], row["user_key"]),
            client=credentials[row["principal"]].name if row["principal"] in credentials else row["client_id"],
            count=row["calls"],
            failed=row["failures"],
            last_hour=row["last"],
            last_active=active[row["principal"]].last_active if row["principal"] in active else None,
            credential=credentials.get(row["principal"]),
            sessions=sessions[row["principal"]],
        )
        for row in found
    ]
    total = max(found[0]["all_callers"], len(rows)) if found else 0
    return CallerList(rows, total, found[0]["callers_with_session"] if found else 0, first)


def load_stream_counts(server: str = "") -> StreamCounts:
    """Read the open streams and subscriptions of sessions, on all servers or on one.

    Runs at most three statements. Streams of the stateless era belong to no session; `load_streams` reads them.
    """
    live = _get_live_sessions()
    activity = get_reported_activity()
    if server:
        live = live.filter(server=server)
        own = set(live.filter(pk__in=list(activity)).values_list("pk", flat=True)) if activity else set()
        activity = {pk: each for pk, each in activity.items() if pk in own}
    return StreamCounts(
        sum(each.streams for each in activity.values()), ResourceSubscription.objects.filter(session__in=live).count()
    )


def load_user_names(user_keys: Iterable[str]) -> dict[str, str]:
    """Return the names of users by their primary keys as text. Runs one statement.

    Keys of deleted users are missing in the result.
    """
    model = get_user_model()
    keys = []
    for key in set(user_keys) - {""}:
        try:
            keys.append(model._meta.pk.to_python(key))
        except ValidationError:
            continue  # a key of another user model
    if not keys:
        return {}
    return {str(user.pk): user.get_username() for user in model._default_manager.filter(pk__in=keys)}


def _load_active_callers() -> dict[str, ReportedCaller]:
    latest: dict[str, ReportedCaller] = {}
    for caller in get_reported_callers():
        latest.setdefault(caller.key, caller)
    return latest


def _get_live_sessions() -> "QuerySet[Session]":
    return Session.objects.live(idle=get_settings().limits.session_idle)


def _find_session_owners() -> Any:
    """Return the owners of open sessions, for a lookup in the database of the counts."""
    owners = _get_live_sessions().order_by().values_list("owner", flat=True)
    # Owners in another database come as values.
    return owners if owners.db == UsageRollup.objects.using(get_alias()).db else list(owners.distinct())


def _load_sessions(principals: list[str]) -> dict[str, list[OpenSession]]:
    live = _get_live_sessions().filter(owner__in=principals).order_by("-last_seen", "-pk")
    found: dict[str, list[OpenSession]] = defaultdict(list)
    for pk, owner, info, revision in live.values_list("pk", "owner", "client_info", "revision"):
        words = [info.get(name) for name in ("name", "version")] if isinstance(info, dict) else []
        client = clean_line(" ".join(str(word) for word in words if word), MAX_CLIENT_CHARACTERS)
        found[owner].append(OpenSession(pk, f"{client} ({revision})".strip()))
    return found
