"""Access of clients for users, as the control room shows and withdraws it."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils import timezone

from mcp_django.admin.client_access import ClientAccess
from mcp_django.contrib.oauth.flows.revocation import withdraw_access
from mcp_django.contrib.oauth.toolkit_compat import (
    get_access_token_model,
    get_application_model,
    get_primary_queryset,
    get_refresh_token_model,
)
from mcp_django.types import clean_line

MAX_NAME_CHARACTERS = 60


class OAuthAccessManager:
    """Manager of the access that this authorization server gave."""

    def find_clients(self, accesses: Collection[ClientAccess]) -> Mapping[ClientAccess, str]:
        """Return the names of the clients that hold valid tokens for their users. Runs two statements."""
        wanted = {
            "application__client_id__in": {access.client_id for access in accesses},
            "user__in": list(_iter_user_keys(access.user_key for access in accesses)),
        }
        tokens = get_primary_queryset(get_access_token_model()).filter(**wanted, expires__gt=timezone.now())
        refresh = get_primary_queryset(get_refresh_token_model()).filter(**wanted, revoked=None)
        fields = ("user", "application__client_id", "application__name")
        found: dict[ClientAccess, str] = {}
        for rows in (tokens, refresh):
            for user, client_id, name in rows.order_by().values_list(*fields).distinct():
                found[ClientAccess(str(user), client_id)] = clean_line(name or client_id, MAX_NAME_CHARACTERS)
        return {access: found[access] for access in accesses if access in found}

    def withdraw(self, access: ClientAccess) -> None:
        """Revoke all tokens of a client for a user, and withdraw the consents."""
        user = get_primary_queryset(get_user_model()).filter(pk__in=_iter_user_keys([access.user_key])).first()
        application = get_primary_queryset(get_application_model()).filter(client_id=access.client_id).first()
        if user is not None and application is not None:
            withdraw_access(user, application)


def _iter_user_keys(texts: Iterable[str]) -> Iterator[Any]:
    """Yield primary keys of users, and leave out those of another user model."""
    field = get_user_model()._meta.pk
    for text in texts:
        try:
            yield field.to_python(text)
        except ValidationError:
            continue
