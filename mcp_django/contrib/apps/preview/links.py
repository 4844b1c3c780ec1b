"""Links to the preview of an app with the arguments of a call, which are sealed for one user."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.utils.http import urlencode

from mcp_django import conf
from mcp_django.contrib.apps.preview.options import find_preview_link
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.conversations import StateTooLarge
from mcp_django.extensions.errors import InvalidParams
from mcp_django.runtime.sealing import TokenSealer

ARGUMENTS_PARAMETER = "arguments"
MAX_ARGUMENTS_CHARACTERS = 6000
"""Maximum length of sealed arguments. A link without them opens the example."""
LINK_SECONDS = 86_400.0
"""Seconds for which the arguments of a link open."""


@conf.cached
def get_link_sealer() -> TokenSealer:
    """Return the sealer of the arguments in links."""
    return TokenSealer(conf.secret_keys(), purpose="preview link", max_token_bytes=MAX_ARGUMENTS_CHARACTERS)


def build_link(request: HttpRequest, alias: str, tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the URL of the page for a call; None if the user may not open it.

    URLs are in logs and histories, so the server alone can read the arguments.
    """
    found = find_preview_link(request)
    if found is None:
        return None
    query = {"server": alias, "tool": tool}
    try:
        if arguments:
            binding = _build_binding(request, alias, tool)
            query[ARGUMENTS_PARAMETER] = get_link_sealer().seal(dict(arguments), binding, ttl=LINK_SECONDS)
    except StateTooLarge:
        pass
    return f"{found.url}?{urlencode(query)}"


def read_arguments(request: HttpRequest) -> str:
    """Return the arguments of the link that the user followed, as JSON; empty without valid ones."""
    binding = _build_binding(request, request.GET.get("server", ""), request.GET.get("tool", ""))
    try:
        return jsonrpc.dumps(get_link_sealer().unseal(request.GET.get(ARGUMENTS_PARAMETER), binding)).decode()
    except InvalidParams:
        return ""


def _build_binding(request: HttpRequest, alias: str, tool: str) -> bytes:
    return repr([str(request.user.pk), alias, tool]).encode("utf-8", "surrogatepass")
