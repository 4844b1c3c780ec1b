"""Bearer tokens for plain Django views.

The verifiers of the MCP endpoints check them.

    @bearer_required(resource="https://shop.example/orders", scopes=["shop:read"])
    def orders(request):
        return JsonResponse({"by": request.user.get_username()})

A token must have been issued for the view's API. Tokens for an MCP endpoint are rejected.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.challenges import build_refusal
from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest, select_headers
from mcp_django.auth.resource import ProtectedResource, canonicalize_url
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Overloaded

V = TypeVar("V", bound=Callable[..., Any])


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
    require_user: bool = True
    """False to admit tokens that act for no user, such as those of machines."""

    async def authenticate(self, request: HttpRequest) -> DjangoPrincipal:
        """Return the principal of the request's bearer token.

        Raises:
            TransportRefusal: a missing or invalid token, with a challenge where one applies.
            Overloaded: tokens cannot be verified at the moment, or too many were invalid.
            ImproperlyConfigured: `resource` is an invalid URL.
        """
        # Invalid credentials are counted by client address.
        match = request.resolver_match
        auth_request = AuthRequest(
            select_headers(request, _list_header_names(request)),
            request.META.get("REMOTE_ADDR"),
            request.method or "GET",
            scheme=request.scheme or "http",
            kwargs=None if match is None else match.kwargs,
        )
        return await _get_authenticator(self).authenticate_throttled(auth_request)

    async def admit(self, request: HttpRequest) -> HttpResponse | None:
        """Set `request.user` and `request.principal`, or return the refusal."""
        try:
            principal = await self.authenticate(request)
            if principal.user is None and self.require_user:
                protected = ProtectedResource(server=self.audience, scopes=self.scopes, metadata_url=self.metadata_url)
                raise build_refusal(AuthError("invalid_token", "The token does not belong to a user"), protected)
        except TransportRefusal as refused:
            headers = {name.decode(): value.decode("latin-1") for name, value in refused.headers}
            headers.pop("content-type", None)
            message = jsonrpc.loads(refused.body)["error"]["message"]
            return JsonResponse({"detail": message}, status=refused.status, headers=headers)
        except Overloaded as problem:
            retry_after = str(max(1, round(problem.retry_after)))
            return JsonResponse({"detail": str(problem)}, status=problem.status, headers={"Retry-After": retry_after})
        request.user = AnonymousUser() if principal.user is None else principal.user
        request.principal = principal  # type: ignore[attr-defined]  # for the view; HttpRequest has no such field
        return None


def _list_header_names(request: HttpRequest) -> list[bytes]:
    """Return the names of the request's headers, without cookies, which count for nothing."""
    names = [name.lower().encode("latin-1", "replace") for name in request.headers]
    return [name for name in names if name != b"cookie"]


def has_bearer_token(request: HttpRequest) -> bool:
    """Return True if the request carries a bearer token, valid or not."""
    credential = request.META.get("HTTP_AUTHORIZATION")
    return isinstance(credential, str) and credential.strip(" ").partition(" ")[0].lower() == "bearer"


@conf.cached
def _get_authenticator(api: ProtectedAPI) -> Authenticator:
    uri = canonicalize_url(api.resource)
    if api.resource is not None and uri is None:
        raise ImproperlyConfigured(f"{api.resource!r} is not a valid URL for an API")
    scopes = tuple(sorted(api.scopes))
    protected = ProtectedResource(server=api.audience, uri=uri, scopes=scopes, metadata_url=api.metadata_url)
    # Imported by name, because `wiring` is a higher layer.
    authenticator: Authenticator = import_string("mcp_django.wiring.create_resource_authenticator")(protected)
    return authenticator


def bearer_required(
    *,
    resource: str | None = None,
    audience: str = "api",
    scopes: Sequence[str] = (),
    metadata_url: str | None = None,
    require_user: bool = True,
) -> Callable[[V], V]:
    """Require an access token for a view, sync or async.

    `request.user` is the user that the token acts for; `request.principal` has scopes and claims. Cookies are ignored,
    so no CSRF token is needed. Tokens must be issued for the API with the URL `resource`. Without it only personal
    tokens are accepted: those that name no server, or `audience`. At `metadata_url` clients learn how to get a token
    (RFC 9728).

    With `require_user=False` a token that acts for no user is admitted, such as one of a machine. `request.user` is
    then AnonymousUser.

    Other requests get 401, 403 or 400 with a challenge, 429 after too many bad tokens from one address, or 503 while
    tokens cannot be verified. Raises TypeError if `scopes` is a string, ValueError if `resource` is an invalid URL.
    """
    if isinstance(scopes, str):
        raise TypeError(f"scopes must be a list; write scopes=[{scopes!r}]")
    if resource is not None and canonicalize_url(resource) is None:
        raise ValueError(f"{resource!r} is not a valid URL for an API")
    api = ProtectedAPI(audience, resource, tuple(scopes), metadata_url, require_user)

    def decorate(view: V) -> V:
        guarded: Any
        if iscoroutinefunction(view):

            @wraps(view)
            async def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return await api.admit(request) or await view(request, *args, **kwargs)

        else:
            admit = async_to_sync(api.admit)

            @wraps(view)
            def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return admit(request) or view(request, *args, **kwargs)

        guarded.csrf_exempt = True
        return cast("V", guarded)

    return decorate
