"""Who a view sees: the principal of the call.

The call was authenticated before it came here, by its own credential, so a view's authenticators have nothing to look
at: no token or cookie of theirs was sent, and there is no form whose CSRF token could be missing. Their place is taken
through `as_view`, for the one request; whether the view authenticates anybody, and what it answers to nobody (401 or
403), is still what they say. Permission classes and throttles run as always.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.utils.translation import gettext_lazy as _
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from mcp_django.internal_request import PRINCIPAL, fresh


class Delegation:
    """`request.auth`: what was delegated to the client of a call.

    It answers what django-oauth-toolkit's permission classes ask of an access token, so that `TokenHasScope` and its
    like hold for the scopes of the call.
    """

    def __init__(self, principal: Any) -> None:
        self.principal = principal
        """Who asks, with scopes, claims and the credential's name. Never the credential."""

    def __repr__(self) -> str:
        return f"<Delegation by {self.principal!r}>"

    @property
    def user(self) -> Any:
        return self.principal.user

    @property
    def scope(self) -> str:
        """The scopes as RFC 6749 writes them: in one text, with spaces."""
        return " ".join(sorted(self.principal.scopes))

    def allow_scopes(self, scopes: Iterable[str]) -> bool:
        """Are all of these delegated?"""
        return bool(self.principal.has_scopes(scopes))

    def is_expired(self) -> bool:
        """No: an expired credential comes to no call."""
        return False

    def is_valid(self, scopes: Iterable[str] | None = None) -> bool:
        """Are all of these delegated?"""
        return self.allow_scopes(scopes or ())


class PrincipalAuthentication(BaseAuthentication):  # type: ignore[misc]
    """Gives a view the user of the call, if the view authenticates at all."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """Nobody for a view without authenticators, and for a local principal without a user.

        Raises AuthenticationFailed for a user who is not active, as DRF's own authenticators do.
        """
        if not _authenticators(request):
            request.authenticators = ()  # as over HTTP: the view knows nobody, and says 403, not 401
            return None
        principal = request.META[PRINCIPAL]
        user = principal.user
        if user is None or getattr(user, "is_anonymous", False):
            return None if principal.is_local else (AnonymousUser(), Delegation(principal))
        if not getattr(user, "is_active", True):
            raise exceptions.AuthenticationFailed(_("User inactive or deleted."))
        return fresh(user), Delegation(principal)

    def authenticate_header(self, request: Request) -> str | None:
        """What the view's own first authenticator says."""
        own = _authenticators(request)
        header: str | None = own[0].authenticate_header(request) if own else None
        return header


def stand_in() -> list[PrincipalAuthentication]:
    """What stands for a view's `get_authenticators`."""
    return [PrincipalAuthentication()]


def _authenticators(request: Request) -> list[Any]:
    view = request.parser_context["view"]
    return list(type(view).get_authenticators(view))
