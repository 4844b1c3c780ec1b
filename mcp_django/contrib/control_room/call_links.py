"""Links from the page of a recorded call: its trace, its tool, its caller, and those of other apps."""

from collections.abc import Iterator
from urllib.parse import quote

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.control_room.added_links import AddedLink, LinkSubject, build_links
from mcp_django.contrib.control_room.caller_credentials import REVOKE_PERMISSION, load_credentials
from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.contrib.control_room.options import TRACE_ID_FIELD, get_settings
from mcp_django.contrib.control_room.pages.figures import CallTarget


def iter_links(request: HttpRequest, site: admin.AdminSite, entry: CallLogEntry, username: str) -> Iterator[AddedLink]:
    """Yield the links that the user of the page may follow.

    `username` is the name of the caller, or empty.
    """
    if get_settings().trace_url and entry.trace_id:
        yield AddedLink(get_settings().trace_url.replace(TRACE_ID_FIELD, quote(entry.trace_id, safe="")), _("Trace"))
    if request.user.has_perm("mcp_control_room.view_controlroom"):
        query = urlencode(CallTarget(entry.server, entry.method, entry.name)._asdict())
        yield AddedLink(f"{_reverse(site, 'controlroom_target')}?{query}", _("Figures"))
    if entry.user_key:
        yield AddedLink(
            f"{_reverse(site, 'calllogentry_changelist')}?user_key={quote(entry.user_key)}", _("Calls of the user")
        )
    if request.user.has_perm(REVOKE_PERMISSION) and request.user.has_perm("mcp_control_room.view_controlroom"):
        credential = load_credentials([entry.principal]).get(entry.principal)
        if credential is not None and credential.access is not None:
            yield AddedLink(f"{_reverse(site, 'controlroom_revoke')}?{credential.query}", _("Revoke access"))
    subject = LinkSubject(entry.server, entry.method, entry.name, entry, username)
    yield from build_links(request, site, subject)


def _reverse(site: admin.AdminSite, name: str) -> str:
    return reverse(f"{site.name}:mcp_control_room_{name}")
