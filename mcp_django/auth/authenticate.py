"""From the headers of a request to its principal, or an HTTP refusal.

Closed by default: with nothing configured every request is refused, and with DEBUG or `AUTH = "none"` only
callers on this machine are served, as the local principal. Otherwise the one credential is `Authorization:
Bearer`; tokens in the query are never looked at.
"""

import logging
import re
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from time import monotonic, time
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.db import Error as DatabaseFailure
from django.db import transaction
from django.db.models.signals import post_delete, post_save

from ..models import PersonalAccessToken
from ..protocol import jsonrpc
from ..protocol.errors import InternalError, InvalidRequest, TransportRefusal
from ..protocol.headers import Headers
from ..server.ports import Executor, Overloaded
from .challenge import challenge
from .principal import Principal, local_principal
from .verifiers import INVALID, AuthError, Verifier

logger = logging.getLogger("mcp_django.auth")

LONGEST_TOKEN: Final = 8 * 1024
"""Bytes."""
MOST_KNOWN: Final = 4096
"""Verified tokens that are remembered."""

_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_HOST = re.compile(rb"(?:localhost|(127\.[0-9.]+)|\[([0-9a-f:.]+)\])(?::[0-9]{1,5})?", re.IGNORECASE)

FORWARDING: Final = frozenset(
    b"forwarded via x-real-ip x-client-ip client-ip x-cluster-client-ip x-original-host x-original-forwarded-for "
    b"x-forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port x-forwarded-by "
    b"x-forwarded-server x-forwarded-scheme x-forwarded-ssl x-forwarded-prefix x-scheme x-envoy-external-address "
    b"x-azure-clientip x-appengine-user-ip x-amzn-trace-id cf-connecting-ip cf-ray cdn-loop true-client-ip "
    b"fastly-client-ip fly-client-ip tailscale-user-login".split()
)
"""Headers that proxies and tunnels add: with one of them the peer is not the client."""


