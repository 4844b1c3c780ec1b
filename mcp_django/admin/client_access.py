"""Access of OAuth clients for users, which the authorization server finds and withdraws.

The authorization server is an optional app. Pages of other apps use it through these functions.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from mcp_django.auth.principal import PERSONAL_CLIENT_PREFIX, PROJECT_ISSUER, split_key


class ClientAccess(NamedTuple):
    """User and client, as a principal names them."""

    user_key: str
    """Primary key of the user as text."""
    client_id: str


class AccessManager(Protocol):
    """The part of an authorization server that these pages use."""

    def find_clients(self, accesses: Collection[ClientAccess]) -> Mapping[ClientAccess, str]:
        """Return the names of the clients that hold valid tokens for their users."""

    def withdraw(self, access: ClientAccess) -> None:
        """Revoke all tokens of a client for a user, and withdraw the consents."""


_MANAGERS: list[AccessManager] = []


def set_access_manager(manager: AccessManager) -> None:
    """Set the authorization server of the project."""
    _MANAGERS[:] = [manager]


def find_accesses(principals: Iterable[str]) -> dict[str, tuple[ClientAccess, str]]:
    """Return the accesses of clients with valid tokens, and the clients' names, by key of the principal."""
    accesses = {key: access for key in principals if (access := _parse(key)) is not None}
    if not accesses or not _MANAGERS:
        return {}
    names = _MANAGERS[0].find_clients(set(accesses.values()))
    return {key: (access, names[access]) for key, access in accesses.items() if access in names}


def withdraw(access: ClientAccess) -> None:
    """Revoke all tokens of a client for a user, and withdraw the consents."""
    for manager in _MANAGERS:
        manager.withdraw(access)


def _parse(principal: str) -> ClientAccess | None:
    """Return the user and client of a principal of this project; None for other credentials."""
    issuer, subject, client_id = split_key(principal)
    is_client = bool(subject and client_id) and not client_id.startswith(PERSONAL_CLIENT_PREFIX)
    return ClientAccess(subject, client_id) if issuer == PROJECT_ISSUER and is_client else None
