"""Storage of tokens: one row for each owner and server, shared by all workers.

The key of a row consists of alias, full server URL and owner, so tokens are never used for another URL or user. A
worker claims the row before it renews the tokens. Only that worker sends the refresh token; the others use the result.
A server that receives a refresh token twice revokes the whole grant (RFC 9700, section 4.14).
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.db.models import F, Q
from django.utils import timezone

from mcp_django.aio.asgiref_internals import is_async_to_sync_loop
from mcp_django.client.oauth.crypto import hash_parts, seal, unseal
from mcp_django.conf.clients import ClientSettings
from mcp_django.crypto import UnsealError
from mcp_django.models import ClientToken
from mcp_django.protocol import jsonrpc

CLAIM_SECONDS: Final = 30.0
"""Seconds for which a renewal claims the row.

It is longer than `http.REQUEST_TIMEOUT_SECONDS`.
"""
MAX_RENEW_EARLY_SECONDS: Final = 30.0
"""Seconds before expiry to renew a token; at most a tenth of its lifetime."""
GRANT_PURPOSE, REGISTRATION_PURPOSE = "grant", "registration"
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TokenGrant:
    """Tokens of an authorization server, with the data to renew and revoke them."""

    issuer: str
    access_token: str
    refresh_token: str | None = None
    scope: str | None = None
    expires_at: float | None = None
    """Expiry in seconds since the epoch; None if unknown."""
    lifetime: float = 0.0
    """Lifetime of the token when issued, in seconds."""
    token_endpoint: str = ""
    revocation_endpoint: str | None = None
    resource: str | None = None
    """The resource that the token is for (RFC 8707)."""
    client: dict[str, Any] = field(default_factory=dict)
    """The OAuth client of the project: id, secret and authentication method."""

    def is_fresh(self) -> bool:
        """Return True if the token does not expire soon."""
        return self.expires_at is None or time.time() < self.expires_at - min(
            MAX_RENEW_EARLY_SECONDS, self.lifetime / 10
        )

    def is_expired(self) -> bool:
        """Return True if the token has expired."""
        return self.expires_at is not None and time.time() >= self.expires_at


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGrant:
    """A snapshot of the row."""

    generation: int
    grant: TokenGrant | None
    missing_scopes: str = ""


class TokenRow:
    """The row of `owner` (a user, or None for the project) for one server.

    Its methods block.
    """

    def __init__(self, settings: ClientSettings, owner: Any = None) -> None:
        self.alias = settings.alias
        self.place = settings.display_location
        self._url = settings.url or ""
        self.owner = None if owner is None else owner.pk
        self.key = hash_parts(self.alias, self._url, self._owner_label)

    @property
    def _owner_label(self) -> str:
        return "" if self.owner is None else f"user {self.owner}"

    def read(self) -> StoredGrant | None:
        """Read the row; None without a row.

        Tokens that cannot be decrypted are omitted. Tokens decrypted by a fallback of SECRET_KEY are encrypted again.
        """
        row = self._rows().first()
        if row is None:
            return None
        grant = None
        if row.grant:
            values = self._unseal(row, GRANT_PURPOSE, row.grant, row.issuer)
            grant = None if values is None else _parse_grant(values)
        return StoredGrant(generation=row.generation, grant=grant, missing_scopes=row.wanted)

    def write(self, grant: TokenGrant, *, expected_generation: int | None = None) -> bool:
        """Store `grant` and return True.

        With `expected_generation`, returns False without storing if the row has another generation.
        """
        expires_at = None if grant.expires_at is None else datetime.fromtimestamp(grant.expires_at, UTC)
        values = {
            "grant": self._seal(GRANT_PURPOSE, asdict(grant), grant.issuer),
            "issuer": grant.issuer,
            "scopes": grant.scope or "",
            "expires_at": expires_at,
            "updated": timezone.now(),
            "renewing_until": None,
        }
        if expected_generation is None:
            self._create_row()
            return bool(self._rows().update(**values, wanted="", generation=F("generation") + 1))
        return bool(
            self._rows().filter(generation=expected_generation).update(**values, generation=expected_generation + 1)
        )

    def claim(self, generation: int) -> bool:
        """Claim the row for a renewal; return False if it is claimed or has changed."""
        now = timezone.now()
        free = Q(renewing_until=None) | Q(renewing_until__lt=now)
        rows = self._rows().filter(free, generation=generation)
        return bool(rows.update(renewing_until=now + timedelta(seconds=CLAIM_SECONDS)))

    def release(self, generation: int) -> None:
        """Release the claim."""
        self._rows().filter(generation=generation).update(renewing_until=None)

    def clear_grant(self, generation: int) -> None:
        """Delete the invalid tokens of a generation.

        The row stays for a new authorization.
        """
        values: dict[str, Any] = {"grant": "", "expires_at": None, "renewing_until": None}
        self._rows().filter(generation=generation).update(**values, generation=generation + 1)

    def save_missing_scopes(self, scopes: str) -> None:
        """Store scopes that a call lacked."""
        self._rows().exclude(wanted=scopes).update(wanted=scopes)

    def delete(self) -> TokenGrant | None:
        """Delete the row, and return its tokens, for their revocation."""
        stored = self.read()
        self._rows().delete()
        return None if stored is None else stored.grant

    def get_or_create(self) -> StoredGrant:
        """Read the row, creating one without tokens if missing."""
        self._create_row()
        return self.read() or StoredGrant(generation=0, grant=None)

    def read_registration(self) -> dict[str, Any] | None:
        """Return this project's client registration, shared by all users."""
        row = self._rows().exclude(registration="").first()
        return None if row is None else self._unseal(row, REGISTRATION_PURPOSE, row.registration, "")

    def save_registration(self, registration: dict[str, Any]) -> None:
        """Seal a registration, and store it in the row, which is created if missing."""
        self._create_row()
        self._rows().update(registration=self._seal(REGISTRATION_PURPOSE, registration, ""))

    def delete_registration(self, client_id: str) -> None:
        """Delete the registration if it still has this client id."""
        row = self._rows().first()
        registration = self.read_registration()
        if row is not None and registration is not None and registration.get("client_id") == client_id:
            self._rows().filter(registration=row.registration).update(registration="")

    def _rows(self) -> Any:
        return ClientToken.objects.filter(key=self.key)

    def _create_row(self) -> None:
        values = {"alias": self.alias, "server": self.place[:2000], "user_id": self.owner}
        ClientToken.objects.get_or_create(key=self.key, defaults=values)

    def _binding(self, issuer: str) -> tuple[str, ...]:
        return self.alias, self._url, self._owner_label, issuer

    def _seal(self, purpose: str, values: dict[str, Any], issuer: str) -> str:
        return seal(json.dumps(values).encode(), self._binding(issuer), purpose=purpose)

    def _unseal(self, row: ClientToken, purpose: str, text: str, issuer: str) -> dict[str, Any] | None:
        try:
            data, stale = unseal(text, self._binding(issuer), purpose=purpose)
            values: dict[str, Any] = jsonrpc.loads_exactly(data)
        except (UnsealError, ValueError):
            return None
        if stale:
            # Unless another worker has written the row in the meantime.
            self._rows().filter(**{purpose: text}).update(**{purpose: self._seal(purpose, values, issuer)})
        return values


def _parse_grant(values: dict[str, Any]) -> TokenGrant | None:
    try:
        return TokenGrant(**values)
    except TypeError:  # written by another version of this package
        return None


async def run_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that uses the database, in a thread.

    On a loop of `async_to_sync` it runs on the waiting thread, and shares its connection and transaction. Otherwise it
    runs on a separate thread, because this call may block the caller's thread.
    """
    if is_async_to_sync_loop():
        return await sync_to_async(function, thread_sensitive=True)(*args, **kwargs)
    return await sync_to_async(_with_connections(function), thread_sensitive=False)(*args, **kwargs)


def _with_connections(function: Callable[P, T]) -> Callable[P, T]:
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return run
