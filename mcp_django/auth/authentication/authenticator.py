"""Authenticator: from a request to its principal, or an HTTP refusal.

Closed by default: without configuration every request is refused. With DEBUG or `AUTH = "none"` only callers on this
machine are served, as the local principal. Otherwise the only credential is `Authorization: Bearer`, or, where the
settings allow it, the session of a page of this site. Tokens in the query string are ignored.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from hashlib import blake2b
from typing import Final

from mcp_django.auth.authentication.bearer import Bearers, bearer_token
from mcp_django.auth.authentication.challenges import insufficient_scope
from mcp_django.auth.authentication.local import LocalCaller, is_local
from mcp_django.auth.authentication.principal_cache import Known, mark
from mcp_django.auth.authentication.refusals import forbidden, refusal
from mcp_django.auth.authentication.session import Sessions
from mcp_django.auth.authentication.shared_cache import Shared
from mcp_django.auth.authentication.tickets import Tickets
from mcp_django.auth.authentication.verifiers import INVALID, STATUS, UNAVAILABLE, AuthError, Verifier
from mcp_django.auth.authorization.scopes import Narrow
from mcp_django.auth.principal import Principal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource
from mcp_django.auth.throttling.checks import admit_credential, note_failure
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Executor

logger = logging.getLogger("mcp_django.auth")

ResourceOf = Callable[[AuthRequest], ProtectedResource]
Attended = Callable[[], AbstractAsyncContextManager[None]]

LACKING: Final = "The token lacks a scope that every request to this server requires"


class Authenticator:
    """The authenticator of one server.

    `verifiers` are selected by the shape of the token. `local` serves callers on this machine that send no token, as
    `local_user` if a username is given. A verified token is cached for `cache_seconds`. `resolve_resource` returns the
    resource that a token must be issued for; `varies_by_request` is True if it depends on the request. `filter_scopes`
    returns the principal with its effective scopes.
    """

    def __init__(
        self,
        server: str,
        *,
        executor: Executor,
        resource_of: ResourceOf | None = None,
        varies: bool = False,
        verifiers: Sequence[Verifier] = (),
        local: bool = False,
        local_user: str | None = None,
        remember: float = 10.0,
        narrow: Narrow | None = None,
        shared: Shared | None = None,
        attended: Attended | None = None,
        sessions: Sessions | None = None,
        tickets: Tickets | None = None,
    ) -> None:
        """`shared_cache` holds principals that other processes verified.

        `follow_invalidations` returns a context manager. While it is entered, and as long as principals are cached,
        this process receives invalidations from other processes. `sessions` authenticates users of the site, and
        `tickets` replace credentials in URLs of sockets.
        """
        plain = ProtectedResource(server=server)
        self._server, self._executor, self._attended = server, executor, attended or nullcontext
        self._resource_of, self.varies = resource_of or (lambda request: plain), varies
        self._sessions, self._tickets = sessions, tickets
        self._known = Known(remember)
        self._bearers = Bearers(verifiers, executor=executor, narrow=narrow, shared=shared)
        self._local = LocalCaller(local_user, known=self._known, executor=executor) if local else None

    def known(self, request: AuthRequest) -> Principal | None:
        """Return the cached principal without waiting, or None to call `authenticate`.

        This is the common case, on the hot path. Without the peer's address the local principal is never returned.
        """
        headers = request.headers
        credential = headers.get(b"authorization")
        if credential is None or not self._bearers.verifiers:
            return None if self._local is None else self._local.known(request)
        if headers.repeated and b"authorization" in headers.repeated:
            return None
        if self._sessions is not None and b"cookie" in headers:
            return None  # it may carry a session as well

        if not self.varies:
            return self._known.get(blake2b(credential).digest())
        try:
            return self._known.get(self._digest(credential, self._resource_of(request)))
        except Exception:
            return None  # `authenticate` reports the error

    async def admit(self, request: AuthRequest) -> Principal:
        """Authenticate a request of a transport, with a limit on invalid credentials.

        Raises:
            Overloaded: too many credentials of the address were invalid; with the status 429.
            TransportRefusal: see `authenticate`.
        """
        if b"authorization" not in request.headers or not self._bearers.verifiers:
            return await self.authenticate(request)

        await admit_credential(request, self._executor)
        try:
            return await self.authenticate(request)
        except TransportRefusal as refusal:
            if refusal.status == STATUS["invalid_token"]:
                await note_failure(request, self._executor)
            raise

    async def authenticate(self, request: AuthRequest) -> Principal:
        """Return the principal of a request.

        Raises:
            TransportRefusal: 400, 401 or 403 with a challenge; 403 where only this machine is served; 503 when
                credentials cannot be verified at the moment.
        """
        resource = self._resource(request)
        try:
            headers = request.headers
            credential = headers.get(b"authorization")
            if credential is None or not (self._bearers or self._sessions):
                return await self._without(request, resource)
            if self._sessions is not None and self._sessions.cookie(request) is not None:
                raise AuthError("invalid_request", "Send a token or a session cookie, not both")
            if b"authorization" in headers.repeated:
                raise AuthError("invalid_request", "Send one Authorization header")
            return await self._by_token(credential, resource)
        except AuthError as problem:
            raise refusal(problem, resource) from None

    def challenge(self, request: AuthRequest, scopes: Iterable[str]) -> bytes:
        """Build the challenge for a client that lacks `scopes` for an operation.

        It includes the scopes that every request requires, so that one step-up is enough (RFC 6750, section 3.1).
        """
        resource = self._resource(request)
        return insufficient_scope({*scopes, *resource.scopes}, resource_metadata=resource.metadata_url)

    def _resource(self, request: AuthRequest) -> ProtectedResource:
        try:
            return self._resource_of(request)
        except Exception:
            # Settings, or a function of the project, are broken: without a resource no caller can be admitted.
            logger.exception("Protected resource of the server %r cannot be determined", self._server)
            raise refusal(AuthError("unavailable", UNAVAILABLE), ProtectedResource(server=self._server)) from None

    async def _by_token(self, credential: bytes, resource: ProtectedResource) -> Principal:
        token = bearer_token(credential)
        if token is None:
            raise AuthError("missing")

        if not self._bearers:
            raise AuthError("invalid_token", INVALID)
        digest = self._digest(credential, resource)
        found = self._known.get(digest)
        if found is not None:
            return found

        async with self._attended():
            begun = mark()
            apart = blake2b(repr((credential, resource.server, resource.uri)).encode(), digest_size=32).digest()
            principal = self._sufficient(await self._bearers.principal(token, resource, apart), resource)
            self._known.keep(digest, principal, begun)
        return principal

    def _sufficient(self, principal: Principal, resource: ProtectedResource) -> Principal:
        if not principal.has_scopes(resource.scopes):
            raise AuthError("insufficient_scope", LACKING, scopes=resource.scopes)
        return principal

    def ticket(self, request: AuthRequest) -> str:
        """Issue a ticket for the principal of this request. Raises TransportRefusal."""
        resource = self._resource(request)
        try:
            if self._tickets is None:
                raise AuthError("invalid_request", "Tickets are not available at this server")
            return self._tickets.issue(request.headers, resource)
        except AuthError as problem:
            raise refusal(problem, resource) from None

    async def redeemed(self, request: AuthRequest) -> AuthRequest:
        """Replace the ticket of a socket's handshake by its credential.

        The ticket is marked as used. A request without a ticket is returned unchanged. Raises TransportRefusal.
        """
        if request.ticket is None or self._tickets is None:
            return request
        resource = self._resource(request)
        try:
            if b"authorization" in request.headers:
                raise AuthError("invalid_request", "Send a token or a ticket, not both")
            return await self._tickets.redeem(request, resource)
        except AuthError as problem:
            raise refusal(problem, resource) from None

    async def _without(self, request: AuthRequest, resource: ProtectedResource) -> Principal:
        """Return the principal of a request without a token."""
        if self._sessions is not None and not request.is_socket and self._sessions.cookie(request) is not None:
            principal = await self._sessions.principal(request)
            if principal is not None:
                return self._sufficient(await self._bearers.narrowed(principal, resource), resource)

        if self._local is None:
            if self._bearers or self._sessions is not None:
                raise AuthError("missing")
            raise forbidden("Authentication is not configured, so every request is refused")
        if not is_local(request.headers, request.peer):
            raise forbidden("A token is required; without one only requests from this machine are served")
        return await self._local.principal()

    def _digest(self, credential: bytes, resource: ProtectedResource) -> bytes:
        """Return the cache key of a principal."""
        if not self.varies:
            return blake2b(credential).digest()
        return blake2b(repr((credential, resource)).encode()).digest()
