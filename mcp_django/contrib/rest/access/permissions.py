"""Permissions of views by the scopes of the caller's token."""

from typing import Any, Self

from rest_framework import exceptions
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from mcp_django.auth.authentication.challenges import insufficient_scope


class HasScopes(BasePermission):  # type: ignore[misc]
    """Lets bearers of tokens with these scopes in: `permission_classes = [HasScopes("shop:write")]`. Without arguments
    it takes those of the view's `required_scopes`.

    Who comes without a token has no scopes, and is not let in. A token that lacks some is answered with 403 and all of
    them, so that the client can ask for more (RFC 6750, section 3.1).
    """

    def __init__(self, *scopes: str) -> None:
        self._scopes = scopes

    def __call__(self) -> Self:
        """Django REST framework makes one of each entry for each request."""
        return self

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises PermissionDenied with a challenge for a token that lacks a scope."""
        scopes = self._scopes or tuple(getattr(view, "required_scopes", ()))
        allow = getattr(request.auth, "allow_scopes", None)
        if allow is None:
            return False
        if not allow(scopes):
            authenticator = request.successful_authenticator
            refused = exceptions.PermissionDenied("The token lacks a scope that this takes")
            every = {*scopes, *getattr(authenticator, "scopes", ())}
            metadata = getattr(authenticator, "metadata_url", None)
            refused.auth_header = insufficient_scope(every, resource_metadata=metadata).decode()
            raise refused
        return True
