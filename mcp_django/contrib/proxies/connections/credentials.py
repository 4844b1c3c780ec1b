"""As whom a remote is used: whose credential it is, and which."""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_django.client.errors import AuthorizationNeeded, ClientConnectionError
from mcp_django.protocol import jsonrpc
from mcp_django.server.calls.callables import run
from mcp_django.server.context.context import Context
from mcp_django.server.ports import Overloaded

logger = logging.getLogger("mcp_django.client")

_KEY = os.urandom(32)
"""Digests of credentials mean nothing outside of this process."""
EVERYBODY = ""
"""The owner of what a credential of the project sees."""

Headers = Callable[[Context], Any]
"""Takes the Context of a call and returns the headers that a remote is sent for its caller, or None where it has no
credential there; or awaits them."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What tells the lists and the sessions of one caller from those of others."""

    owner: str
    """Who the caller is: sessions are never shared over callers."""
    sees: str
    """Whose lists the caller sees: its own, or those of everybody who uses the project's credential."""
    digest: str
    """Tells one credential from another; another one sees nothing of the first one's."""
    user: Any = field(default=None, repr=False)
    """The user whose credential it is; None for the project's."""
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def lists(self) -> tuple[str, str]:
        """What the lists are kept under."""
        return self.sees, self.digest

    @property
    def sessions(self) -> tuple[str, str]:
        """What the sessions are kept under."""
        return self.owner, self.digest


def owner_of(ctx: Context) -> str:
    """Who calls: the same through every client, where that can be said."""
    return ctx.principal.owner or ctx.principal.key


async def credential_of(ctx: Context, name: str, *, per_user: bool, headers: Headers | None) -> Credential:
    """The credential of the caller.

    Raises AuthorizationNeeded where it has none, ClientConnectionError where that cannot be found out, Overloaded.
    """
    owner = owner_of(ctx)
    if headers is not None:
        try:
            given = await run(headers, ctx.server.executor, ctx)
            sent = None if given is None else {str(header): str(value) for header, value in given.items()}
        except Overloaded:
            raise
        except Exception:
            logger.exception("The credential of a caller for the server %r cannot be found out", name)
            raise ClientConnectionError("There is no credential for the server") from None
        if sent is None:
            raise AuthorizationNeeded(alias=name)
        return Credential(owner, owner, _digest(sent), headers=sent)
    if not per_user:
        return Credential(owner, EVERYBODY, "")
    user = ctx.user
    if user is None or getattr(user, "pk", None) is None:
        raise AuthorizationNeeded(alias=name)
    return Credential(owner, owner, f"user {user.pk}", user=user)


def _digest(headers: Mapping[str, str]) -> str:
    said = jsonrpc.dumps_sorted({name.lower(): value for name, value in headers.items()})
    return hashlib.blake2b(said, key=_KEY, digest_size=16).hexdigest()
