"""System checks of authentication: configured credentials and verifiers."""

from collections.abc import Iterator

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Tags, Warning

from mcp_django import conf
from mcp_django.checks.installation import register_check


@register_check(Tags.security)
def check_authentication() -> Iterator[CheckMessage]:
    """Check that AUTH is set before DEBUG is off."""
    if django_settings.DEBUG:
        return

    match conf.auth_names():
        case ():
            yield Warning(
                'MCP["AUTH"] is not set and DEBUG is off, so every MCP request is refused with 403.',
                hint='Set MCP = {"AUTH": "token"} and create tokens with mcp_createtoken, or name a verifier.',
                id="mcp_django.W001",
            )
        case ("none",):
            yield Warning(
                'MCP["AUTH"] is "none" and DEBUG is off: every caller from loopback has all rights.',
                hint='Use "token" behind a proxy on the same machine: all of its clients would have all rights.',
                id="mcp_django.W002",
            )


@register_check(Tags.security)
def check_embedded_server() -> Iterator[CheckMessage]:
    """Check that the embedded authorization server is installed if AUTH names "oauth"."""
    if "oauth" not in conf.auth_names() or apps.is_installed("mcp_django.contrib.oauth"):
        return
    yield Error(
        'MCP["AUTH"] names "oauth", but mcp_django.contrib.oauth, which issues the tokens, is not installed.',
        hint='Add "oauth2_provider" and "mcp_django.contrib.oauth" to INSTALLED_APPS: docs/protect/first-steps.md.',
        id="mcp_django.E034",
    )
