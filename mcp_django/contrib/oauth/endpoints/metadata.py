"""Server metadata (RFC 8414), served at the paths of all protocol revisions."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from mcp_django import conf
from mcp_django.contrib.oauth.endpoints.endpoint import add_cors_headers, json_response
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens import scopes

RFC_8414_PATH, OIDC_PATH = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
SECRET_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]
_METHODS = "GET, HEAD, OPTIONS"


@csrf_exempt
@login_not_required
def metadata(request: HttpRequest, **captured: Any) -> HttpResponse:
    """Serve the document of the configured issuer, whatever Host was requested.

    Other issuers are not found.
    """
    return add_cors_headers(_build_response(request), _METHODS)


def _build_response(request: HttpRequest) -> HttpResponse:
    if request.method == "OPTIONS":
        return HttpResponse(status=204)
    if request.method not in ("GET", "HEAD"):
        return json_response(405, {"Allow": _METHODS}, error="invalid_request")
    issuer = conf.issuer()
    if issuer is None or request.path.removesuffix("/") not in get_metadata_paths(issuer):
        return json_response(404, {"Cache-Control": "no-store"}, error="not_found")
    return json_response(200, {"Cache-Control": "public, max-age=300"}, **build_metadata(issuer))


def get_metadata_paths(issuer: str) -> tuple[str, ...]:
    """Return the paths of an issuer's document.

    RFC 8414, section 3.1, inserts the well-known name between host and path. OpenID Connect Discovery 1.0, section 4,
    appends it to the path.
    """
    path = urlsplit(issuer).path
    return f"{RFC_8414_PATH}{path}", f"{OIDC_PATH}{path}", f"{path}{OIDC_PATH}", f"{path}{RFC_8414_PATH}"


def build_metadata(issuer: str) -> dict[str, Any]:
    """Return the metadata of the served features."""
    options = get_settings()
    members: dict[str, Any] = {
        "issuer": issuer,
        "authorization_endpoint": _build_endpoint_url(issuer, "authorize"),
        "token_endpoint": _build_endpoint_url(issuer, "token"),
        "registration_endpoint": _build_endpoint_url(issuer, "dcr-register") if options.dynamic_registration else None,
        "revocation_endpoint": _build_endpoint_url(issuer, "revoke-token"),
        "introspection_endpoint": _build_endpoint_url(issuer, "introspect"),
        "scopes_supported": sorted(scopes.get_declared_scopes()),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        # "none" makes clients use metadata documents.
        "token_endpoint_auth_methods_supported": ["none", *SECRET_AUTH_METHODS],
        "revocation_endpoint_auth_methods_supported": ["none", *SECRET_AUTH_METHODS],
        "introspection_endpoint_auth_methods_supported": SECRET_AUTH_METHODS,
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": options.client_metadata_documents,
    }
    return {name: value for name, value in members.items() if value is not None}


def _build_endpoint_url(issuer: str, name: str) -> str | None:
    """Return the URL of an endpoint on the issuer's host; None if it is not served."""
    parts = urlsplit(issuer)
    try:
        return f"{parts.scheme}://{parts.netloc}{reverse(f'oauth2_provider:{name}')}"
    except NoReverseMatch:
        return None
