"""WWW-Authenticate challenges (RFC 6750, section 3; RFC 9728, section 5.1)."""

from collections.abc import Iterable

_REALM = "mcp"


def build_challenge(
    *,
    error: str | None = None,
    description: str | None = None,
    scopes: Iterable[str] = (),
    resource_metadata: str | None = None,
) -> bytes:
    """Build the value of the header, one line of ASCII.

    Omit `error` when no token was sent: the client has done nothing wrong yet (RFC 6750, section 3.1).
    """
    params = {
        "error": error,
        "error_description": description,
        "scope": " ".join(sorted(set(scopes))),
        "resource_metadata": resource_metadata,
    }
    given = [f'{name}="{_escape_quoted(value)}"' for name, value in params.items() if value]
    # A challenge needs at least one parameter after the scheme.
    return ("Bearer " + ", ".join(given or [f'realm="{_REALM}"'])).encode("ascii")


def build_insufficient_scope_challenge(
    scopes: Iterable[str],
    *,
    description: str = "The token lacks a scope that this operation requires",
    resource_metadata: str | None = None,
) -> bytes:
    """Build the challenge of a 403.

    Pass all scopes of the operation, so that one step-up is enough.
    """
    return build_challenge(
        error="insufficient_scope", description=description, scopes=scopes, resource_metadata=resource_metadata
    )


def _escape_quoted(value: str) -> str:
    """Escape a value for use inside a quoted-string (RFC 9110, section 5.6.4)."""
    printable = "".join(char if char.isprintable() else " " for char in value)
    text = printable.encode("ascii", "replace").decode("ascii")
    return text.replace("\\", "\\\\").replace('"', '\\"')
