"""Has somebody decided who may call?"""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register

from .. import conf


@register(Tags.security)
def check_authentication(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Who may call should have been decided before DEBUG is off."""
    if conf.debug() or not conf.is_usable():
        return []
    match conf.get_settings().auth:
        case ():
            return [
                Warning(
                    'MCP["AUTH"] is not set and DEBUG is off, so every MCP request is refused with 403.',
                    hint='Set MCP = {"AUTH": "token"} and make tokens with mcp_createtoken, or name a verifier.',
                    id="mcp_django.W001",
                )
            ]
        case ("none",):
            return [
                Warning(
                    'MCP["AUTH"] is "none" and DEBUG is off: whoever reaches this server from loopback has all rights.',
                    hint='Behind a proxy on the same machine that hides its clients this is everybody; use "token".',
                    id="mcp_django.W002",
                )
            ]
    return []
