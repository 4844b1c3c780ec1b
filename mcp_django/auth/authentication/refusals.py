"""HTTP refusals of authentication: JSON-RPC errors with status and challenge."""

from mcp_django.auth.authentication.challenges import build_challenge
from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.resource import ProtectedResource
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidRequest, TransportRefusal


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
        description=problem.description,
        scopes=problem.scopes or resource.scopes,
        resource_metadata=resource.metadata_url,
    )
    headers.append((b"www-authenticate", value))
    return TransportRefusal(problem.status, headers, jsonrpc.error(None, InvalidRequest(text)))


def build_forbidden(text: str) -> TransportRefusal:
    """Build a 403 that no credential could avoid."""
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    return TransportRefusal(403, headers, jsonrpc.error(None, InvalidRequest(text)))
