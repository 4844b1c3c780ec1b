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
from mcp_django.auth.external.http import Ask, Unreachable, ask
from mcp_django.auth.external.strict_json import Malformed
from mcp_django.conf.issuers import Issuer

MOST_BYTES: Final = 64 * 1024
MOST_KNOWN: Final = 4096
"""Maximum number of cached responses."""
MOST_ASKED: Final = 100
"""Maximum number of concurrent requests.

Further ones fail, so that a flood of tokens does not flood the issuer.
"""


class Introspector:
    """Introspection at one issuer.

    Only responses for active tokens are cached, by a digest of the token.
    """

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._known: dict[bytes, tuple[Mapping[str, Any], float]] = {}
        self._keeping = threading.Lock()
        self._asked = 0

    async def look_up(self, token: str) -> Mapping[str, Any]:
        """Return the issuer's response for an active token.

        Raises:
            MalformedInput: the token is inactive, or belongs to another issuer.
            ProviderUnreachable: no usable response.
        """
        digest = hashlib.sha256(token.encode("ascii")).digest()
        known = self._known.get(digest)
        if known is not None and monotonic() < known[1]:
            return known[0]

        said = MappingProxyType(await self._ask(token))
        if said.get("active") is not True:
            raise Malformed("it is not active")
        if "iss" in said and said["iss"] != self._issuer.issuer:
            raise Malformed("it belongs to another issuer")
        self._keep(digest, said)
        return said

    async def _ask(self, token: str) -> dict[str, Any]:
        issuer = self._issuer
        if issuer.introspection_url is None or issuer.client_id is None or issuer.client_secret is None:
            raise Unreachable("it has no INTROSPECTION_URL")
        form = {"token": token, "token_type_hint": "access_token"}
        basic = None
        if issuer.client_auth == "post":
            form |= {"client_id": issuer.client_id, "client_secret": issuer.client_secret}
        else:
            # RFC 6749, section 2.3.1: form-encode both before they become a Basic credential.
            basic = quote_plus(issuer.client_id), quote_plus(issuer.client_secret)

        if self._asked >= MOST_ASKED:
            raise Unreachable(f"{MOST_ASKED} introspection requests to it are open")
        with self._keeping:
            self._asked += 1
        try:
            what = Ask(url=issuer.introspection_url, most=MOST_BYTES, ca_file=issuer.ca_file, form=form, basic=basic)
            return await ask(what)
        finally:
            with self._keeping:
                self._asked -= 1

    def _keep(self, digest: bytes, said: Mapping[str, Any]) -> None:
        seconds = self._issuer.introspection_cache
        expires = said.get("exp")
        if isinstance(expires, int | float):
            seconds = min(seconds, expires - time())
        if seconds <= 0:
            return
        with self._keeping:
            self._known.pop(digest, None)
            while len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[digest] = said, monotonic() + seconds
