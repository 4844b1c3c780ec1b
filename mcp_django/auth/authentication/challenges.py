"""Challenges and refusals of authentication (RFC 6750, section 3; RFC 9728, section 5.1)."""

from collections.abc import Iterable

from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.resource import ProtectedResource
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidRequest, TransportRefusal

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


def build_refusal(problem: AuthError, resource: ProtectedResource) -> TransportRefusal:
    """Build the response to a rejected credential.

    The status is 400, 401 or 403 with a challenge, or 503.
    """
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    text = problem.description or "Send a bearer token in the Authorization header"
    if problem.kind == "unavailable":
        headers.append((b"retry-after", b"%d" % max(1, round(problem.retry_after))))
        return TransportRefusal(problem.status, headers, jsonrpc.error(None, InternalError(text)))
    value = build_challenge(
        error=None if problem.kind == "missing" else problem.kind,
        description=None if problem.kind == "missing" else problem.description,
        scopes=problem.scopes or resource.scopes,
        resource_metadata=resource.metadata_url,
    )
    headers.append((b"www-authenticate", value))
    return TransportRefusal(problem.status, headers, jsonrpc.error(None, InvalidRequest(text)))


def build_forbidden(text: str) -> TransportRefusal:
    """Build a 403 that no credential could avoid."""
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    return TransportRefusal(403, headers, jsonrpc.error(None, InvalidRequest(text)))
