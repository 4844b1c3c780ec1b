"""Runs of the playground: the request of a form, its confirmation, and what came back.

The server keeps no state between two of them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.utils.translation import gettext as _

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.conf import get_settings
from mcp_django.contrib.control_room.pages.room import log_act
from mcp_django.contrib.control_room.playground.content_blocks import list_blocks
from mcp_django.contrib.control_room.playground.copies import build_copies
from mcp_django.contrib.control_room.playground.messages import build_request, format_json, send
from mcp_django.contrib.control_room.playground.primitives import Kind, ListedPrimitive

SHOW = "show"
"""Value of `act` of a form that shows its message, and sends nothing."""


class RunTarget(NamedTuple):
    """Primitive of a server, and the principal who uses it."""

    alias: str
    principal: DjangoPrincipal
    kind: Kind
    entry: ListedPrimitive


def build_run_context(request: HttpRequest, target: RunTarget, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message of a form and its copies for the page. Send the message, unless it is shown only."""
    alias, principal, kind, entry = target
    message = build_request(kind.method, entry.build_params(arguments))
    username = principal.user.get_username()
    url = request.build_absolute_uri("/" + get_settings().servers[alias].path.lstrip("/"))
    context: dict[str, Any] = {
        "arguments": format_json(arguments),
        "message": format_json(message),
        "copies": build_copies(url, alias, username, message),
    }
    if request.POST.get("act") == SHOW:
        return context
    if entry.may_write and request.POST.get("confirmed") != "on":
        return context | {"error": _("This tool may write. Tick the box to run it.")}

    log_act(request, f"{kind.method} {entry.key} ({alias})", f"Sent in the playground as {username}.")
    exchange = send(alias, principal, message)
    blocks = [] if exchange.result is None else list_blocks(exchange.result)
    return context | {"exchange": exchange, "blocks": blocks}
