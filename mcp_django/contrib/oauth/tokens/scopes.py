"""Scopes that clients may have: the declared ones and `offline_access`."""

from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from oauth2_provider.scopes import BaseScopes

from mcp_django import conf
from mcp_django.auth.authorization.scopes import allowed_scopes
from mcp_django.wiring import get_services

OFFLINE_ACCESS: Final = "offline_access"
"""Scope by which clients request refresh tokens (OpenID Connect Core 1.0, section 11).

All clients get refresh tokens. The scope exists because clients request it, and as the scope of tokens in projects that
declare none.
"""


def get_declared_scopes() -> dict[str, str]:
    """Return all scopes with their descriptions, which may be empty."""
    descriptions = conf.get_settings().scopes
    names = dict.fromkeys([*descriptions, *_get_required_scopes(), OFFLINE_ACCESS])
    return {
        name: descriptions.get(name) or (str(_("Stay connected")) if name == OFFLINE_ACCESS else name) for name in names
    }


def get_default_scopes() -> list[str]:
    """Return the scopes for a client that requests none: those required by every request.

    A client that later needs more scopes requests them in a new authorization.
    """
    return _get_required_scopes() or [OFFLINE_ACCESS]


def get_offered_scopes(application: Any, *, user: Any = None) -> frozenset[str]:
    """Return the scopes that a client may have, limited by `user` if given."""
    profile = getattr(application, "mcp_profile", None)
    allowed = None if profile is None else profile.allowed_scopes
    names = frozenset(name for name in get_declared_scopes() if allowed is None or name in allowed)
    if user is None or not user.is_authenticated:
        return names
    return allowed_scopes(user, application.client_id, scopes=names)


def filter_offered_scopes(allowed: str, application: Any, *, user: Any) -> list[str]:
    """Return those of the consented, space-separated scopes that are still offered."""
    offered_scopes = get_offered_scopes(application, user=user)
    return [scope for scope in allowed.split() if scope in offered_scopes]


def _get_required_scopes() -> list[str]:
    """Return the scopes that the endpoints require for every request.

    Endpoints whose scopes depend on the request are left out.
    """
    return sorted({scope for one in get_services().resource_registry.iter_static_resources() for scope in one.scopes})


class DeclaredScopes(BaseScopes):  # type: ignore[misc]
    """Scopes backend for the toolkit's views, forms and metadata."""

    def get_all_scopes(self) -> dict[str, str]:
        return get_declared_scopes()

    def get_available_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        names = get_declared_scopes()
        if application is None:
            return list(names)
        may = get_offered_scopes(application, user=getattr(request, "user", None))
        return [name for name in names if name in may]

    def get_default_scopes(self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any) -> list[str]:
        return get_default_scopes()
