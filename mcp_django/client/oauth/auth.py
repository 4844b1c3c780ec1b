"""Authentication of requests to another server.

`create_auth` creates it from the settings, for one user or the project. A token is stored in a row shared by all
workers (`token_store`). It is renewed when it expires or the server rejects it. Where a person is required,
AuthorizationNeeded is raised immediately. A token is only sent to the server of its row.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from django.db import DatabaseError
from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.aio.clock import monotonic
from mcp_django.client.errors import AuthorizationNeeded, ClientConnectionError
from mcp_django.client.oauth import token_endpoint
from mcp_django.client.oauth.client_credentials import obtain
from mcp_django.client.oauth.discovery import Challenge, all_scopes
from mcp_django.client.oauth.http import PORTS, AuthorizationFailed, Outgoing, web_url
from mcp_django.client.oauth.token_endpoint import GrantLost
from mcp_django.client.oauth.token_store import LEASE, Grant, TokenRow, in_thread
from mcp_django.conf.clients import ClientAuth, ClientSettings

logger = logging.getLogger("mcp_django.client")
PATIENCE: Final = LEASE + 10
"""Seconds to wait for another worker that renews the tokens."""
LOOK: Final = 0.1
"""Seconds between checks of that worker's progress."""
PAUSES: Final = (0.1, 0.5, 2.0)
"""Seconds between attempts to store new tokens."""


def auth_for(settings: ClientSettings, user: Any = None, *, outgoing: Outgoing | None = None) -> httpx2.Auth | None:
    """Return the authentication for requests to the server of `settings`.

    Returns None without AUTH. `user` owns the credential where AUTH is per user, and is ignored otherwise. The result
    belongs to one event loop. Raises AuthorizationNeeded if a required user is missing. The flow of the result raises
    AuthorizationNeeded if a person must authorize the server first, and ClientConnectionError if a token is temporarily
    unavailable.
    """
    auth = settings.auth
    if auth is None or settings.url is None:
        return None
    if auth.per_user and (user is None or user.pk is None):
        raise AuthorizationNeeded(f"{settings.alias} is used per user; pass a user", settings.alias)
    owner = user if auth.per_user else None
    if auth.type == "bearer":
        return BearerAuth(settings, auth, owner)
    return TokenAuth(settings, owner, outgoing or Outgoing(settings.url))


def connect_path(settings: ClientSettings) -> str | None:
    """Return the path of the page to authorize a server.

    Returns None if the site does not include these pages.
    """
    if settings.auth is None or settings.auth.type != "oauth":
        return None
    try:
        path = reverse("mcp_clients:connect", kwargs={"alias": settings.alias})
    except NoReverseMatch:
        return None
    # Threads without a request have no script prefix.
    prefix = conf.force_script_name().rstrip("/")
    return path if path.startswith(f"{prefix}/") else prefix + path


