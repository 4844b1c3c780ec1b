"""Has somebody decided who may call?"""

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from mcp_django import conf


@register(Tags.security)
def check_authentication(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Who may call should have been decided before DEBUG is off."""
    if conf.debug() or not conf.is_usable():
        return []
    match conf.auth_names():
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


@register(Tags.security)
def check_embedded_server(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Tokens of the embedded authorization server take that server."""
    if not conf.is_usable() or "oauth" not in conf.auth_names() or apps.is_installed("mcp_django.contrib.oauth"):
        return []
    return [
        Error(
            'MCP["AUTH"] names "oauth", and mcp_django.contrib.oauth, which makes these tokens, is not installed.',
            hint='Add "oauth2_provider" and "mcp_django.contrib.oauth" to INSTALLED_APPS: '
            "docs/howto/protect-a-project.md.",
            id="mcp_django.E034",
        )
    ]
