"""Authentication of requests to another server.

`create_auth` creates it from the settings, for one user or the project. A token is stored in a row shared by all
workers (`token_store`). It is renewed when it expires or the server rejects it. Where a person is required,
AuthorizationNeeded is raised immediately. A token is only sent to the server of its row.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx2
from django.db import DatabaseError
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.aio.clock import monotonic
from mcp_django.client.errors import AuthorizationNeeded, ClientConnectionError
from mcp_django.client.oauth import token_endpoint
from mcp_django.client.oauth.client_credentials import obtain_grant
from mcp_django.client.oauth.discovery import Challenge, merge_scopes
from mcp_django.client.oauth.http import AuthorizationFailed, OAuthHTTPClient, get_connect_path, to_http_url
from mcp_django.client.oauth.token_endpoint import GrantLost
from mcp_django.client.oauth.token_store import CLAIM_SECONDS, TokenGrant, TokenRow, run_in_thread
from mcp_django.conf.clients import ClientAuth, ClientSettings
from mcp_django.http_client import get_origin
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.client")
RENEWAL_TIMEOUT_SECONDS: Final = CLAIM_SECONDS + 10
"""Seconds to wait for another worker that renews the tokens."""
CHECK_INTERVAL_SECONDS: Final = 0.1
"""Seconds between checks of that worker's progress."""
WRITE_RETRY_DELAYS_SECONDS: Final = (0.1, 0.5, 2.0)
"""Seconds between attempts to store new tokens."""


def create_auth(
    settings: ClientSettings, user: Any = None, *, http_client: OAuthHTTPClient | None = None
) -> httpx2.Auth | None:
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
    return TokenAuth(settings, owner, http_client or OAuthHTTPClient(settings.url))


