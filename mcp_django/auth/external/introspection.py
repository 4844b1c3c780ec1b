"""Token introspection (RFC 7662), with a short-lived cache of active tokens.

Without a response from the issuer the token is neither accepted nor rejected: verification is unavailable.
"""

import hashlib
import threading
from collections.abc import Mapping
from time import time
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote_plus

from mcp_django.aio.clock import monotonic
from mcp_django.auth.external.http import ProviderUnreachable, fetch_json
from mcp_django.auth.external.strict_json import MalformedInput
from mcp_django.conf.issuers import IssuerSettings

MAX_RESPONSE_BYTES: Final = 64 * 1024
MAX_CACHED_RESPONSES: Final = 4096
"""Maximum number of cached responses."""
MAX_OPEN_REQUESTS: Final = 100
"""Maximum number of concurrent requests.

Further ones fail, so that a flood of tokens does not flood the issuer.
"""


class Introspector:
    """Introspection at one issuer.

    Only responses for active tokens are cached, by a digest of the token.
    """

    def __init__(self, issuer: IssuerSettings) -> None:
        self._issuer = issuer
        self._cache: dict[bytes, tuple[Mapping[str, Any], float]] = {}
        self._lock = threading.Lock()
        self._open_requests = 0

    async def introspect(self, token: str) -> Mapping[str, Any]:
        """Return the issuer's response for an active token.

        Raises:
            MalformedInput: the token is inactive, or belongs to another issuer.
            ProviderUnreachable: no usable response.
        """
        digest = hashlib.sha256(token.encode("ascii")).digest()
        cached = self._cache.get(digest)
        if cached is not None and monotonic() < cached[1]:
            return cached[0]

        response = MappingProxyType(await self._request(token))
        if response.get("active") is not True:
            raise MalformedInput("it is not active")
        if "iss" in response and response["iss"] != self._issuer.issuer:
            raise MalformedInput("it belongs to another issuer")
        self._add_to_cache(digest, response)
        return response

    async def _request(self, token: str) -> dict[str, Any]:
        issuer = self._issuer
        if issuer.introspection_url is None or issuer.client_id is None or issuer.client_secret is None:
            raise ProviderUnreachable("it has no INTROSPECTION_URL")
        form = {"token": token, "token_type_hint": "access_token"}
        basic = None
        if issuer.client_auth == "post":
            form |= {"client_id": issuer.client_id, "client_secret": issuer.client_secret}
        else:
            # RFC 6749, section 2.3.1: form-encode both before they become a Basic credential.
            basic = quote_plus(issuer.client_id), quote_plus(issuer.client_secret)

        if self._open_requests >= MAX_OPEN_REQUESTS:
            raise ProviderUnreachable(f"{MAX_OPEN_REQUESTS} introspection requests to it are open")
        with self._lock:
            self._open_requests += 1
        try:
            return await fetch_json(
                issuer.introspection_url, max_bytes=MAX_RESPONSE_BYTES, ca_file=issuer.ca_file, form=form, basic=basic
            )
        finally:
            with self._lock:
                self._open_requests -= 1

    def _add_to_cache(self, digest: bytes, response: Mapping[str, Any]) -> None:
        seconds = self._issuer.introspection_cache
        expires = response.get("exp")
        if isinstance(expires, int | float):
            seconds = min(seconds, expires - time())
        if seconds <= 0:
            return
        with self._lock:
            self._cache.pop(digest, None)
            while len(self._cache) >= MAX_CACHED_RESPONSES:
                del self._cache[next(iter(self._cache))]
            self._cache[digest] = response, monotonic() + seconds
