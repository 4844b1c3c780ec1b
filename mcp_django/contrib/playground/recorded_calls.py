"""Links from the pages of recorded calls to the playground, and the arguments of the calls.

This module needs the control room. The playground works without it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from mcp_django import wiring
from mcp_django.contrib.control_room.added_links import AddedLink, LinkSubject, add_links
from mcp_django.contrib.control_room.models import UNKNOWN_NAME, CallLogEntry
from mcp_django.contrib.control_room.recording.entries import ATTEMPT_METHOD
from mcp_django.contrib.playground.links import CALL_PARAMETER, set_call_loader
from mcp_django.contrib.playground.models import Playground
from mcp_django.contrib.playground.principals import ACT_PERMISSION, may_use_playground
from mcp_django.extensions.calls import jsonrpc

MAX_KEY_DIGITS = 18
KINDS_BY_METHOD = {
    "tools/call": "tools",
    ATTEMPT_METHOD: "tools",
    "resources/read": "resources",
    "prompts/get": "prompts",
}
"""Kinds of the playground by the method of a recorded call."""
RECORD_PERMISSIONS = ("mcp_control_room.view_calllogentry", "mcp_control_room.view_call_arguments")
"""Permissions to see the arguments of recorded calls."""


def iter_links(request: HttpRequest, site: admin.AdminSite, subject: LinkSubject) -> Iterator[AddedLink]:
    """Yield the link to the form of a primitive.

    The link of a recorded call leads to a form with its user and its arguments.
    """
    kind = KINDS_BY_METHOD.get(subject.method)
    is_known = kind is not None and subject.name not in ("", UNKNOWN_NAME) and subject.server in wiring.list_aliases()
    if not is_known or not site.is_registered(Playground) or not may_use_playground(request.user):
        return
    query = {"server": subject.server, "kind": str(kind), "name": subject.name}
    entry = subject.entry
    if entry is not None:
        query |= _build_call_query(request, entry, subject.username)
    url = reverse(f"{site.name}:mcp_playground_playground_changelist")
    yield AddedLink(
        f"{url}?{urlencode(query)}", _("Try it") if entry is None else _("Run again in the playground"), "try"
    )


def _build_call_query(request: HttpRequest, entry: CallLogEntry, username: str) -> dict[str, str]:
    query = {}
    if username and request.user.has_perm(ACT_PERMISSION):
        query["as"] = username
    if entry.arguments and request.user.has_perms(RECORD_PERMISSIONS):
        query[CALL_PARAMETER] = str(entry.pk)
    return query


def load_arguments(request: HttpRequest, query: Mapping[str, str], pk: str) -> dict[str, Any] | None:
    """Return the arguments of a recorded call; None if they are gone, or if the user may not see them.

    `query` is that of the entry whose form shows them.
    """
    entry = None
    if pk.isdecimal() and len(pk) <= MAX_KEY_DIGITS and request.user.has_perms(RECORD_PERMISSIONS):
        entry = CallLogEntry.objects.filter(pk=pk, server=query["server"], name=query["name"]).first()
    if entry is None or not entry.arguments or KINDS_BY_METHOD.get(entry.method) != query["kind"]:
        return None
    found: dict[str, Any] = jsonrpc.loads(entry.arguments)
    return found


def register() -> None:
    """Link the pages of the control room to the playground."""
    add_links(iter_links)
    set_call_loader(load_arguments)
