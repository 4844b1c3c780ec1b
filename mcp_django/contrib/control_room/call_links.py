"""Links from the page of a recorded call: its trace, its tool, its caller and the playground."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from mcp_django import wiring
from mcp_django.contrib.control_room.caller_credentials import REVOKE_PERMISSION, load_credentials
from mcp_django.contrib.control_room.models import UNKNOWN_NAME, CallLogEntry
from mcp_django.contrib.control_room.options import TRACE_ID_FIELD, get_settings
from mcp_django.contrib.control_room.pages.figures import CallTarget
from mcp_django.contrib.control_room.playground.links import CALL_PARAMETER, RECORD_PERMISSIONS, RECORDED_KINDS
from mcp_django.contrib.control_room.playground.principals import (
    ACT_PERMISSION,
    USE_PERMISSION,
    is_playground_enabled,
)


class CallLink(NamedTuple):
    """Link of a page."""

    url: str
    label: Any


def iter_links(request: HttpRequest, site: admin.AdminSite, entry: CallLogEntry, username: str) -> Iterator[CallLink]:
    """Yield the links that the user of the page may follow.

    `username` is the name of the caller, or empty.
    """
    if get_settings().trace_url and entry.trace_id:
        yield CallLink(get_settings().trace_url.replace(TRACE_ID_FIELD, quote(entry.trace_id, safe="")), _("Trace"))
    if request.user.has_perm("mcp_control_room.view_controlroom"):
        query = urlencode(CallTarget(entry.server, entry.method, entry.name)._asdict())
        yield CallLink(f"{_reverse(site, 'controlroom_target')}?{query}", _("Figures"))
    if entry.user_key:
        yield CallLink(
            f"{_reverse(site, 'calllogentry_changelist')}?user_key={quote(entry.user_key)}", _("Calls of the user")
        )
    if request.user.has_perm(REVOKE_PERMISSION) and request.user.has_perm("mcp_control_room.view_controlroom"):
        credential = load_credentials([entry.principal]).get(entry.principal)
        if credential is not None and credential.access is not None:
            yield CallLink(f"{_reverse(site, 'controlroom_revoke')}?{credential.query}", _("Revoke access"))
    if _may_run_again(request, entry):
        query = urlencode(_build_playground_query(request, entry, username))
        yield CallLink(f"{_reverse(site, 'playground_changelist')}?{query}", _("Run again in the playground"))


def _reverse(site: admin.AdminSite, name: str) -> str:
    return reverse(f"{site.name}:mcp_control_room_{name}")


def _may_run_again(request: HttpRequest, entry: CallLogEntry) -> bool:
    is_known = (
        entry.method in RECORDED_KINDS
        and entry.name not in ("", UNKNOWN_NAME)
        and entry.server in wiring.list_aliases()
    )
    return is_known and is_playground_enabled() and request.user.has_perm(USE_PERMISSION)


def _build_playground_query(request: HttpRequest, entry: CallLogEntry, username: str) -> dict[str, str]:
    query = {"server": entry.server, "kind": RECORDED_KINDS[entry.method], "name": entry.name}
    if username and request.user.has_perm(ACT_PERMISSION):
        query["as"] = username
    if entry.arguments and request.user.has_perms(RECORD_PERMISSIONS):
        query[CALL_PARAMETER] = str(entry.pk)
    return query
