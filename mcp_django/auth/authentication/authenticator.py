"""Authenticator: from a request to its principal, or an HTTP refusal.

Closed by default: without configuration every request is refused. With DEBUG or `AUTH = "none"` only callers on this
machine are served, as the local principal. Otherwise the only credential is `Authorization: Bearer`, or, where the
settings allow it, the session of a page of this site. Tokens in the query string are ignored.
"""

import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from hashlib import blake2b
from time import time
from typing import Any, Final

from mcp_django.auth.authentication.active_principals import ACTIVE_PRINCIPALS
from mcp_django.auth.authentication.challenges import build_forbidden, build_insufficient_scope_challenge, build_refusal
from mcp_django.auth.authentication.local import LocalAuthenticator, is_local
from mcp_django.auth.authentication.principal_cache import PrincipalCache, SharedPrincipalCache, get_generation
from mcp_django.auth.authentication.session import SessionAuthenticator
from mcp_django.auth.authentication.stored_credentials import reload_principal
from mcp_django.auth.authentication.tickets import SocketTickets
from mcp_django.auth.authentication.verifiers import (
    INVALID_MESSAGE,
    STATUS_BY_KIND,
    UNAVAILABLE_MESSAGE,
    AuthError,
    Verifier,
    hold_lease,
)
from mcp_django.auth.authorization.scopes import PrincipalRefused, ScopeFilter
from mcp_django.auth.principal import ALL_SCOPES, DjangoPrincipal, Run
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource
from mcp_django.auth.throttling import check_failure_rate, count_failure
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.log_text import Lines, get_logger
from mcp_django.server.callables import accepts_keyword
from mcp_django.server.ports import Executor, Overloaded

logger = get_logger("mcp_django.auth")

ResolveResource = Callable[[AuthRequest], ProtectedResource]
FollowInvalidations = Callable[[], AbstractAsyncContextManager[None]]

MISSING_SCOPE_MESSAGE: Final = "The token lacks a scope that every request to this server requires"
MAX_TOKEN_BYTES: Final = 8 * 1024
"""Maximum length of an access token in bytes."""
SOCKET_MESSAGE: Final = (
    "Send a bearer token, or open the socket with a ticket: a page gets one by a POST to the path of the endpoint and "
    "/ws-ticket"
)
_TOKEN_PATTERN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


