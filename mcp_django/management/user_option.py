"""The `--user` and `--scope` options of commands."""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal, local_principal
from mcp_django.conf import get_settings


def get_command_principal(username: str | None, scopes: Iterable[str] | None) -> DjangoPrincipal:
    """Return the principal of a user with the given scopes; None grants all.

    Without a username this is the local principal, which may do everything and acts as `MCP["LOCAL_USER"]`. Raises
    CommandError for an unknown user, and for scopes without a user, because the local principal has all scopes.
    """
    if username is None:
        if scopes:
            raise CommandError("--scope requires --user; the local principal has all scopes")
        name = get_settings().local_user
        return local_principal(_get_user(name, ' in MCP["LOCAL_USER"]') if name else None)
    user = _get_user(username)
    held_scopes = frozenset(scopes) if scopes is not None else ALL_SCOPES
    # Issuer and subject are the user's own, so the principal also owns the user's data. `client_id` separates sessions.
    return DjangoPrincipal(
        issuer=PROJECT_ISSUER, subject=str(user.pk), client_id="command", user=user, scopes=held_scopes, kind="command"
    )


def get_active_user(username: str) -> Any:
    """Return the user for a new credential.

    Raises CommandError for an unknown or inactive user.
    """
    user = _get_user(username)
    if not user.is_active:
        raise CommandError(f"The user {username!r} is not active; a token would be refused")
    return user


def _get_user(username: str, source: str = "") -> Any:
    model = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(username)
    except model.DoesNotExist:
        raise CommandError(f"Unknown user {username!r}{source}") from None
