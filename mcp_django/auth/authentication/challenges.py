"""WWW-Authenticate: how a client is told which credential it lacks (RFC 6750, section 3; RFC 9728, section 5.1)."""

from collections.abc import Iterable

_REALM = "mcp"


def challenge(
    *,
    error: str | None = None,
    description: str | None = None,
    scopes: Iterable[str] = (),
    resource_metadata: str | None = None,
) -> bytes:
    """The header's value, one line of ASCII.

    Leave `error` out when no token was sent: the client has done nothing wrong yet (RFC 6750, section 3.1).
    """
    params = {
        "error": error,
        "error_description": description,
        "scope": " ".join(sorted(set(scopes))),
        "resource_metadata": resource_metadata,
    }
    given = [f'{name}="{_quoted(value)}"' for name, value in params.items() if value]
    # The scheme alone is no challenge: it needs a parameter.
    return ("Bearer " + ", ".join(given or [f'realm="{_REALM}"'])).encode("ascii")


def insufficient_scope(
    scopes: Iterable[str],
    *,
    description: str = "The token lacks a scope that this operation takes",
    resource_metadata: str | None = None,
) -> bytes:
    """The challenge of a 403: `scopes` are all that the operation takes, so that one step-up brings them."""
    return challenge(
        error="insufficient_scope", description=description, scopes=scopes, resource_metadata=resource_metadata
    )


def _quoted(value: str) -> str:
    """The inside of a quoted-string (RFC 9110, section 5.6.4)."""
    printable = "".join(char if char.isprintable() else " " for char in value)
    text = printable.encode("ascii", "replace").decode("ascii")
    return text.replace("\\", "\\\\").replace('"', '\\"')