class Authenticator:
    """The authenticator of one server.

    `verifiers` are selected by the shape of the token. `local` serves callers on this machine that send no token, as
    `local_user` if a username is given. A verified token is cached for `cache_seconds`. `resolve_resource` returns the
    resource that a token must be issued for; `varies_by_request` is True if it depends on the request. `scope_filter`
    reduces the principal to its effective scopes.
    """

    def __init__(
        self,
        server: str,
        *,
        executor: Executor,
        resolve_resource: ResolveResource | None = None,
        varies_by_request: bool = False,
        verifiers: Sequence[Verifier] = (),
        local: bool = False,
        local_user: str | None = None,
        cache_seconds: float = 10.0,
        scope_filter: ScopeFilter | None = None,
        shared_cache: SharedPrincipalCache | None = None,
        follow_invalidations: FollowInvalidations | None = None,
        sessions: SessionAuthenticator | None = None,
        tickets: SocketTickets | None = None,
    ) -> None:
        """`shared_cache` holds principals that other processes verified.

        `follow_invalidations` returns a context manager. While it is entered, and as long as principals are cached,
        this process receives invalidations from other processes. `sessions` authenticates users of the site, and
        `tickets` replace credentials in URLs of sockets.
        """
        plain = ProtectedResource(server=server)
        self._server = server
        self._executor = executor
        self._follow_invalidations = follow_invalidations or nullcontext
        self._resolve_resource = resolve_resource or (lambda request: plain)
        self.varies_by_request = varies_by_request
        self._sessions = sessions
        self._tickets = tickets
        self._cache = PrincipalCache(cache_seconds)
        self._verifiers = tuple(verifiers)
        self._scope_filter = scope_filter
        self._request_verifiers = {id(one) for one in self._verifiers if accepts_keyword(one.verify, "request")}
        self._depends_on_request = bool(self._request_verifiers) or (
            scope_filter is not None and scope_filter.takes_request
        )
        """True if principals depend on more than the credential and the resource. They are not cached then."""
        self.reads_request = varies_by_request or self._depends_on_request
        """True if a function of the project reads the request: for the resource of a token, or to verify it."""
        self._shared_cache = shared_cache
        self._local = LocalAuthenticator(local_user, cache=self._cache, executor=executor) if local else None

    def get_cached(self, request: AuthRequest) -> DjangoPrincipal | None:
        """Return the cached principal without waiting, or None to call `authenticate`.

        This is the common case, on the hot path. Without the peer's address the local principal is never returned.
        """
        headers = request.headers
        credential = headers.wire.get(b"authorization")
        if credential is None or not self._verifiers:
            return None if self._local is None else self._local.get_cached(request)
        if headers.repeated and b"authorization" in headers.repeated:
            return None
        if self._depends_on_request or (self._sessions is not None and b"cookie" in headers.wire):
            return None  # a cookie may carry a session as well

        if not self.varies_by_request:
            return self._cache.get(blake2b(credential).digest())
        try:
            return self._cache.get(self._digest(credential, self._resolve_resource(request)))
        except Exception:
            return None  # `authenticate` reports the error

    async def authenticate_throttled(self, request: AuthRequest) -> DjangoPrincipal:
        """Return the cached or verified principal of a request.

        Invalid credentials are limited. The limit does not apply to a cached principal.

        Raises:
            Overloaded: too many credentials of the address were invalid; with the status 429.
            TransportRefusal: see `authenticate`.
        """
        cached = self.get_cached(request)
        if cached is not None:
            return cached
        if b"authorization" not in request.headers.wire or not self._verifiers:
            return await self.authenticate(request)

        await check_failure_rate(request, self._executor)
        try:
            return await self.authenticate(request)
        except TransportRefusal as refusal:
            if refusal.status == STATUS_BY_KIND["invalid_token"]:
                await count_failure(request, self._executor)
            raise

    async def authenticate(self, request: AuthRequest) -> DjangoPrincipal:
        """Return the principal of a request.

        Raises:
            TransportRefusal: 400, 401 or 403 with a challenge; 403 where only this machine is served; 503 when
                credentials cannot be verified at the moment.
        """
        resource = self._get_resource(request)
        try:
            headers = request.headers
            credential = headers.wire.get(b"authorization")
            if credential is None or not (self._verifiers or self._sessions):
                return await self._authenticate_without_token(request, resource)
            if self._sessions is not None and self._sessions.get_session_key(request) is not None:
                raise AuthError("invalid_request", "Send a token or a session cookie, not both")
            if b"authorization" in headers.repeated:
                raise AuthError("invalid_request", "Send one Authorization header")
            return await self._authenticate_token(credential, resource, request)
        except AuthError as problem:
            raise build_refusal(problem, resource) from None

    def build_challenge(self, request: AuthRequest, scopes: Iterable[str]) -> bytes:
        """Build the challenge for a client that lacks `scopes` for an operation.

        It includes the scopes that every request requires, so that one step-up is enough (RFC 6750, section 3.1).
        """
        resource = self._get_resource(request)
        return build_insufficient_scope_challenge({*scopes, *resource.scopes}, resource_metadata=resource.metadata_url)

    def _get_resource(self, request: AuthRequest) -> ProtectedResource:
        try:
            return self._resolve_resource(request)
        except Exception:
            # Settings, or a function of the project, are broken: without a resource no caller can be admitted.
            logger.exception("Protected resource of the server %r cannot be determined", self._server)
            raise build_refusal(
                AuthError("unavailable", UNAVAILABLE_MESSAGE), ProtectedResource(server=self._server)
            ) from None

    async def _authenticate_token(
        self, credential: bytes, resource: ProtectedResource, request: AuthRequest
    ) -> DjangoPrincipal:
        token = parse_bearer_token(credential)
        if token is None:
            raise AuthError("missing")

        if not self._verifiers:
            raise AuthError("invalid_token", INVALID_MESSAGE)
        if self._depends_on_request:
            return await self._filter(await self._verify(token, resource, request), resource, request)
        digest = self._digest(credential, resource)
        cached = self._cache.get(digest)
        if cached is not None:
            return cached

        async with self._follow_invalidations():
            generation = get_generation()
            shared_digest = blake2b(repr((credential, resource.server, resource.uri)).encode(), digest_size=32).digest()
            verified = await self._verify_shared(token, resource, request, shared_digest)
            principal = await self._filter(verified, resource, request)
            self._cache.add(digest, principal, generation)
        ACTIVE_PRINCIPALS.record(self._server, principal)
        return principal

    async def _verify_shared(
        self, token: str, resource: ProtectedResource, request: AuthRequest, digest: bytes
    ) -> DjangoPrincipal:
        """Return the principal of a token that this process or another one verified.

        `digest` is its key in the shared cache. Raises AuthError.
        """
        shared_cache = self._shared_cache
        if shared_cache is None:
            return await self._verify(token, resource, request)

        with hold_lease(self._executor):
            principal = await self._executor.run(shared_cache.find, digest)
            if principal is None:
                started_at = time()
                principal = await self._verify(token, resource, request)
                await self._executor.run(shared_cache.add, digest, principal, started_at)
        return principal

    async def reload(self, principal: DjangoPrincipal, run: Run) -> DjangoPrincipal:
        """Return the principal of stored work with the rights that its credential has now, without its token.

        It never has more scopes than before. `run` calls a blocking function. An authorizer, and scopes of every
        request, that depend on the request do not apply again.

        Raises:
            AuthError: the credential was revoked, or lacks a scope that every request requires.
            TransportRefusal: the project or a grant refuses the caller.
            Overloaded: the rules cannot be read.
        """
        if principal.is_local:
            return principal
        current: DjangoPrincipal | None = await run(reload_principal, (*self._verifiers, self._sessions), principal)
        if current is None:
            return principal
        if self._scope_filter is not None:
            if self.varies_by_request or self._scope_filter.takes_request:
                current = self._scope_filter.add_implied_scopes(current)
            else:
                request = AuthRequest(Headers())
                current = await self._filter(current, self._get_resource(request), request)
        if principal.scopes is ALL_SCOPES:
            return replace(principal, scopes=current.scopes)
        return replace(
            principal, scopes=principal.scopes if current.scopes is ALL_SCOPES else principal.scopes & current.scopes
        )

    def issue_ticket(self, request: AuthRequest) -> str:
        """Issue a ticket for the principal of this request. Raises TransportRefusal."""
        resource = self._get_resource(request)
        try:
            if self._tickets is None:
                raise AuthError("invalid_request", "Tickets are not available at this server")
            return self._tickets.issue(request.headers, resource)
        except AuthError as problem:
            raise build_refusal(problem, resource) from None

    async def redeem_ticket(self, request: AuthRequest) -> AuthRequest:
        """Replace the ticket of a socket's handshake by its credential.

        The ticket is marked as used. A request without a ticket is returned unchanged. Raises TransportRefusal.
        """
        if request.ticket is None or self._tickets is None:
            return request
        resource = self._get_resource(request)
        try:
            if b"authorization" in request.headers.wire:
                raise AuthError("invalid_request", "Send a token or a ticket, not both")
            return await self._tickets.redeem(request, resource)
        except AuthError as problem:
            raise build_refusal(problem, resource) from None

    async def _authenticate_without_token(self, request: AuthRequest, resource: ProtectedResource) -> DjangoPrincipal:
        """Return the principal of a request without a token."""
        reads_cookie = not request.is_socket or request.accepts_cookie
        if self._sessions is not None and reads_cookie and self._sessions.get_session_key(request) is not None:
            principal = await self._sessions.authenticate(request)
            if principal is not None:
                return await self._filter(principal, resource, request)

        if self._local is None:
            if self._verifiers or self._sessions is not None:
                raise AuthError("missing", SOCKET_MESSAGE if request.is_socket else "")
            raise build_forbidden("Authentication is not configured, so every request is refused")
        if not is_local(request.headers, request.peer):
            raise build_forbidden("A token is required; without one only requests from this machine are served")
        return await self._local.authenticate()

    def _digest(self, credential: bytes, resource: ProtectedResource) -> bytes:
        """Return the cache key of a principal."""
        if not self.varies_by_request:
            return blake2b(credential).digest()
        return blake2b(repr((credential, resource)).encode()).digest()

    async def _verify(self, token: str, resource: ProtectedResource, request: AuthRequest) -> DjangoPrincipal:
        principal = await self._call_verifier(token, resource, request)
        if principal.expires_at is not None and principal.expires_at <= time():
            raise AuthError("invalid_token", INVALID_MESSAGE)
        if principal.audience not in (None, resource.server) and not resource.matches_audience(principal.audience):
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return principal

    async def _call_verifier(self, token: str, resource: ProtectedResource, request: AuthRequest) -> DjangoPrincipal:
        """Call the verifier that accepts tokens of this shape."""
        verifier: Verifier | None = None
        with hold_lease(self._executor):
            try:
                verifier = next((one for one in self._verifiers if one.accepts(token)), None)
                if verifier is None:
                    raise AuthError("invalid_token", INVALID_MESSAGE)
                options = {"request": request} if id(verifier) in self._request_verifiers else {}
                principal: Any = await verifier.verify(token, resource=resource, **options)
                if not isinstance(principal, DjangoPrincipal) or principal.is_local:
                    name = type(principal).__name__
                    raise TypeError(f"verify() must return a Principal that is not local, not {name}")
            except (AuthError, Overloaded):
                raise
            except Exception as problem:
                # A project's verifier failed. The request gets a temporary error, so that clients keep their tokens.
                text = "".join(traceback.format_exception(problem)).replace(token, "[token]")
                logger.error("Unhandled exception in the verifier %s\n%s", type(verifier).__name__, Lines(text))
                raise AuthError("unavailable", UNAVAILABLE_MESSAGE) from None
        return principal

    async def _filter(
        self, principal: DjangoPrincipal, resource: ProtectedResource, request: AuthRequest
    ) -> DjangoPrincipal:
        """Return the principal with its effective scopes, which include those of every request.

        Raises AuthError and TransportRefusal.
        """
        if self._scope_filter is not None:
            with hold_lease(self._executor):
                try:
                    principal = await self._scope_filter.filter_scopes(principal, resource=resource, request=request)
                except PrincipalRefused:
                    raise build_forbidden("Access to this server is denied for this caller") from None
        if not principal.has_scopes(resource.scopes):
            raise AuthError("insufficient_scope", MISSING_SCOPE_MESSAGE, scopes=resource.scopes)
        return principal


def parse_bearer_token(credential: bytes) -> str | None:
    """Return the token, or None if the credential has another scheme.

    Raises AuthError.
    """
    scheme, _, token = credential.strip(b" ").partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    token = token.strip(b" ")
    if len(token) > MAX_TOKEN_BYTES:
        raise AuthError("invalid_request", f"The access token is longer than {MAX_TOKEN_BYTES} bytes")
    if not _TOKEN_PATTERN.fullmatch(token):
        raise AuthError("invalid_token", INVALID_MESSAGE)
    return token.decode("ascii")
