"""System checks of deployment security, with `check --deploy` only."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Tags, Warning

from mcp_django import conf
from mcp_django.checks.installation import register_check
from mcp_django.conf.options import Rates
from mcp_django.conf.project import cache_backend, has_trusted_proxy

PER_PROCESS_CACHES = {
    "django.core.cache.backends.locmem.LocMemCache": "is in memory, so each process has its own",
    "django.core.cache.backends.dummy.DummyCache": "stores nothing",
}
"""Cache backends that processes do not share, and the consequence of each."""
MAX_TRUST_SECONDS = 11.0
"""Longest allowed trust in a cached credential, in seconds.

docs/protect/security.md promises that streams end within fifteen seconds of a revocation. Streams check their
credential every four seconds.
"""


@register_check(Tags.security, deploy=True)
def check_debug() -> Iterator[CheckMessage]:
    """Check that DEBUG is off, because it relaxes authentication and error messages."""
    if not django_settings.DEBUG:
        return

    settings = conf.get_settings()
    exposures = []
    if not conf.auth_names():
        exposures.append("callers on this machine are served without a credential, with all rights")
    if settings.expose_internal_errors:
        exposures.append("texts of exceptions are sent to clients")

    for exposure in exposures:
        yield Warning(
            f"DEBUG is on, so {exposure}.",
            hint="Set DEBUG = False where other machines can reach the project.",
            id="mcp_django.W020",
        )


@register_check(Tags.security, deploy=True)
def check_encryption() -> Iterator[CheckMessage]:
    """Check that URLs use https.

    Anyone who reads a bearer token can use it (RFC 6750, section 5.2).
    """
    settings, own = conf.get_settings(), conf.origin()
    named = [('MCP["ORIGIN"]', own)] if own is not None and settings.origin == own else []
    named += [('MCP["ALLOWED_ORIGINS"]', origin) for origin in settings.allowed_origins]
    named += [('MCP["CORS_ALLOWED_ORIGINS"]', origin) for origin in settings.cors_allowed_origins]
    for alias, server in settings.servers.items():
        where, issuers = f'MCP["SERVERS"]["{alias}"]', server.authorization_servers or ()
        urls = [("RESOURCE", server.resource), ("RESOURCE_METADATA_URL", server.resource_metadata_url)]
        urls += [("AUTHORIZATION_SERVERS", url) for url in (() if isinstance(issuers, str) else issuers)]
        named += [(f'{where}["{key}"]', url) for key, url in urls if url is not None]

    for where, origin in named:
        if _is_unencrypted(origin):
            yield Warning(
                f"{where} has {origin}, which is not encrypted: network nodes can read tokens, or impersonate the "
                "server.",
                hint="Serve it over https, and write the https URL.",
                id="mcp_django.W021",
            )


@register_check(Tags.security, deploy=True, reads_settings=False)
def check_hosts() -> Iterator[CheckMessage]:
    """Check that ALLOWED_HOSTS is restricted, which protects from DNS rebinding."""
    if django_settings.DEBUG or "*" not in conf.allowed_hosts():
        return
    yield Warning(
        'ALLOWED_HOSTS has "*", so a page can reach the endpoint by any host name (DNS rebinding).',
        hint="List the hosts of the project.",
        id="mcp_django.W022",
    )


@register_check(Tags.caches, deploy=True)
def check_caches() -> Iterator[CheckMessage]:
    """Check that all processes share the caches of rates and of verified principals."""
    settings = conf.get_settings()
    if settings.rates != Rates() or apps.is_installed("mcp_django.contrib.oauth"):
        yield from _check_cache_is_shared(
            settings.rates.cache, "rates are counted", "Each process then has its own count.", "mcp_django.W023"
        )
    if settings.token_cache is not None:
        consequence = 'Each process then verifies tokens itself, and MCP["TOKEN_CACHE"] has no effect.'
        yield from _check_cache_is_shared(
            settings.token_cache, "verified principals are cached", consequence, "mcp_django.W024"
        )


def _check_cache_is_shared(alias: str, use: str, consequence: str, id: str) -> Iterator[CheckMessage]:
    backend = cache_backend(alias)
    if backend in PER_PROCESS_CACHES:
        yield Warning(
            f'CACHES["{alias}"], where {use}, {PER_PROCESS_CACHES[backend]}. {consequence}',
            hint="With a single process, ignore this. With several, use Redis, Memcached or the database.",
            id=id,
        )


@register_check(Tags.security, deploy=True)
def check_trust() -> Iterator[CheckMessage]:
    """Check that revoked credentials are rejected soon."""
    settings = conf.get_settings()
    longest = max((issuer.introspection_cache for issuer in settings.issuers), default=0.0)
    seconds = settings.token_cache_seconds + longest
    if seconds <= MAX_TRUST_SECONDS:
        return

    named = 'MCP["TOKEN_CACHE_SECONDS"]' + (" with INTROSPECTION_CACHE of an issuer" if longest else "")
    yield Warning(
        f"{named} is {seconds:g}: a revoked credential may stay valid for so many seconds if no signal reports it.",
        hint=f"With {MAX_TRUST_SECONDS:g} seconds or less its streams and connections end within fifteen seconds.",
        id="mcp_django.W025",
    )


@register_check(Tags.security, deploy=True)
def check_proxies() -> Iterator[CheckMessage]:
    """Check that NUM_PROXIES is set behind a proxy.

    Without it all clients have the address of the proxy.
    """
    if not has_trusted_proxy() or conf.get_settings().rates.num_proxies:
        return
    yield Warning(
        'SECURE_PROXY_SSL_HEADER or USE_X_FORWARDED_HOST trusts a proxy, but MCP["RATES"] has no '
        "NUM_PROXIES. All clients share the address of the proxy, so one client can exhaust the rates of all.",
        hint='Set MCP["RATES"]["NUM_PROXIES"] to the number of your own proxies.',
        id="mcp_django.W026",
    )


def _is_unencrypted(origin: str) -> bool:
    parts = urlsplit(origin)
    host = parts.hostname or ""
    local = host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127.")
    return parts.scheme == "http" and not local
