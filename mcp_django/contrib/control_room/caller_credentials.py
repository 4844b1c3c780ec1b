"""Credentials of callers: personal access tokens and OAuth clients.

The pages let operators revoke them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.http import urlencode

from mcp_django.admin.client_access import ClientAccess, find_accesses
from mcp_django.auth.principal import PERSONAL_CLIENT_PREFIX, split_key
from mcp_django.models import PersonalAccessToken

REVOKE_PERMISSION = "mcp_control_room.revoke_access"
"""Permission to revoke the access of OAuth clients."""


@dataclass(frozen=True, slots=True)
class CallerCredential:
    """Credential of a caller: a personal access token, or the tokens of an OAuth client."""

    principal: str
    name: str
    """Name of the token or of the client."""
    token: PersonalAccessToken | None = None
    access: ClientAccess | None = None
    """Access of an OAuth client that holds valid tokens."""

    @property
    def query(self) -> str:
        """Query of the page that revokes the access of the client."""
        return urlencode({"principal": self.principal})


def load_credentials(principals: Iterable[str]) -> dict[str, CallerCredential]:
    """Return the credentials that still exist, by key of the principal. Runs at most three statements."""
    keys = set(principals)
    numbers = {key: number for key in keys if (number := _find_token_number(key)) is not None}
    tokens = PersonalAccessToken.objects.in_bulk(set(numbers.values())) if numbers else {}
    found = {
        key: CallerCredential(key, tokens[number].name, token=tokens[number])
        for key, number in numbers.items()
        if number in tokens
    }
    for key, (access, name) in find_accesses(keys - found.keys()).items():
        found[key] = CallerCredential(key, name, access=access)
    return found


def _find_token_number(principal: str) -> int | None:
    """Return the primary key of the personal access token of a principal; None without one."""
    _issuer, _subject, client_id = split_key(principal)
    number = client_id.removeprefix(PERSONAL_CLIENT_PREFIX)
    return int(number) if number != client_id and number.isdecimal() else None
