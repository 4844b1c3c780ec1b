"""Authentication of calls to DRF views, as the principal of the call.

The call is already authenticated by its own credential. The view's authenticators cannot run: their tokens and cookies
were not sent, and CSRF does not apply. `as_view` replaces them for the one request.

The view's own authenticators still determine whether it authenticates at all, and the status for anonymous callers (401
or 403). Permission classes and throttles run as always.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.utils.translation import gettext_lazy as _
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from mcp_django.extensions.internal_requests import PRINCIPAL_META_KEY, copy_user


class Delegation:
    """Value of `request.auth`: the rights delegated to the client of a call.

    It has the methods of an access token that django-oauth-toolkit's permission classes use. `TokenHasScope` and
    similar classes therefore check the scopes of the call.
    """

    def __init__(self, principal: Any) -> None:
        self.principal = principal
        """The principal of the call.

        It has scopes, claims and the credential's name, but never the credential.
        """

    def __repr__(self) -> str:
        return f"<Delegation by {self.principal!r}>"

    @property
    def user(self) -> Any:
        """Return the user of the call."""
        return self.principal.user

    @property
    def scope(self) -> str:
        """Return the scopes as RFC 6749 writes them: one text, separated by spaces."""
        return " ".join(sorted(self.principal.scopes))

    def allow_scopes(self, scopes: Iterable[str]) -> bool:
        """Return True if all these scopes are delegated."""
        return bool(self.principal.has_scopes(scopes))

    def is_expired(self) -> bool:
        """Return False: calls with expired credentials are rejected earlier."""
        return False

    def is_valid(self, scopes: Iterable[str] | None = None) -> bool:
        """Return True if all these scopes are delegated."""
        return self.allow_scopes(scopes or ())


class PrincipalAuthentication(BaseAuthentication):  # type: ignore[misc]
    """Authenticator that returns the user of the call, if the view has authenticators."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """Return the user and the delegation of the call.

        Returns None for a view without authenticators, and for a local principal without a user.

        Raises:
            AuthenticationFailed: the user is inactive, as with DRF's own authenticators.
        """
        if not _get_view_authenticators(request):
            request.authenticators = ()  # as over HTTP: without authenticators DRF responds with 403, not 401
            return None
        principal = request.META[PRINCIPAL_META_KEY]
        user = principal.user
        if user is None or getattr(user, "is_anonymous", False):
            return None if principal.is_local else (AnonymousUser(), Delegation(principal))
        if not getattr(user, "is_active", True):
            raise exceptions.AuthenticationFailed(_("User inactive or deleted."))
        return copy_user(user), Delegation(principal)

    def authenticate_header(self, request: Request) -> str | None:
        """Return the header of the view's own first authenticator."""
        view_authenticators = _get_view_authenticators(request)
        header: str | None = view_authenticators[0].authenticate_header(request) if view_authenticators else None
        return header


def get_principal_authenticators() -> list[PrincipalAuthentication]:
    """Return the replacement for the result of a view's `get_authenticators`."""
    return [PrincipalAuthentication()]


def _get_view_authenticators(request: Request) -> list[Any]:
    view = request.parser_context["view"]
    return list(type(view).get_authenticators(view))
