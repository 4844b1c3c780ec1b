"""Principals of the playground: the operator, or a user for whom the operator may act."""

from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.utils.translation import gettext as _

from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.contrib.playground.models import is_playground_enabled
from mcp_django.extensions.callers import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal, has_no_more_rights

USE_PERMISSION = "mcp_playground.use_playground"
ACT_PERMISSION = "mcp_playground.use_playground_as"
KIND = "playground"


def may_use_playground(operator: Any) -> bool:
    """Return True if the playground exists, and an operator may use it."""
    return is_playground_enabled() and bool(operator.has_perm(USE_PERMISSION))


def find_acting_user(operator: Any, username: str) -> Any:
    """Return the user for whom the operator acts; the operator without a name.

    Raises PermissionDenied. An unknown user and one with more rights have the same answer.
    """
    model = get_user_model()
    if not username or username == operator.get_username():
        return operator
    if not operator.has_perm(ACT_PERMISSION):
        raise PermissionDenied(_("You may use the playground as yourself only."))
    user = model._default_manager.filter(**{model.USERNAME_FIELD: username}).first()
    if user is None or not user.is_active or not has_no_more_rights(user, operator):
        raise PermissionDenied(_("You may not act as %(user)s.") % {"user": username})
    return user


class PlaygroundAccess:
    """Access of operators to the playground, as the credential of tasks that they started there."""

    def reload(self, principal: DjangoPrincipal) -> DjangoPrincipal | None:
        """Return the principal if its operator could start the call now. Raises AuthError."""
        if principal.kind != KIND:
            return None
        operator = principal.user if principal.actor is None else principal.actor
        try:
            allowed = may_use_playground(operator)
            allowed = allowed and find_acting_user(operator, principal.user.get_username()) is not None
        except PermissionDenied:
            allowed = False
        if not allowed:
            raise AuthError("invalid_token", "The operator has no access to the playground any more")
        return principal


def build_principal(user: Any, actor: Any) -> DjangoPrincipal:
    """Return the principal of a user in the playground, with all scopes. `actor` is the operator."""
    return DjangoPrincipal(
        issuer=PROJECT_ISSUER,
        subject=str(user.pk),
        client_id=KIND,
        user=user,
        scopes=ALL_SCOPES,
        kind=KIND,
        actor=actor,
    )
