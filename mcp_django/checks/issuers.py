"""Can the tokens of the identity providers in `MCP["ISSUERS"]` be of use?"""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register

from mcp_django import conf
from mcp_django.conf.issuers import Issuer
from mcp_django.wiring.external import NEEDED


@register(Tags.security)
def check_issuers(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """AUTH must name what is set up, and tokens must be for something."""
    if not conf.is_usable():
        return []
    settings, names = conf.get_settings(), conf.auth_names()
    found: list[CheckMessage] = list(_of_use(settings.issuers)) if "external" in names else []
    ways = (("ISSUERS", settings.issuers, "external"), ("SESSION_SCOPES", settings.session_scopes, "session"))
    found += [
        Warning(
            f'MCP["{option}"] is set, and MCP["AUTH"] does not name "{way}": it has no effect, and nobody comes in so.',
            hint=f'Add "{way}" to MCP["AUTH"], or take {option} out.',
            id="mcp_django.W041",
        )
        for option, value, way in ways
        if value and way not in names
    ]
    return found


def _of_use(issuers: Sequence[Issuer]) -> Iterator[CheckMessage]:
    if not issuers:
        yield Error(
            'MCP["AUTH"] names "external", and MCP["ISSUERS"] names no identity provider.',
            hint="Describe it there: docs/howto/identity-provider.md.",
            id="mcp_django.E040",
        )
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        yield Error(
            f'MCP["AUTH"] names "external", which takes what is not installed: {", ".join(missing)}.',
            hint="pip install 'mcp-django-channels[external]'",
            id="mcp_django.E041",
        )
    for issuer in issuers:
        unnamed = [alias for alias in _without_url() if not issuer.audiences.keys() & {"", alias}]
        if unnamed:
            yield Warning(
                f"No token of {issuer.issuer} can be meant for {', '.join(map(repr, unnamed))}: the URL of the server "
                "is not known, and AUDIENCES names nothing for it.",
                hint='Set MCP["ORIGIN"], such as "https://example.com", or AUDIENCES.',
                id="mcp_django.W040",
            )
        strange = sorted(issuer.audiences.keys() - conf.servers().keys() - {""})
        if strange:
            yield Warning(
                f"AUDIENCES of {issuer.issuer} names {', '.join(map(repr, strange))}, which is no server.",
                hint="Where it is the audience of a BearerAuthentication of yours, silence this.",
                id="mcp_django.W042",
            )


def _without_url() -> list[str]:
    if conf.origin() is not None:
        return []
    return [alias for alias, server in conf.servers().items() if server.resource is None]