class Authenticator:
    """Knows who calls one server, and refuses who may not.

    `verifiers` are asked by the shape of the token; `local` serves callers on this machine who send none, as
    `local_user` when a username is given. A verified token is remembered for `remember` seconds. `scopes` and
    `resource_metadata` (a URL) go into challenges.
    """

    def __init__(
        self,
        server: str,
        *,
        executor: Executor,
        verifiers: Sequence[Verifier] = (),
        local: bool = False,
        local_user: str | None = None,
        remember: float = 10.0,
        scopes: Sequence[str] = (),
        resource_metadata: str | None = None,
    ) -> None:
        self._server, self._executor, self._verifiers = server, executor, tuple(verifiers)
        self._local, self._local_user, self._remember = local, local_user, remember
        self._scopes, self._resource_metadata = scopes, resource_metadata
        # By a digest of the header: a token is not kept.
        self._known: dict[bytes, tuple[Principal, float]] = {}
        self._me: tuple[Principal, float] | None = None if local_user else (local_principal(), float("inf"))
        self._keeping = threading.Lock()
        self._forgotten = 0
        for signal in (post_save, post_delete):
            signal.connect(self._on_token, sender=PersonalAccessToken)
        post_save.connect(self._on_user_saved, sender=get_user_model())
        post_delete.connect(self._on_user_deleted, sender=get_user_model())

    def known(self, headers: Headers, peer: str | None = None) -> Principal | None:
        """The principal, if it is known without waiting; None to ask `authenticate`. The common case, so it is quick.

        `peer` is the client's address; without it the local principal is never known.
        """
        credential = headers.get(b"authorization")
        if credential is None or not self._verifiers:
            found = self._me if self._local and is_local(headers, peer) else None
        elif headers.repeated and b"authorization" in headers.repeated:
            return None
        else:
            found = self._known.get(blake2b(credential).digest())
        return found[0] if found is not None and monotonic() < found[1] else None

    async def authenticate(self, headers: Headers, *, peer: str | None) -> Principal:
        """The principal. `peer` is the client's address, None if the server does not say.

        Raises TransportRefusal: 400, 401 or 403 with a challenge, 403 where only this machine is served, 503 when
        credentials cannot be verified at the moment.
        """
        try:
            credential = headers.get(b"authorization")
            if credential is None or not self._verifiers:
                return await self._as_local(headers, peer)
            if b"authorization" in headers.repeated:
                raise AuthError("invalid_request", "Send one Authorization header")
            token = _bearer(credential)
            if token is None:
                raise AuthError("missing")
            forgotten = self._forgotten
            principal = await self._verify(token)
            if forgotten == self._forgotten:
                self._keep(blake2b(credential).digest(), principal)
            return principal
        except AuthError as problem:
            raise self._refusal(problem) from None

    async def _as_local(self, headers: Headers, peer: str | None) -> Principal:
        if not self._local:
            if self._verifiers:
                raise AuthError("missing")
            raise _forbidden("Authentication is not configured, so every request is refused")
        if not is_local(headers, peer):
            raise _forbidden("Without a token only requests from this machine to this machine are served")
        me = self._me
        if me is None or monotonic() >= me[1]:
            try:
                user = await self._executor.run(self._find_local_user)
            except (DatabaseFailure, Overloaded) as problem:
                logger.error("The local user could not be read: %s", problem)
                user = None
            if user is None:
                raise AuthError("unavailable", "The local user is not available")
            me = self._me = local_principal(user), monotonic() + self._remember
        return me[0]

    def _find_local_user(self) -> Any:
        model = get_user_model()
        try:
            user = model._default_manager.get_by_natural_key(self._local_user)
        except model.DoesNotExist:
            user = None
        if user is None or not user.is_active:
            logger.error('MCP["LOCAL_USER"] names %r, who is not an active user', self._local_user)
            return None
        return user

    async def _verify(self, token: str) -> Principal:
        """Ask the one verifier whose tokens look like this."""
        lease = self._executor.enter()
        verifier: Verifier | None = None
        try:
            verifier = next((one for one in self._verifiers if one.accepts(token)), None)
            if verifier is None:
                raise AuthError("invalid_token", INVALID)
            principal: Any = await verifier.verify(token, server=self._server)
            if not isinstance(principal, Principal) or principal.is_local:
                raise TypeError(f"verify() must return a Principal who is not local, not {type(principal).__name__}")
        except AuthError:
            raise
        except Overloaded as problem:
            raise AuthError("unavailable", str(problem), retry_after=problem.retry_after) from None
        except Exception as problem:
            # A project's verifier: whatever goes wrong there, nobody gets in, and no client throws its token away.
            text = "".join(traceback.format_exception(problem)).replace(token, "[token]")
            logger.error("The verifier %s failed\n%s", type(verifier).__name__, text)
            raise AuthError("unavailable", "Tokens cannot be verified at the moment; try again later") from None
        finally:
            lease.close()
        if principal.expires_at is not None and principal.expires_at <= time():
            raise AuthError("invalid_token", INVALID)
        if principal.audience not in (None, self._server):
            raise AuthError("invalid_token", INVALID)
        return principal

    def _keep(self, digest: bytes, principal: Principal) -> None:
        seconds = self._remember
        if principal.expires_at is not None:
            seconds = min(seconds, principal.expires_at - time())
        if seconds <= 0:
            return
        known = self._known
        with self._keeping:
            known.pop(digest, None)
            while len(known) >= MOST_KNOWN:
                del known[next(iter(known))]
            known[digest] = principal, monotonic() + seconds

    def _refusal(self, problem: AuthError) -> TransportRefusal:
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        text = problem.description or "Send a bearer token in the Authorization header"
        if problem.kind == "unavailable":
            headers.append((b"retry-after", b"%d" % max(1, round(problem.retry_after))))
            return TransportRefusal(problem.status, headers, jsonrpc.error(None, InternalError(text)))
        value = challenge(
            error=None if problem.kind == "missing" else problem.kind,
            description=problem.description,
            scopes=problem.scopes or self._scopes,
            resource_metadata=self._resource_metadata,
        )
        headers.append((b"www-authenticate", value))
        return TransportRefusal(problem.status, headers, jsonrpc.error(None, InvalidRequest(text)))

    def _on_token(self, *, instance: PersonalAccessToken, using: str, created: bool = False, **_: Any) -> None:
        pk = instance.pk  # a deleted instance loses it before the commit
        if not created:
            self._forget_now_and_after_commit(lambda principal: principal.token_id == pk, using)

    def _on_user_saved(self, *, instance: Any, using: str, **_: Any) -> None:
        if not instance.is_active:
            self._on_user_deleted(using=using)

    def _on_user_deleted(self, *, using: str, **_: Any) -> None:
        self._forget_now_and_after_commit(lambda principal: True, using)

    def _forget_now_and_after_commit(self, concerned: Callable[[Principal], bool], using: str) -> None:
        """Twice, because until the commit the old row can be read again; other processes learn it from `remember`."""
        self._forget(concerned)
        try:
            transaction.on_commit(lambda: self._forget(concerned), using=using, robust=True)
        except transaction.TransactionManagementError:
            pass  # manual transactions have no such hook

    def _forget(self, concerned: Callable[[Principal], bool]) -> None:
        self._forgotten += 1
        # This runs in the thread of whoever saves; and under WSGI each request has one of its own.
        with self._keeping:
            for digest in [digest for digest, (principal, _) in self._known.items() if concerned(principal)]:
                del self._known[digest]
        if self._local_user:
            self._me = None


def _bearer(credential: bytes) -> str | None:
    """The token; None if the credential is of another scheme. Raises AuthError."""
    scheme, _, token = credential.strip(b" ").partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    token = token.strip(b" ")
    if len(token) > LONGEST_TOKEN:
        raise AuthError("invalid_request", f"The access token is longer than {LONGEST_TOKEN} bytes")
    if not _TOKEN.fullmatch(token):
        raise AuthError("invalid_token", INVALID)
    return token.decode("ascii")


def _forbidden(text: str) -> TransportRefusal:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    return TransportRefusal(403, headers, jsonrpc.error(None, InvalidRequest(text)))


def is_local(headers: Headers, peer: str | None) -> bool:
    """Did the request come from a loopback `peer`, for a loopback Host, without a proxy in between?

    A peer that the server does not name (a Unix socket, as behind nginx) is not loopback.
    """
    return (
        peer is not None
        and _is_loopback(peer)
        and _is_loopback_host(headers.get(b"host", b""))
        and FORWARDING.isdisjoint(headers)
        and (not headers.repeated or b"host" not in headers.repeated)
    )


@lru_cache(256)
def _is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_loopback


@lru_cache(256)
def _is_loopback_host(host: bytes) -> bool:
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    address = match[1] or match[2]
    return address is None or _is_loopback(address.decode("ascii"))