class BearerAuth(httpx2.Auth):
    """A token from the settings, or from a function named there."""

    def __init__(self, settings: ClientSettings, auth: ClientAuth, user: Any) -> None:
        self._alias = settings.alias
        self._server_origin = get_origin(to_http_url(settings.url or ""))
        self._user = user
        self._token_function = None if auth.token_function is None else import_string(auth.token_function)
        self._token = auth.token

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token; if the server rejects it, call the token function once more."""
        if get_origin(str(request.url)) != self._server_origin:
            yield request
            return
        sent_token = self._token or await self._get_token()
        _set_token(request, sent_token)
        response = yield request
        if response.status_code != 401 or self._token_function is None:
            return
        token = await self._get_token()
        if token != sent_token:
            _set_token(request, token)
            yield request

    async def _get_token(self) -> str:
        token: Any = None
        if self._token_function is not None:
            try:
                token = await run_in_thread(self._token_function, self._user)
                if asyncio.iscoroutine(token):
                    token = await token
            except Exception:
                logger.exception("TOKEN_FUNCTION of %s failed", self._alias)
                raise ClientConnectionError(f"The token for {self._alias} is temporarily unavailable") from None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            self._token = None
            raise AuthorizationNeeded(f"No token for {self._alias}", self._alias)
        self._token = token
        return token


class TokenAuth(httpx2.Auth):
    """A token of an authorization server, from the row of `owner`."""

    def __init__(self, settings: ClientSettings, owner: Any, http_client: OAuthHTTPClient) -> None:
        self._settings = settings
        self._http_client = http_client
        self._url = to_http_url(settings.url or "")
        self._server_origin = get_origin(self._url)
        self.row = TokenRow(settings, owner)
        self._grant: TokenGrant | None = None
        self._generation = -1
        self._read_at = 0.0
        self._renewal_task: asyncio.Task[TokenGrant] | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token; if the server rejects it, renew it once."""
        if get_origin(str(request.url)) != self._server_origin:
            yield request  # request to another origin: sent without the token
            return
        grant = await self.get_grant()
        _set_token(request, grant.access_token)
        response = yield request
        challenge = Challenge.from_response(response)
        if challenge is None:
            return

        if not challenge.is_scope_insufficient:
            grant = await self._get_renewed_grant(grant, challenge)
            _set_token(request, grant.access_token)
            response = yield request
            challenge = Challenge.from_response(response)
            if challenge is None:
                return

        wanted = merge_scopes(grant.scope, challenge.scopes)
        if wanted and wanted != grant.scope:
            await run_in_thread(self.row.save_missing_scopes, wanted)
            raise self._build_authorization_needed("needs authorization for more scopes")
        raise self._build_authorization_needed("rejects its token")

    async def get_grant(self) -> TokenGrant:
        """Return unexpired tokens. Raises AuthorizationNeeded, ClientConnectionError."""
        grant = self._grant
        if grant is None or monotonic() - self._read_at >= conf.get_settings().token_cache_seconds:
            try:
                grant = await self._read_row()
            except DatabaseError:
                raise self._build_database_error() from None
        return grant if grant is not None and grant.is_fresh() else await self._get_renewed_grant(grant)

    async def _read_row(self) -> TokenGrant | None:
        """Read the row and cache its content."""
        stored = await run_in_thread(self.row.read)
        self._read_at = monotonic()
        self._grant, self._generation = (None, -1) if stored is None else (stored.grant, stored.generation)
        return self._grant

    async def _get_renewed_grant(self, stale: TokenGrant | None, challenge: Challenge | None = None) -> TokenGrant:
        """Return tokens that differ from `stale`.

        Only one renewal runs at a time. It continues when its caller is cancelled, because the refresh token may
        already have been sent.
        """
        if self._renewal_task is None or self._renewal_task.done():
            self._renewal_task = asyncio.create_task(self._renew(stale, challenge))
            self._renewal_task.add_done_callback(_consume_exception)
        try:
            return await asyncio.shield(self._renewal_task)
        except AuthorizationNeeded:
            raise self._build_authorization_needed(
                "has not been authorized yet" if stale is None else "must be authorized again"
            ) from None
        except DatabaseError:
            raise self._build_database_error() from None

    async def _renew(self, stale: TokenGrant | None, challenge: Challenge | None) -> TokenGrant:
        deadline = monotonic() + RENEWAL_TIMEOUT_SECONDS
        while monotonic() < deadline:
            grant = await self._read_row()
            if grant is not None and grant.is_fresh() and (stale is None or grant.access_token != stale.access_token):
                return grant
            if not self._uses_client_credentials and (grant is None or grant.refresh_token is None):
                if grant is not None and challenge is None and not grant.is_expired():
                    return grant  # about to expire, but still valid
                raise AuthorizationNeeded
            if grant is None and self._generation < 0:
                self._generation = (await run_in_thread(self.row.get_or_create)).generation
            if await run_in_thread(self.row.claim, self._generation):
                return await self._renew_claimed(grant, challenge)
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

        raise ClientConnectionError(f"Another process has been renewing the token for {self.row.alias} for too long")

    @property
    def _uses_client_credentials(self) -> bool:
        """Return True if tokens are obtained without a person."""
        return self._settings.auth is not None and self._settings.auth.type == "client_credentials"

    async def _renew_claimed(self, grant: TokenGrant | None, challenge: Challenge | None) -> TokenGrant:
        """Renew the tokens after claiming the row."""
        generation = self._generation
        try:
            if self._uses_client_credentials:
                renewed = await obtain_grant(self._settings, self._http_client, challenge)
            else:
                assert grant is not None
                renewed = await token_endpoint.renew_grant(grant, self._http_client, self._url, self._settings.auth)
        except GrantLost as problem:
            await self._handle_lost_grant(generation, grant, problem)
            raise AuthorizationNeeded from None
        except BaseException as problem:
            await run_in_thread(self.row.release, generation)
            if (
                isinstance(problem, AuthorizationFailed)
                and grant is not None
                and not grant.is_expired()
                and not challenge
            ):
                return grant  # valid for a while longer
            raise

        if not await self._write_grant(renewed, generation):
            # The owner disconnected or reconnected in the meantime, so the new tokens are unused.
            await token_endpoint.revoke_grant(renewed, self._http_client, self._url, self._settings.auth)
            raise AuthorizationNeeded
        self._grant = renewed
        self._generation = generation + 1
        self._read_at = monotonic()
        return renewed

    async def _write_grant(self, new: TokenGrant, generation: int) -> bool:
        """Store new tokens, with retries on a busy database.

        The old tokens are already invalid.
        """
        for pause in WRITE_RETRY_DELAYS_SECONDS:
            try:
                return await run_in_thread(self.row.write, new, expected_generation=generation)
            except DatabaseError:
                await asyncio.sleep(pause)
        return await run_in_thread(self.row.write, new, expected_generation=generation)

    async def _handle_lost_grant(self, generation: int, grant: TokenGrant | None, problem: GrantLost) -> None:
        logger.warning("Tokens rejected by their authorization server: %s: %s", self.row.alias, problem.error)
        auth, client = self._settings.auth, {} if grant is None else grant.client
        if problem.error == "invalid_client" and auth is not None and auth.client_id is not None:
            # The administrator must fix the setting; the tokens may still be valid.
            await run_in_thread(self.row.release, generation)
            raise AuthorizationFailed(f"The authorization server rejects the CLIENT_ID for {self.row.alias}")
        await run_in_thread(self.row.clear_grant, generation)
        if problem.error == "invalid_client":
            # The server has deleted the registration. The next user who connects registers again.
            await run_in_thread(TokenRow(self._settings).delete_registration, str(client.get("client_id")))
        self._grant = None

    def _build_database_error(self) -> ClientConnectionError:
        logger.exception("Database error while reading or writing the token of %s", self.row.alias)
        return ClientConnectionError(f"The token for {self.row.alias} is temporarily unavailable")

    def _build_authorization_needed(self, problem: str) -> AuthorizationNeeded:
        self._grant = None
        return AuthorizationNeeded(f"{self.row.alias} {problem}", self.row.alias, get_connect_path(self._settings))


def _set_token(request: httpx2.Request, token: str) -> None:
    request.headers["Authorization"] = f"Bearer {token}"


def _consume_exception(task: "asyncio.Task[TokenGrant]") -> None:
    # The waiting caller may have been cancelled.
    if not task.cancelled():
        task.exception()
