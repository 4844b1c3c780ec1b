"""Callers of a time span: people, tokens and clients, with and without a session."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Count, Max, Q, Sum, Window

from mcp_django.auth.authorization.scopes import PERSONAL_CLIENT_PREFIX
from mcp_django.conf import get_settings
from mcp_django.contrib.control_room.models import OTHER_NAMES, UsageRollup
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.models import PersonalAccessToken, Session
from mcp_django.protocol.display_text import clean_line
from mcp_django.runtime.sessions.activity import ReportedCaller, get_reported_callers

MAX_SHOWN_CALLERS = 50
MAX_CLIENT_CHARACTERS = 60


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
    sessions: list[str] = field(default_factory=list)
    """Names and revisions of the clients with an open session."""

    @property
    def failed_percent(self) -> float:
        """Share of failed calls in percent."""
        return 100 * self.failed / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class CallerList:
    """Callers with the most calls, and the number of all."""

    rows: list[CallerFigures]
    total: int
    since: datetime
    """Start of the first hour. Callers are counted by the hour."""

    @property
    def hidden(self) -> int:
        """Number of callers that are not in the list."""
        return self.total - len(self.rows)


def load_callers(since: datetime, **filters: Any) -> CallerList:
    """Read the callers of all hours from the one with `since`. Runs at most five statements."""
    first = since.replace(minute=0, second=0, microsecond=0)
    usage = UsageRollup.objects.using(get_alias()).filter(start__gte=first, **filters).order_by()
    sums = usage.values("principal", "user_key").annotate(
        calls=Sum("count"),
        failures=Sum("failed"),
        last=Max("start"),
        client_id=Max("client"),
        all_callers=Window(Count("principal", filter=~Q(principal=OTHER_NAMES))),
    )
    found = list(sums.order_by("-calls", "principal")[:MAX_SHOWN_CALLERS])

    users = load_user_names(row["user_key"] for row in found)
    active = _load_active_callers()
    tokens = _load_token_names([row["client_id"] for row in found])
    sessions = _load_sessions([row["principal"] for row in found])
    rows = [
        CallerFigures(
            principal=row["principal"],
            user=users.get(row["user_key"], row["user_key"]),
            client=tokens.get(row["client_id"], row["client_id"]),
            count=row["calls"],
            failed=row["failures"],
            last_hour=row["last"],
            last_active=active[row["principal"]].last_active if row["principal"] in active else None,
            sessions=sessions[row["principal"]],
        )
        for row in found
    ]
    total = max(found[0]["all_callers"], len(rows)) if found else 0
    return CallerList(rows, total, first)


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


def _load_token_names(client_ids: list[str]) -> dict[str, str]:
    """Return the names of personal access tokens by client identifier."""
    keys = [client_id.removeprefix(PERSONAL_CLIENT_PREFIX) for client_id in client_ids]
    pairs = {key: client_id for key, client_id in zip(keys, client_ids, strict=True) if key != client_id}
    numbers = [key for key in pairs if key.isdecimal()]
    names = PersonalAccessToken.objects.filter(pk__in=numbers).values_list("pk", "name")
    return {pairs[str(pk)]: name for pk, name in names}


def _load_sessions(principals: list[str]) -> dict[str, list[str]]:
    live = Session.objects.live(idle=get_settings().limits.session_idle).filter(owner__in=principals)
    found: dict[str, set[str]] = defaultdict(set)
    for owner, info, revision in live.values_list("owner", "client_info", "revision"):
        words = [info.get(name) for name in ("name", "version")] if isinstance(info, dict) else []
        client = clean_line(" ".join(str(word) for word in words if word), MAX_CLIENT_CHARACTERS)
        found[owner].add(f"{client} ({revision})".strip())
    return defaultdict(list, {owner: sorted(names) for owner, names in found.items()})
