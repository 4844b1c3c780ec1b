"""Calls of a service account, for its page and the list of accounts in the admin."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max, Sum
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from mcp_django.admin.accounts.sections import AccountSection, SectionCell, SectionLink
from mcp_django.admin.base import get_admin_url
from mcp_django.contrib.control_room.models import UsageRollup
from mcp_django.contrib.control_room.pages.figures import CallTarget
from mcp_django.contrib.control_room.recording.writer import get_alias

SPAN = timedelta(days=7)
"""Time before now whose calls the section shows."""
MAX_SHOWN_TARGETS = 20


def count_calls(users: Iterable[str], since: datetime) -> Mapping[str, int]:
    """Return the calls of users by their primary keys as texts, from the hour with `since` on."""
    usage = _select_usage(since).filter(user_key__in=list(users)).values("user_key")
    return dict(usage.annotate(calls=Sum("count")).values_list("user_key", "calls"))


def build_section(request: HttpRequest, user: Any) -> AccountSection | None:
    """Return the tools that an account called, with links to its calls."""
    reader: Any = request.user
    may_see_figures = reader.has_perm("mcp_control_room.view_controlroom")
    may_see_calls = reader.has_perm("mcp_control_room.view_calllogentry")
    links = [_build_calls_link(request, user)] if may_see_calls else []
    if not may_see_figures and not links:
        return None
    rows = _load_rows(request, user) if may_see_figures else []
    return AccountSection(
        name="calls",
        title=_("Calls of the last week"),
        columns=(_("Name"), _("Server"), _("Calls"), _("Failed"), _("Last call in the hour from")),
        rows=rows,
        note="" if rows or not may_see_figures else _("No call in this time."),
        links=links,
    )


def _select_usage(since: datetime) -> Any:
    first = since.replace(minute=0, second=0, microsecond=0)
    return UsageRollup.objects.using(get_alias()).filter(start__gte=first).order_by()


def _load_rows(request: HttpRequest, user: Any) -> list[list[SectionCell]]:
    usage = _select_usage(timezone.now() - SPAN).filter(user_key=str(user.pk)).values("server", "method", "name")
    sums = usage.annotate(calls=Sum("count"), failures=Sum("failed"), last=Max("start"))
    return [_build_row(request, found) for found in sums.order_by("-calls", "name")[:MAX_SHOWN_TARGETS]]


def _build_row(request: HttpRequest, found: Mapping[str, Any]) -> list[SectionCell]:
    target = CallTarget(found["server"], found["method"], found["name"])
    url = f"{get_admin_url(request, 'mcp_control_room_controlroom_target')}?span=week&{target.query}"
    return [
        SectionCell(target.label, url),
        SectionCell(target.server),
        SectionCell(number_format(found["calls"])),
        SectionCell(number_format(found["failures"]), css_class="mcp-warning" if found["failures"] else ""),
        SectionCell(date_format(timezone.localtime(found["last"]), "DATETIME_FORMAT")),
    ]


def _build_calls_link(request: HttpRequest, user: Any) -> SectionLink:
    url = get_admin_url(request, "mcp_control_room_calllogentry_changelist")
    return SectionLink(_("Recorded calls"), f"{url}?{urlencode({'user_key__exact': user.pk})}")
