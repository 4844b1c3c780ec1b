"""Asking an issuer about a token (RFC 7662): each answer is trusted for a moment, and no answer is no verdict."""

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
"""Answers that are remembered."""
MOST_ASKED: Final = 100
"""Questions that may be open at once. One more is refused: a flood of tokens must not become one of requests."""


class Introspector:
    """Asks one issuer. Only what it says of active tokens is remembered, by a digest of the token."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._known: dict[bytes, tuple[Mapping[str, Any], float]] = {}
        self._keeping = threading.Lock()
        self._asked = 0

    async def look_up(self, token: str) -> Mapping[str, Any]:
        """What the issuer says of an active token. Raises Malformed for one that is not, Unreachable without a usable
        answer.
        """
        digest = hashlib.sha256(token.encode("ascii")).digest()
        known = self._known.get(digest)
        if known is not None and monotonic() < known[1]:
            return known[0]
        said = MappingProxyType(await self._ask(token))
        if said.get("active") is not True:
            raise Malformed("it is not active")
        if "iss" in said and said["iss"] != self._issuer.issuer:
            raise Malformed("it is another issuer's")
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
            # RFC 6749, section 2.3.1: encoded as in a form before they become a Basic credential.
            basic = quote_plus(issuer.client_id), quote_plus(issuer.client_secret)
        if self._asked >= MOST_ASKED:
            raise Unreachable(f"{MOST_ASKED} questions to it are open")
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