class BearerAuth(httpx2.Auth):
    """A token from the settings, or from a function named there."""

    def __init__(self, settings: ClientSettings, auth: ClientAuth, user: Any) -> None:
        self._alias, self._own, self._user = settings.alias, _origin(web_url(settings.url or "")), user
        self._function = None if auth.token_function is None else import_string(auth.token_function)
        self._token = auth.token

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token; if the server rejects it, call the token function once more."""
        if _origin(str(request.url)) != self._own:
            yield request
            return
        shown = self._token or await self._ask()
        _show(request, shown)
        response = yield request
        if response.status_code != 401 or self._function is None:
            return
        token = await self._ask()
        if token != shown:
            _show(request, token)
            yield request

    async def _ask(self) -> str:
        found: Any = None
        if self._function is not None:
            try:
                found = await in_thread(self._function, self._user)
                if asyncio.iscoroutine(found):
                    found = await found
            except Exception:
                logger.exception("TOKEN_FUNCTION of %s failed", self._alias)
                raise ClientConnectionError(f"The token for {self._alias} is temporarily unavailable") from None
        if not isinstance(found, str) or not found.isascii() or not found.isprintable() or not found:
            self._token = None
            raise AuthorizationNeeded(f"No token for {self._alias}", self._alias)
        self._token = found
        return found


class TokenAuth(httpx2.Auth):
    """A token of an authorization server, from the row of `owner`."""

    def __init__(self, settings: ClientSettings, owner: Any, outgoing: Outgoing) -> None:
        self._settings, self._outgoing = settings, outgoing
        self._url = web_url(settings.url or "")
        self._own = _origin(self._url)
        self.row = TokenRow(settings, owner)
        self._grant: Grant | None = None
        self._generation = -1
        self._looked = 0.0
        self._renewal: asyncio.Task[Grant] | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token; if the server rejects it, renew it once."""
        if _origin(str(request.url)) != self._own:
            yield request  # request to another origin: sent without the token
            return
        grant = await self.usable()
        _show(request, grant.access_token)
        response = yield request
        challenge = Challenge.of(response)
        if challenge is None:
            return

        if not challenge.insufficient:
            grant = await self._renewed(grant, challenge)
            _show(request, grant.access_token)
            response = yield request
            challenge = Challenge.of(response)
            if challenge is None:
                return

        wanted = all_scopes(grant.scope, challenge.scopes)
        if wanted and wanted != grant.scope:
            await in_thread(self.row.want, wanted)
            raise self._needed("needs authorization for more scopes")
        raise self._needed("rejects its token")

    async def usable(self) -> Grant:
        """Return unexpired tokens. Raises AuthorizationNeeded, ClientConnectionError."""
        grant = self._grant
        if grant is None or monotonic() - self._looked >= conf.get_settings().token_cache_seconds:
            try:
                grant = await self._look()
            except DatabaseError:
                raise self._unknown() from None
        return grant if grant is not None and grant.is_fresh() else await self._renewed(grant)

    async def _look(self) -> Grant | None:
        """Read the row and cache its content."""
        held = await in_thread(self.row.read)
        self._looked = monotonic()
        self._grant, self._generation = (None, -1) if held is None else (held.grant, held.generation)
        return self._grant

    async def _renewed(self, stale: Grant | None, challenge: Challenge | None = None) -> Grant:
        """Return tokens that differ from `stale`.

        Only one renewal runs at a time. It continues when its caller is cancelled, because the refresh token may
        already have been sent.
        """
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(stale, challenge))
            self._renewal.add_done_callback(_seen)
        try:
            return await asyncio.shield(self._renewal)
        except AuthorizationNeeded:
            raise self._needed("has not been authorized yet" if stale is None else "must be authorized again") from None
        except DatabaseError:
            raise self._unknown() from None

    async def _renew(self, stale: Grant | None, challenge: Challenge | None) -> Grant:
        ends = monotonic() + PATIENCE
        while monotonic() < ends:
            grant = await self._look()
            if grant is not None and grant.is_fresh() and (stale is None or grant.access_token != stale.access_token):
                return grant
            if not self._obtains and (grant is None or grant.refresh_token is None):
                if grant is not None and challenge is None and not grant.is_expired():
                    return grant  # about to expire, but still valid
                raise AuthorizationNeeded
            if grant is None and self._generation < 0:
                self._generation = (await in_thread(self.row.make)).generation
            if await in_thread(self.row.claim, self._generation):
                return await self._claimed(grant, challenge)
            await asyncio.sleep(LOOK)

        raise ClientConnectionError(f"Another process has been renewing the token for {self.row.alias} for too long")

    @property
    def _obtains(self) -> bool:
        """Return True if tokens are obtained without a person."""
        return self._settings.auth is not None and self._settings.auth.type == "client_credentials"

    async def _claimed(self, grant: Grant | None, challenge: Challenge | None) -> Grant:
        """Renew the tokens after claiming the row."""
        generation = self._generation
        try:
            if self._obtains:
                new = await obtain(self._settings, self._outgoing, challenge)
            else:
                assert grant is not None
                new = await token_endpoint.renew(grant, self._outgoing, self._url, self._settings.auth)
        except GrantLost as problem:
            await self._lost(generation, grant, problem)
            raise AuthorizationNeeded from None
        except BaseException as problem:
            await in_thread(self.row.release, generation)
            if (
                isinstance(problem, AuthorizationFailed)
                and grant is not None
                and not grant.is_expired()
                and not challenge
            ):
                return grant  # valid for a while longer
            raise

        if not await self._written(new, generation):
            # The owner disconnected or reconnected in the meantime, so the new tokens are unused.
            await token_endpoint.revoke(new, self._outgoing, self._url, self._settings.auth)
            raise AuthorizationNeeded
        self._grant, self._generation, self._looked = new, generation + 1, monotonic()
        return new

    async def _written(self, new: Grant, generation: int) -> bool:
        """Store new tokens, with retries on a busy database.

        The old tokens are already invalid.
        """
        for pause in PAUSES:
            try:
                return await in_thread(self.row.write, new, after=generation)
            except DatabaseError:
                await asyncio.sleep(pause)
        return await in_thread(self.row.write, new, after=generation)

    async def _lost(self, generation: int, grant: Grant | None, problem: GrantLost) -> None:
        logger.warning("Tokens rejected by their authorization server: %s: %s", self.row.alias, problem.error)
        auth, client = self._settings.auth, {} if grant is None else grant.client
        if problem.error == "invalid_client" and auth is not None and auth.client_id is not None:
            # The administrator must fix the setting; the tokens may still be valid.
            await in_thread(self.row.release, generation)
            raise AuthorizationFailed(f"The authorization server rejects the CLIENT_ID for {self.row.alias}")
        await in_thread(self.row.forget, generation)
        if problem.error == "invalid_client":
            # The server has deleted the registration. The next user who connects registers again.
            await in_thread(TokenRow(self._settings).unregister, str(client.get("client_id")))
        self._grant = None

    def _unknown(self) -> ClientConnectionError:
        logger.exception("Database error while reading or writing the token of %s", self.row.alias)
        return ClientConnectionError(f"The token for {self.row.alias} is temporarily unavailable")

    def _needed(self, what: str) -> AuthorizationNeeded:
        self._grant = None
        return AuthorizationNeeded(f"{self.row.alias} {what}", self.row.alias, connect_path(self._settings))


def _show(request: httpx2.Request, token: str) -> None:
    request.headers["Authorization"] = f"Bearer {token}"


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(web_url(url))
    return parts.scheme, (parts.hostname or "").lower(), parts.port or PORTS.get(parts.scheme)


def _seen(task: "asyncio.Task[Grant]") -> None:
    # The waiting caller may have been cancelled.
    if not task.cancelled():
        task.exception()
