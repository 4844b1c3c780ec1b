"""Local callers: requests from this machine, without a credential.

They are served where the settings allow it.
"""

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.db import Error as DatabaseFailure

from mcp_django.auth.authentication.principal_cache import PrincipalCache, get_generation
from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.principal import DjangoPrincipal, local_principal
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.ports import Executor, Overloaded

logger = get_logger("mcp_django.auth")

LOCAL_USER_KEY: Final = b"local"
"""Cache key of the local user; no digest has this length."""

_HOST = re.compile(rb"(?:localhost|(127\.[0-9.]+)|\[([0-9a-f:.]+)\])(?::[0-9]{1,5})?", re.IGNORECASE)

PROXY_HEADERS: Final = frozenset(
    b"forwarded via x-real-ip x-client-ip client-ip x-cluster-client-ip x-original-host x-original-forwarded-for "
    b"x-forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port x-forwarded-by "
    b"x-forwarded-server x-forwarded-scheme x-forwarded-ssl x-forwarded-prefix x-scheme x-envoy-external-address "
    b"x-azure-clientip x-appengine-user-ip x-amzn-trace-id cf-connecting-ip cf-ray cdn-loop true-client-ip "
    b"fastly-client-ip fly-client-ip tailscale-user-login".split()
)
"""Headers that proxies and tunnels add.

A request with one of them does not come from the peer itself.
"""


class LocalAuthenticator:
    """Authenticator of the local principal, which acts as `username` if given."""

    def __init__(self, username: str | None, *, cache: PrincipalCache, executor: Executor) -> None:
        self._username = username
        self._cache = cache
        self._executor = executor
        self._userless_principal = local_principal() if username is None else None

    def get_cached(self, request: AuthRequest) -> DjangoPrincipal | None:
        """Return the cached principal of a request from this machine, or None."""
        if not is_local(request.headers, request.peer):
            return None
        return self._userless_principal or self._cache.get(LOCAL_USER_KEY)

    async def authenticate(self) -> DjangoPrincipal:
        """Return the principal of a request from this machine.

        Raises:
            AuthError: the user cannot be loaded.
        """
        cached = self._userless_principal or self._cache.get(LOCAL_USER_KEY)
        if cached is not None:
            return cached

        generation = get_generation()
        try:
            user = await self._executor.run(self._load_user)
        except (DatabaseFailure, Overloaded) as problem:
            logger.error("Local user cannot be read: %s", problem)
            user = None
        if user is None:
            raise AuthError("unavailable", "The local user is not available")

        principal = local_principal(user)
        self._cache.add(LOCAL_USER_KEY, principal, generation)
        return principal

    def _load_user(self) -> Any:
        model = get_user_model()
        try:
            user = model._default_manager.get_by_natural_key(self._username)
        except model.DoesNotExist:
            user = None
        if user is None or not user.is_active:
            logger.error('MCP["LOCAL_USER"] is not an active user: %r', self._username)
            return None
        return user


def is_local(headers: Headers, peer: str | None) -> bool:
    """Return True for a loopback `peer` and Host, without a proxy in between.

    A peer that the server does not report (a Unix socket, as behind nginx) is not loopback.
    """
    return (
        peer is not None
        and _is_loopback(peer)
        and _is_loopback_host(headers.wire.get(b"host", b""))
        and PROXY_HEADERS.isdisjoint(headers.wire)
        and (not headers.repeated or b"host" not in headers.repeated)
    )


@lru_cache(256)
def _is_loopback(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed.is_loopback


@lru_cache(256)
def _is_loopback_host(host: bytes) -> bool:
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    address = match[1] or match[2]
    return address is None or _is_loopback(address.decode("ascii"))
