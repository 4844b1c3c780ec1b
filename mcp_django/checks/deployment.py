"""Is what guards the doors as tight as it looks? With `check --deploy` only: at home it may be loose."""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.core.checks import CheckMessage, Tags, Warning, register

from mcp_django import conf
from mcp_django.conf.options import Rates
from mcp_django.conf.project import cache_backend, trusts_a_proxy

ONE_PROCESS = {
    "django.core.cache.backends.locmem.LocMemCache": "is in memory, so each process counts for itself",
    "django.core.cache.backends.dummy.DummyCache": "keeps nothing",
}
"""Caches of which nothing reaches another process, and what that means."""
LONGEST_TRUST = 11.0
"""Seconds for which a credential may be believed without making what docs/topics/security.md promises a lie: streams
ask every four seconds whether theirs is good, and end within fifteen.
"""


@register(Tags.security, deploy=True)
def check_debug(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """DEBUG opens what is closed otherwise."""
    if not conf.debug() or not conf.is_usable():
        return []
    settings = conf.get_settings()
    loose = []
    if not conf.auth_names():
        loose.append("callers on this machine are served without a credential, as one who may do everything")
    if settings.expose_internal_errors:
        loose.append("the texts of exceptions are sent to clients")
    return [
        Warning(
            f"DEBUG is on, so {what}.",
            hint="Set DEBUG = False where others can reach the project.",
            id="mcp_django.W020",
        )
        for what in loose
    ]


@register(Tags.security, deploy=True)
def check_encryption(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Tokens are bearer tokens: whoever reads one on its way has it (RFC 6750, section 5.2)."""
    if not conf.is_usable():
        return []
    settings, own = conf.get_settings(), conf.origin()
    named = [('MCP["ORIGIN"]', own)] if own is not None and settings.origin == own else []
    named += [('MCP["ALLOWED_ORIGINS"]', origin) for origin in settings.allowed_origins]
    named += [('MCP["CORS_ALLOWED_ORIGINS"]', origin) for origin in settings.cors_allowed_origins]
    for alias, server in settings.servers.items():
        where, issuers = f'MCP["SERVERS"]["{alias}"]', server.authorization_servers or ()
        urls = [("RESOURCE", server.resource), ("RESOURCE_METADATA_URL", server.resource_metadata_url)]
        urls += [("AUTHORIZATION_SERVERS", url) for url in (() if isinstance(issuers, str) else issuers)]
        named += [(f'{where}["{key}"]', url) for key, url in urls if url is not None]
    return [
        Warning(
            f"{where} has {origin}, which is not encrypted: whoever is on the way reads its tokens, or speaks for it.",
            hint="Serve it by https, and name it so.",
            id="mcp_django.W021",
        )
        for where, origin in named
        if _is_in_the_clear(origin)
    ]


@register(Tags.security, deploy=True)
def check_hosts(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """The Host of a request is what tells a page that has rebound its own name from the site (DNS rebinding)."""
    if conf.debug() or "*" not in conf.allowed_hosts():
        return []
    return [
        Warning(
            'ALLOWED_HOSTS has "*", so a page may reach the endpoint by any name that leads there (DNS rebinding).',
            hint="Name the hosts of the project.",
            id="mcp_django.W022",
        )
    ]


@register(Tags.caches, deploy=True)
def check_caches(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """What all processes count, or tell each other, has to be where all of them look."""
    if not conf.is_usable():
        return []
    settings = conf.get_settings()
    found: list[CheckMessage] = []
    if settings.rates != Rates() or apps.is_installed("mcp_django.contrib.oauth"):
        found += _kept_apart(
            settings.rates.cache, "rates are counted", "A rate then is one of each process.", "mcp_django.W023"
        )
    if settings.token_cache is not None:
        told = "Each process then verifies for itself, and the option does nothing."
        found += _kept_apart(settings.token_cache, 'MCP["TOKEN_CACHE"] is', told, "mcp_django.W024")
    return found


def _kept_apart(alias: str, what: str, so: str, id: str) -> Iterable[CheckMessage]:
    backend = cache_backend(alias)
    if backend in ONE_PROCESS:
        yield Warning(
            f'CACHES["{alias}"], where {what}, {ONE_PROCESS[backend]}. {so}',
            hint="With one process there is nothing to do. With several use Redis, Memcached or the database.",
            id=id,
        )


@register(Tags.security, deploy=True)
def check_trust(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """What is revoked should not go on for long."""
    if not conf.is_usable():
        return []
    settings = conf.get_settings()
    longest = max((issuer.introspection_cache for issuer in settings.issuers), default=0.0)
    seconds = settings.token_cache_seconds + longest
    if seconds <= LONGEST_TRUST:
        return []
    named = 'MCP["TOKEN_CACHE_SECONDS"]' + (" with INTROSPECTION_CACHE of an issuer" if longest else "")
    return [
        Warning(
            f"{named} is {seconds:g}: where no signal tells of it, a credential that was revoked is good for so long.",
            hint=f"With {LONGEST_TRUST:g} seconds or less everything that it has opened ends within fifteen.",
            id="mcp_django.W025",
        )
    ]


@register(Tags.security, deploy=True)
def check_proxies(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Behind a proxy the peer is the proxy, for all clients."""
    if not conf.is_usable() or not trusts_a_proxy() or conf.get_settings().rates.num_proxies:
        return []
    return [
        Warning(
            'A proxy stands in front, by SECURE_PROXY_SSL_HEADER or USE_X_FORWARDED_HOST, and MCP["RATES"] has no '
            "NUM_PROXIES, so that all clients are one address for its rates: one of them can use them up for all.",
            hint='Set MCP["RATES"]["NUM_PROXIES"] to the number of your own proxies.',
            id="mcp_django.W026",
        )
    ]


def _is_in_the_clear(origin: str) -> bool:
    parts = urlsplit(origin)
    host = parts.hostname or ""
    local = host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127.")
    return parts.scheme == "http" and not local
