"""The public keys of an issuer: fetched when needed, looked up by name, and kept for the time the issuer is down.

The set is fetched again when it is old, and when a token names a key that is not in it; at most once a minute, so that
a flood of names costs the issuer nothing. Whoever comes meanwhile waits for the same fetch, in whatever event loop.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from mcp_django.aio.clock import monotonic
from mcp_django.auth.external.http import TIMEOUT, Ask, Unreachable, ask
from mcp_django.auth.external.jws import Key, load
from mcp_django.conf.issuers import Issuer, is_loopback_url, is_provider_url

logger = logging.getLogger("mcp_django.auth")

FRESH: Final = 10 * 60.0
"""Seconds after which the set is fetched again: how long a key that the issuer takes away may go on."""
STALE: Final = 24 * 3600.0
"""Seconds for which the keys are good while the issuer cannot be reached."""
EVERY: Final = 60.0
"""Seconds between two fetches at least."""
MOST_BYTES: Final = 512 * 1024
MOST_KEYS: Final = 100


class NoKeys(Exception):
    """Nobody can say at the moment which keys the issuer has."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    keys: tuple[Key, ...]
    at: float


class KeySet:
    """The keys of one issuer."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._found: _Fetched | None = None
        self._tried = float("-inf")
        self._failed = False
        self._flight: Future[None] | None = None
        self._changing = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The one key of that name which fits the algorithm; without a name, the only one which fits. None when there
        is none, or more than one. Raises NoKeys.
        """
        if not self._is_fresh():
            await self._refetch()
        key = self._known(kid, algorithm)
        if key is None and await self._refetch():
            key = self._known(kid, algorithm)
        if key is None and (self._failed or self._found is None):
            # It may be a new key, of which an issuer that is down cannot tell.
            raise NoKeys
        return key

    def _is_fresh(self) -> bool:
        return self._found is not None and monotonic() - self._found.at < FRESH

    def _known(self, kid: str | None, algorithm: str) -> Key | None:
        found = self._found
        if found is None or monotonic() - found.at >= STALE:
            return None
        fitting = [key for key in found.keys if (kid is None or key.kid == kid) and key.fits(algorithm)]
        return fitting[0] if len(fitting) == 1 else None

    async def _refetch(self) -> bool:
        """Fetch the set, or wait for whoever does. False when it was tried less than a minute ago."""
        with self._changing:
            flight = self._flight
            if flight is None:
                if monotonic() - self._tried < EVERY:
                    return False
                self._tried = monotonic()
                flight = self._flight = Future()
                # Whoever stops waiting must not cancel it for the others.
                flight.set_running_or_notify_cancel()
                task = asyncio.get_running_loop().create_task(self._fetch(flight))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        try:
            # The loop that fetches may end before it is done: that of one request under WSGI.
            async with asyncio.timeout(TIMEOUT + 1):
                await asyncio.wrap_future(flight)
        except TimeoutError:
            self._land(flight, failed=True)
        return True

    async def _fetch(self, flight: "Future[None]") -> None:
        failed = True
        try:
            async with asyncio.timeout(TIMEOUT):
                keys = await fetch_keys(self._issuer)
            self._found, failed = _Fetched(keys, monotonic()), False
        except (Unreachable, TimeoutError) as problem:
            why = str(problem) or f"all of it took more than {TIMEOUT:g} seconds"
            logger.warning("The keys of %s cannot be fetched: %s", self._issuer.issuer, why)
        except asyncio.CancelledError:
            self._tried = float("-inf")  # the loop ends; that says nothing about the issuer
            raise
        finally:
            self._land(flight, failed=failed)

    def _land(self, flight: "Future[None]", *, failed: bool) -> None:
        with self._changing:
            if self._flight is not flight:
                return
            self._failed, self._flight = failed, None
        flight.set_result(None)


async def fetch_keys(issuer: Issuer) -> tuple[Key, ...]:
    """The keys for signatures in the issuer's set. Raises Unreachable."""
    said = await ask(Ask(url=issuer.jwks_uri or await _discover(issuer), most=MOST_BYTES, ca_file=issuer.ca_file))
    listed = said.get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise Unreachable(f"its answer is no set of at most {MOST_KEYS} keys")
    keys = tuple(key for key in map(load, listed) if key is not None)
    if not keys:
        raise Unreachable("its set has no public key for signatures")
    return keys


async def _discover(issuer: Issuer) -> str:
    """Where the keys are, as the issuer's own document says. Raises Unreachable."""
    last: Unreachable | None = None
    for url in [issuer.discovery] if issuer.discovery else well_known(issuer.issuer):
        try:
            return _jwks_uri(issuer, url, await ask(Ask(url=url, most=MOST_BYTES, ca_file=issuer.ca_file)))
        except Unreachable as problem:
            last = problem
    raise last or Unreachable("it has no discovery document")


def _jwks_uri(issuer: Issuer, url: str, document: dict[str, Any]) -> str:
    if document.get("issuer") != issuer.issuer:
        # RFC 8414, section 3.3: another name is another issuer.
        raise Unreachable("its discovery document is that of another issuer")
    uri = document.get("jwks_uri")
    if not isinstance(uri, str) or not is_provider_url(uri, plain=is_loopback_url(url)):
        raise Unreachable("its discovery document names no usable jwks_uri")
    return uri


def well_known(issuer: str) -> Sequence[str]:
    """Where an issuer's discovery document may be (RFC 8414, section 3.1; OpenID Connect Discovery 1.0, section 4)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(places))
