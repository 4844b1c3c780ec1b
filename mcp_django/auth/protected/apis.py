"""The project's own APIs that accept tokens, as protected resources."""

from typing import NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.client_address import FORWARDED_HEADERS
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource, canonicalize_url
from mcp_django.protocol.headers import Headers


class ProtectedAPI(NamedTuple):
    """An API as the target of tokens."""

    audience: str = "api"
    """Server name in personal tokens that are limited to this API."""
    resource: str | None = None
    """URL of the API, as authorization servers write it into tokens.

    None: only personal tokens are accepted.
    """
    scopes: tuple[str, ...] = ()
    """Scopes that every request requires."""
    metadata_url: str | None = None
    """URL of its metadata (RFC 9728)."""

    async def authenticate(self, request: HttpRequest) -> DjangoPrincipal:
        """Return the principal of the request's bearer token.

        Raises:
            TransportRefusal: a missing or invalid token, with a challenge where one applies.
            Overloaded: tokens cannot be verified at the moment, or too many were invalid.
            ImproperlyConfigured: `resource` is an invalid URL.
        """
        auth_request = AuthRequest(_select_headers(request), request.META.get("REMOTE_ADDR"), request.method or "GET")
        return await _get_authenticator(self).authenticate_throttled(auth_request)


def has_bearer_token(request: HttpRequest) -> bool:
    """Return True if the request carries a bearer token, valid or not."""
    credential = request.META.get("HTTP_AUTHORIZATION")
    return isinstance(credential, str) and credential.strip(" ").partition(" ")[0].lower() == "bearer"


@conf.cached("OAUTH2_PROVIDER", "SECRET_KEY", "DEBUG")
def _get_authenticator(api: ProtectedAPI) -> Authenticator:
    uri = canonicalize_url(api.resource)
    if api.resource is not None and uri is None:
        raise ImproperlyConfigured(f"{api.resource!r} is not a valid URL for an API")
    scopes = tuple(sorted(api.scopes))
    protected = ProtectedResource(server=api.audience, uri=uri, scopes=scopes, metadata_url=api.metadata_url)
    # Imported by name, because `wiring` is a higher layer.
    authenticator: Authenticator = import_string("mcp_django.wiring.authentication.create_resource_authenticator")(
        protected
    )
    return authenticator


def _select_headers(request: HttpRequest) -> Headers:
    """Return the credential and the proxy headers of a request.

    Invalid credentials are counted by client address.
    """
    names = (b"authorization", *sorted(FORWARDED_HEADERS))
    values = ((name, request.META.get(f"HTTP_{name.decode().upper().replace('-', '_')}")) for name in names)
    return Headers([(name, text.encode("latin-1", "replace")) for name, text in values if isinstance(text, str)])
