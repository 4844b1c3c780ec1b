"""Scopes of personal access tokens: offered, preset and missing ones.

A token without a scope that every request requires is valid and can do nothing. Its creator is warned, and a system
check lists existing ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from mcp_django import conf
from mcp_django.auth.authorization.rule_cache import build_grants
from mcp_django.auth.authorization.scopes import ScopeHierarchy
from mcp_django.auth.principal import get_group_names
from mcp_django.models import ScopeGrant


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingScopes:
    """Scopes that a token lacks for every request to a server that accepts it."""

    server: str
    """Alias of the server."""
    scopes: tuple[str, ...]
    """Missing scopes, sorted."""

    def __str__(self) -> str:
        return _(
            "The token can do nothing: it lacks %(scopes)s, which every request to the server “%(server)s” requires."
        ) % {"scopes": ", ".join(self.scopes), "server": self.server}


class TokenScopes:
    """Scopes of the personal access tokens of one user.

    Grants and groups are read from the database when it is created.
    """

    def __init__(self, user: Any = None) -> None:
        """Create the rules for a user; without one the groups of a grant do not count."""
        settings = conf.get_settings()
        self._declared = settings.scopes
        self._hierarchy = ScopeHierarchy(settings.scope_implies)
        self._required: dict[str, tuple[str, ...]] = {
            # A function of the project computes the scopes from the request.
            alias: () if isinstance(server.required_scopes, str) else server.required_scopes
            for alias, server in settings.servers.items()
        }
        self._grants = build_grants(ScopeGrant.objects.all())
        self._user = user
        self._groups = None if user is None or not self._grants else get_group_names(user)

    @property
    def declares_all(self) -> bool:
        """True if the project declares its scopes, so that an undeclared one is a mistake."""
        return bool(self._declared)

    @property
    def offered(self) -> dict[str, str]:
        """Scopes that a token may hold, with their descriptions.

        These are the declared scopes and those that servers require, except reserved ones.
        """
        return {name: str(self._declared.get(name) or name) for name in self._known if not self._is_reserved(name)}

    def get_preset(self, audience: str = "") -> list[str]:
        """Return the scopes that every request to the server `audience` requires, sorted.

        "" means all servers.
        """
        aliases = [audience] if audience else list(self._required)
        return sorted({scope for alias in aliases for scope in self._required.get(alias, ())})

    def check(self, scopes: Iterable[str]) -> None:
        """Raise ValidationError for undeclared scopes, and for those that a grant reserves."""
        scopes = list(scopes)
        unknown = [scope for scope in scopes if scope not in self._known] if self.declares_all else []
        if unknown:
            message = _('MCP["SCOPES"] does not declare %(scopes)s. Use: %(known)s.')
            params = {"scopes": ", ".join(unknown), "known": ", ".join(self._known)}
            raise ValidationError(message, code="undeclared", params=params)

        reserved = [scope for scope in scopes if self._is_reserved(scope)]
        if reserved:
            message = _("A scope grant reserves %(scopes)s, so a token of this user cannot hold it.")
            raise ValidationError(message, code="reserved", params={"scopes": ", ".join(reserved)})

    def find_missing(self, scopes: Iterable[str], audience: str) -> MissingScopes | None:
        """Return the scopes without which a token can do nothing; None if at least one server serves it.

        `audience` is the alias of the only server that accepts the token, or "" for all servers.
        """
        held = {scope for scope in self._hierarchy.expand(frozenset(scopes)) if not self._is_reserved(scope)}
        found = [
            MissingScopes(server=alias, scopes=tuple(sorted(set(required) - held)))
            for alias, required in self._required.items()
            if audience in ("", alias)
        ]
        if any(not missing.scopes for missing in found):
            return None
        return min(found, key=lambda missing: len(missing.scopes), default=None)

    @property
    def _known(self) -> dict[str, None]:
        return dict.fromkeys([*self._declared, *self.get_preset()])

    def _is_reserved(self, scope: str) -> bool:
        """Return True if a grant denies the scope to personal tokens, or to this user."""
        grant = self._grants.get(scope)
        if grant is None:
            return False
        if not grant.tokens or grant.denies_all:
            return True
        return self._groups is not None and not grant.allows_user(self._user, self._groups)
