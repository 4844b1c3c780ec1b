"""Permissions of views by the scopes of the caller's token."""

from typing import Self

from rest_framework import exceptions
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from mcp_django.auth.authentication.challenges import build_insufficient_scope_challenge


class HasScopes(BasePermission):  # type: ignore[misc]
    """Permission for tokens with all given scopes.

        permission_classes = [HasScopes("shop:write")]

    Without arguments it requires the view's `required_scopes`.

    Callers without a token are rejected. A token without some of the scopes results in 403 with all required scopes, so
    that the client can request them (RFC 6750, section 3.1).
    """

    def __init__(self, *scopes: str) -> None:
        self._scopes = scopes

    def __call__(self) -> Self:
        """Return the permission itself, because DRF calls each entry for each request."""
        return self

    def has_permission(self, request: Request, view: object) -> bool:
        """Return True if the token has all scopes.

        Raises:
            PermissionDenied: the token lacks a scope; the exception carries a challenge.
        """
        scopes = self._scopes or tuple(getattr(view, "required_scopes", ()))
        allow = getattr(request.auth, "allow_scopes", None)
        if allow is None:
            return False
        if not allow(scopes):
            authenticator = request.successful_authenticator
            denied = exceptions.PermissionDenied("The token lacks a required scope")
            every = {*scopes, *getattr(authenticator, "scopes", ())}
            metadata = getattr(authenticator, "metadata_url", None)
            denied.auth_header = build_insufficient_scope_challenge(every, resource_metadata=metadata).decode()
            raise denied
        return True
