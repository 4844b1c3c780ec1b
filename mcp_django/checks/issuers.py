"""System checks of identity providers in `MCP["ISSUERS"]`."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from django.core.checks import CheckMessage, Error, Tags, Warning

from mcp_django import conf
from mcp_django.checks.installation import register_check
from mcp_django.conf.issuers import IssuerSettings
from mcp_django.wiring.authentication import REQUIRED_PACKAGES


@register_check(Tags.security)
def check_issuers() -> Iterator[CheckMessage]:
    """Check that AUTH enables the configured issuers, and that tokens fit a server."""
    settings, names = conf.get_settings(), conf.auth_names()
    if "external" in names:
        yield from _check_issuer_use(settings.issuers)
    ways = (("ISSUERS", settings.issuers, "external"), ("SESSION_SCOPES", settings.session_scopes, "session"))
    for option, value, way in ways:
        if value and way not in names:
            yield Warning(
                f'MCP["{option}"] is set, but MCP["AUTH"] does not name "{way}", so the option has no effect.',
                hint=f'Add "{way}" to MCP["AUTH"], or remove {option}.',
                id="mcp_django.W041",
            )


def _check_issuer_use(issuers: Sequence[IssuerSettings]) -> Iterator[CheckMessage]:
    if not issuers:
        yield Error(
            'MCP["AUTH"] names "external", but MCP["ISSUERS"] is empty.',
            hint="Add the identity provider: docs/protect/identity-provider.md.",
            id="mcp_django.E040",
        )

    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        yield Error(
            f'MCP["AUTH"] names "external", but required packages are not installed: {", ".join(missing)}.',
            hint="pip install 'mcp-django-channels[external]'",
            id="mcp_django.E041",
        )

    for issuer in issuers:
        unnamed = [alias for alias in _find_servers_without_url() if not issuer.audiences.keys() & {"", alias}]
        if unnamed:
            yield Warning(
                f"No token of {issuer.issuer} is valid for {', '.join(map(repr, unnamed))}: the URL of the server "
                "is unknown, and AUDIENCES has no entry for it.",
                hint='Set MCP["ORIGIN"], such as "https://example.com", or AUDIENCES.',
                id="mcp_django.W040",
            )
        strange = sorted(issuer.audiences.keys() - conf.servers().keys() - {""})
        if strange:
            yield Warning(
                f"AUDIENCES of {issuer.issuer} names {', '.join(map(repr, strange))}, which is not a server.",
                hint="If it is the audience of a BearerAuthentication, silence this check.",
                id="mcp_django.W042",
            )


def _find_servers_without_url() -> list[str]:
    if conf.origin() is not None:
        return []
    return [alias for alias, server in conf.servers().items() if server.resource is None]
