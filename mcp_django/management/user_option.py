"""Who a command acts as."""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mcp_django.auth.principal import EVERY_SCOPE, ISSUER, Principal, local_principal
from mcp_django.conf import get_settings


def acting_as(username: str | None, scopes: Iterable[str] | None) -> Principal:
    """The principal of a user, with this user's permissions and `scopes` (None: every scope that anything asks for).

    Without a username, the local principal, who may do everything, and acts as `MCP["LOCAL_USER"]`. Raises CommandError
    for an unknown user, and for scopes without a user: the local principal cannot hold less than everything.
    """
    if username is None:
        if scopes:
            raise CommandError("--scope says what a user's client holds; name the user with --user")
        name = get_settings().local_user
        return local_principal(_user(name, ', whom MCP["LOCAL_USER"] names') if name else None)
    user = _user(username)
    held = frozenset(scopes) if scopes is not None else EVERY_SCOPE
    # The user and nobody else: what they own is theirs here too. The client keeps sessions apart.
    return Principal(issuer=ISSUER, subject=str(user.pk), client_id="command", user=user, scopes=held, kind="command")


def active_user(username: str) -> Any:
    """The user whom a credential is made for. Raises CommandError when there is none, or none who may log in."""
    user = _user(username)
    if not user.is_active:
        raise CommandError(f"The user {username!r} is not active; a token would be refused")
    return user


def _user(username: str, whence: str = "") -> Any:
    model = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(username)
    except model.DoesNotExist:
        raise CommandError(f"There is no user {username!r}{whence}") from None
