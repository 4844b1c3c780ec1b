"""Credentials for a remote server: the caller's own, or the project's."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_django.client import AuthorizationNeeded, ClientConnectionError, ClientError
from mcp_django.contrib.proxies.connections.targets import RemoteSource
from mcp_django.extensions.calls import Context, get_logger, jsonrpc
from mcp_django.extensions.errors import Overloaded
from mcp_django.extensions.primitives import run_callable

logger = get_logger("mcp_django.client")

_DIGEST_KEY = os.urandom(32)
"""Key of credential digests, which are valid only in this process."""
SHARED_OWNER = ""
"""Owner of lists fetched with a credential of the project."""

HeadersFunction = Callable[[Context], Any]
"""Function of the Context that returns the caller's headers for a remote server.

It may be async. It returns None for a caller without a credential.
"""


@dataclass(frozen=True, slots=True)
class RemoteCredential:
    """Credential of one caller, by which lists and sessions are kept apart."""

    owner: str
    """Key of the caller; callers never share sessions."""
    list_owner: str
    """Owner of the visible lists: the caller, or all users of a project credential."""
    digest: str
    """Digest of the credential; another credential does not see its data."""
    user: Any = field(default=None, repr=False)
    """User who owns the credential; None for a credential of the project."""
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def list_key(self) -> tuple[str, str]:
        """Key of the cached lists."""
        return self.list_owner, self.digest

    @property
    def session_key(self) -> tuple[str, str]:
        """Key of the sessions with the remote server, which calls with this credential share."""
        return self.owner, self.digest


def get_owner(ctx: Context) -> str:
    """Return the key of the caller, the same for all of its clients if possible."""
    return ctx.principal.owner or ctx.principal.key


class CallerCredentials:
    """Credentials of the callers for one remote server."""

    def __init__(self, source: RemoteSource, headers: HeadersFunction | None) -> None:
        self._source = source
        self._headers = headers

    @property
    def is_personal(self) -> bool:
        """True if callers have credentials of their own."""
        return self._headers is not None or self._source.per_user

    async def get(self, ctx: Context) -> RemoteCredential:
        """Return the credential of the caller.

        Raises:
            AuthorizationNeeded: the caller has no credential.
            ClientConnectionError: the credential could not be determined.
            Overloaded: too many calls wait for a thread.
        """
        owner = get_owner(ctx)
        if self._headers is not None:
            headers = await self._get_headers(ctx, self._headers)
            return RemoteCredential(owner, owner, _digest(headers), headers=headers)

        if not self._source.per_user:
            return RemoteCredential(owner, SHARED_OWNER, "")

        user = ctx.user
        if user is None or getattr(user, "pk", None) is None:
            raise AuthorizationNeeded(alias=self._source.name)
        return RemoteCredential(owner, owner, f"user {user.pk}", user=user)

    async def find(self, ctx: Context) -> RemoteCredential | None:
        """Return the credential of the caller; None if it has none."""
        try:
            return await self.get(ctx)
        except ClientError:
            return None

    async def _get_headers(self, ctx: Context, headers: HeadersFunction) -> dict[str, str]:
        try:
            given = await run_callable(headers, ctx.server.ports.executor, ctx)
            sent_headers = None if given is None else {str(header): str(value) for header, value in given.items()}
        except Overloaded:
            raise
        except Exception:
            logger.exception("Credential function of the server %r failed", self._source.name)
            raise ClientConnectionError("The credential for the server could not be determined") from None
        if sent_headers is None:
            raise AuthorizationNeeded(alias=self._source.name)
        return sent_headers


def _digest(headers: Mapping[str, str]) -> str:
    serialized = jsonrpc.dumps_sorted({name.lower(): value for name, value in headers.items()})
    return hashlib.blake2b(serialized, key=_DIGEST_KEY, digest_size=16).hexdigest()
