"""Credentials of stored work: looked at again without the token, which is stored nowhere.

A task outlives the request that created it, and so the verification of its token. Before each attempt the source of
the credential returns the scopes that are delegated now, or refuses. A source is a verifier with a method `reload`, or
an object that an app registers for principals that no verifier creates.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from mcp_django.auth.principal import DjangoPrincipal


class CredentialSource(Protocol):
    """Source of credentials. For a verifier the method is optional.

    Without it only the user is looked at again.
    """

    def reload(self, principal: DjangoPrincipal) -> DjangoPrincipal | None:
        """Return a principal with the scopes that its credential delegates now.

        None for a principal of another source. Blocking. A token that expires and is refreshed ends nothing: the grant
        behind it decides. Raises AuthError if the credential was revoked.
        """
        ...


_registered: list[CredentialSource] = []


def register_credential_source(source: CredentialSource) -> None:
    """Add a source for principals that no verifier creates. Call it in `AppConfig.ready`."""
    if source not in _registered:
        _registered.append(source)


def reload_principal(sources: Iterable[Any], principal: DjangoPrincipal) -> DjangoPrincipal | None:
    """Return the principal of the first source that knows the credential; None if no source does.

    Blocking. Raises AuthError.
    """
    for source in (*sources, *_registered):
        reload = getattr(source, "reload", None)
        current: DjangoPrincipal | None = None if reload is None else reload(principal)
        if current is not None:
            return current
    return None
