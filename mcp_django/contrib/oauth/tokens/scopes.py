"""The scopes that clients may have: those that the project declares, and `offline_access`."""

from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from oauth2_provider.scopes import BaseScopes

from mcp_django import conf
from mcp_django.auth.authorization.scopes import allowed_scopes
from mcp_django.wiring.authentication import resources

OFFLINE: Final = "offline_access"
"""The scope by which clients ask for refresh tokens (OpenID Connect Core 1.0, section 11). Everybody gets those; it is
there because clients add it, and so that a token has a scope where a project declares none."""


def declared() -> dict[str, str]:
    """Every scope with its description, which may be empty."""
    said = conf.get_settings().scopes
    names = dict.fromkeys([*said, *_required(), OFFLINE])
    return {name: said.get(name) or (str(_("Stay connected")) if name == OFFLINE else name) for name in names}


def default() -> list[str]:
    """What a client gets that asks for nothing in particular: what every request takes. A client that finds out later
    what else it needs comes again for that.
    """
    return _required() or [OFFLINE]


def offered(application: Any, *, user: Any = None) -> frozenset[str]:
    """The scopes that a client may have, of `user` if there is one."""
    profile = getattr(application, "mcp_profile", None)
    allowed = None if profile is None else profile.allowed_scopes
    names = frozenset(name for name in declared() if allowed is None or name in allowed)
    if user is None or not user.is_authenticated:
        return names
    return allowed_scopes(user, application.client_id, scopes=names)


def still_offered(allowed: str, application: Any, *, user: Any) -> list[str]:
    """What is left of the scopes that a user has allowed, a list with spaces, as far as client and user may still have
    it.
    """
    offer = offered(application, user=user)
    return [scope for scope in allowed.split() if scope in offer]


def _required() -> list[str]:
    """What the endpoints take of every request, as far as that does not depend on the request."""
    registry = resources()
    fixed = [registry.of(alias) for alias in registry.aliases if not registry.varies(alias)]
    return sorted({scope for resource in fixed for scope in resource.scopes})


class DeclaredScopes(BaseScopes):  # type: ignore[misc]
    """The same for the toolkit's views, forms and metadata."""

    def get_all_scopes(self) -> dict[str, str]:
        return declared()

    def get_available_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        names = declared()
        if application is None:
            return list(names)
        may = offered(application, user=getattr(request, "user", None))
        return [name for name in names if name in may]

    def get_default_scopes(self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any) -> list[str]:
        return default()
