"""Public keys of an issuer: fetched on demand, and cached during outages.

The set is fetched again when it is old, or when a token names an unknown key. It is fetched at most once a minute, so
that a flood of unknown identifiers does not load the issuer. Concurrent callers wait for the same fetch, in any event
loop.
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
"""Seconds after which the set is fetched again.

A key that the issuer removes stays valid for so long.
"""
STALE: Final = 24 * 3600.0
"""Seconds for which cached keys stay valid while the issuer is unreachable."""
EVERY: Final = 60.0
"""Minimum interval between two fetches in seconds."""
MOST_BYTES: Final = 512 * 1024
MOST_KEYS: Final = 100


class NoKeys(Exception):
    """Failure to determine the issuer's keys at the moment."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    keys: tuple[Key, ...]
    at: float


class KeySet:
    """The keys of one issuer. Thread-safe."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._found: _Fetched | None = None
        self._tried = float("-inf")
        self._failed = False
        self._flight: Future[None] | None = None
        self._changing = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Return the only key with this identifier that fits the algorithm, or None.

        Without an identifier the only key that fits the algorithm is returned.

        Raises:
            KeysUnavailable: the keys are unknown, or the issuer is down and the key may be new.
        """
        if not self._is_fresh():
            await self._refetch()
        key = self._known(kid, algorithm)
        if key is None and await self._refetch():
            key = self._known(kid, algorithm)

        if key is None and (self._failed or self._found is None):
            # It may be a new key of an issuer that is down.
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
        """Fetch the set, or wait for a running fetch.

        Return False if the last fetch is less than a minute old.
        """
        with self._changing:
            flight = self._flight
            if flight is None:
                if monotonic() - self._tried < EVERY:
                    return False
                self._tried = monotonic()
                flight = self._flight = Future()
                # A caller that stops waiting must not cancel the fetch for other callers.
                flight.set_running_or_notify_cancel()
                task = asyncio.get_running_loop().create_task(self._fetch(flight))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        try:
            # The loop that fetches may end early: that of one request under WSGI.
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
            why = str(problem) or f"the fetch took more than {TIMEOUT:g} seconds"
            logger.warning("Keys of %s cannot be fetched: %s", self._issuer.issuer, why)
        except asyncio.CancelledError:
            self._tried = float("-inf")  # the loop ended; the issuer may be reachable
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
    """Fetch the issuer's signature keys.

    Raises:
        ProviderUnreachable: no usable key set.
    """
    said = await ask(Ask(url=issuer.jwks_uri or await _discover(issuer), most=MOST_BYTES, ca_file=issuer.ca_file))
    listed = said.get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise Unreachable(f"its response is not a set of at most {MOST_KEYS} keys")
    keys = tuple(key for key in map(load, listed) if key is not None)
    if not keys:
        raise Unreachable("its key set has no public signature key")
    return keys


async def _discover(issuer: Issuer) -> str:
    """Return the URL of the keys from the issuer's discovery document.

    Raises ProviderUnreachable.
    """
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
        raise Unreachable("its discovery document names another issuer")
    uri = document.get("jwks_uri")
    if not isinstance(uri, str) or not is_provider_url(uri, plain=is_loopback_url(url)):
        raise Unreachable("its discovery document names no usable jwks_uri")
    return uri


def well_known(issuer: str) -> Sequence[str]:
    """Return the possible URLs of a discovery document.

    See RFC 8414, section 3.1, and OpenID Connect Discovery 1.0, section 4.
    """
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(places))
