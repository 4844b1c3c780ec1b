"""APIs of the project that take the tokens of its MCP endpoints, each as a resource of its own."""

from functools import cache
from typing import NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils.module_loading import import_string

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.client_address import FORWARDED
from mcp_django.auth.principal import Principal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource, canonical
from mcp_django.protocol.headers import Headers


class Api(NamedTuple):
    """What tokens have to be made for."""

    audience: str = "api"
    """What personal tokens for this API alone name as their server."""
    resource: str | None = None
    """Its URL, as authorization servers write it into tokens. Without it only personal tokens are taken."""
    scopes: tuple[str, ...] = ()
    """What every request takes."""
    metadata_url: str | None = None
    """Where its metadata is (RFC 9728)."""

    async def principal(self, request: HttpRequest) -> Principal:
        """Who has sent the request, by its bearer token. Raises TransportRefusal, with a challenge where that helps,
        and Overloaded; ImproperlyConfigured for a resource that is none.
        """
        asked = AuthRequest(_headers(request), request.META.get("REMOTE_ADDR"), request.method or "GET")
        return await _authenticator(self).admit(asked)


def sends_token(request: HttpRequest) -> bool:
    """Does the request bring a bearer token, whatever that is worth?"""
    credential = request.META.get("HTTP_AUTHORIZATION")
    return isinstance(credential, str) and credential.strip(" ").partition(" ")[0].lower() == "bearer"


@cache
def _authenticator(api: Api) -> Authenticator:
    uri = canonical(api.resource)
    if api.resource is not None and uri is None:
        raise ImproperlyConfigured(f"{api.resource!r} is no URL that can name an API")
    scopes = tuple(sorted(api.scopes))
    protected = ProtectedResource(server=api.audience, uri=uri, scopes=scopes, metadata_url=api.metadata_url)
    # By name, because what is made of the settings is made above this room.
    found: Authenticator = import_string("mcp_django.wiring.authentication.authenticator_of")(protected)
    return found


def _headers(request: HttpRequest) -> Headers:
    """The credential, and what says whom a proxy has passed on: bad credentials count by that address."""
    names = (b"authorization", *sorted(FORWARDED))
    found = ((name, request.META.get(f"HTTP_{name.decode().upper().replace('-', '_')}")) for name in names)
    return Headers([(name, text.encode("latin-1", "replace")) for name, text in found if isinstance(text, str)])


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: object) -> None:
    if setting in {"MCP", "OAUTH2_PROVIDER", "SECRET_KEY", "DEBUG"}:
        _authenticator.cache_clear()
