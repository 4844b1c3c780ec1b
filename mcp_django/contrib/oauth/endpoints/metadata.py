"""What clients need to know of the server (RFC 8414), at each place where one of the revisions looks for it."""

from typing import Any
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from mcp_django import conf
from mcp_django.contrib.oauth.endpoints.endpoint import readable, told
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens import scopes

RFC_8414, OIDC = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
SECRETS = ["client_secret_basic", "client_secret_post"]
_METHODS = "GET, HEAD, OPTIONS"


@csrf_exempt
def metadata(request: HttpRequest, **captured: Any) -> HttpResponse:
    """The document of the one issuer there is; any other's is not found, whatever Host was asked."""
    if request.method == "OPTIONS":
        return readable(HttpResponse(status=204), _METHODS)
    if request.method not in ("GET", "HEAD"):
        return readable(told(405, {"Allow": _METHODS}, error="invalid_request"), _METHODS)
    issuer = conf.issuer()
    if issuer is None or request.path.removesuffix("/") not in places(issuer):
        return readable(told(404, {"Cache-Control": "no-store"}, error="not_found"), _METHODS)
    return readable(told(200, {"Cache-Control": "public, max-age=300"}, **document(issuer)), _METHODS)


metadata.login_required = False  # type: ignore[attr-defined]


def places(issuer: str) -> tuple[str, ...]:
    """The paths of the document of an issuer: the well-known name between host and path, as RFC 8414, section 3.1, has
    it, and behind the path, as OpenID Connect Discovery 1.0, section 4, does.
    """
    path = urlsplit(issuer).path
    return f"{RFC_8414}{path}", f"{OIDC}{path}", f"{path}{OIDC}", f"{path}{RFC_8414}"


def document(issuer: str) -> dict[str, Any]:
    """The metadata. What is not served is not in it."""
    options = get_settings()
    found: dict[str, Any] = {
        "issuer": issuer,
        "authorization_endpoint": _url(issuer, "authorize"),
        "token_endpoint": _url(issuer, "token"),
        "registration_endpoint": _url(issuer, "dcr-register") if options.dynamic_registration else None,
        "revocation_endpoint": _url(issuer, "revoke-token"),
        "introspection_endpoint": _url(issuer, "introspect"),
        "scopes_supported": sorted(scopes.declared()),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        # "none" has clients bring metadata documents.
        "token_endpoint_auth_methods_supported": ["none", *SECRETS],
        "revocation_endpoint_auth_methods_supported": ["none", *SECRETS],
        "introspection_endpoint_auth_methods_supported": SECRETS,
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": options.client_metadata_documents,
    }
    return {name: value for name, value in found.items() if value is not None}


def _url(issuer: str, name: str) -> str | None:
    """The URL of an endpoint on the issuer's host; None for what the project does not serve."""
    parts = urlsplit(issuer)
    try:
        return f"{parts.scheme}://{parts.netloc}{reverse(f'oauth2_provider:{name}')}"
    except NoReverseMatch:
        return None
