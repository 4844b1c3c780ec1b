"""Comparison of the rights of two users.

A person who may use the credentials of another user gains the rights of that user. One rule bounds this for the
playground, for tokens and external identities of others, and for service accounts: the other user has no more rights.
"""

from typing import Any

from mcp_django.auth.authorization.rule_cache import build_grants
from mcp_django.auth.principal import get_group_names
from mcp_django.models import ScopeGrant


def has_no_more_rights(user: Any, operator: Any) -> bool:
    """Return True if a user has no permission, group and reserved scope that the operator lacks.

    An inactive user counts as an active one, because it may be activated later. Queries the database.
    """
    if _is_superuser(operator):
        return True
    active_user = load_as_active(user)
    if _is_superuser(active_user) or not _get_permissions(active_user) <= _get_permissions(operator):
        return False

    groups, own_groups = get_group_names(active_user), get_group_names(operator)
    if not groups <= own_groups:
        return False
    grants = build_grants(ScopeGrant.objects.all()).values()
    return not any(
        grant.allows_user(active_user, groups) and not grant.allows_user(operator, own_groups) for grant in grants
    )


def load_as_active(user: Any) -> Any:
    """Return a new object of a user, as if it were active.

    It caches no permissions, and must not be saved.
    """
    # Not type(user): the type of a lazy object is the wrapper.
    loaded = user.__class__._default_manager.filter(pk=user.pk).first() or user
    if not loaded.is_active:
        loaded.is_active = True
    return loaded


def _is_superuser(user: Any) -> bool:
    return bool(user.is_active and getattr(user, "is_superuser", False))


def _get_permissions(user: Any) -> set[str]:
    """Return the permissions of a user; empty for a user model without them."""
    load = getattr(user, "get_all_permissions", None)
    return set() if load is None else set(load())
