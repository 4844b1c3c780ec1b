"""Bearer tokens for DRF views, verified like tokens for the MCP endpoints.

    from mcp_django.contrib.rest.access.bearer import BearerAuthentication
    from mcp_django.contrib.rest.access.permissions import HasScopes

    class ShopAuthentication(BearerAuthentication):
        resource = "https://shop.example/api"

    class OrderView(APIView):
        authentication_classes = [ShopAuthentication]
        permission_classes = [HasScopes("shop:read")]

A token must be issued for the API. Tokens issued for an MCP endpoint are rejected.
"""

from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from mcp_django.auth.authentication.challenges import build_challenge
from mcp_django.auth.protected.decorators import ProtectedAPI, has_bearer_token
from mcp_django.contrib.rest.access.authentication import Delegation
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.errors import Overloaded
from mcp_django.protocol.errors import TransportRefusal

CHALLENGE_KEY = "mcp_django.challenge"
"""Key of `request.META` for the challenge of a rejected token."""


class BearerAuthentication(BaseAuthentication):  # type: ignore[misc]
    """Authentication with access tokens.

    `request.auth` is a `Delegation` with the scopes, never the token.

    Subclasses set the resource that tokens must be issued for. Requests without a bearer token are left to the next
    authenticator. An invalid token is rejected without trying the next authenticator.
    """

    resource: str | None = None
    """URL of the API, as authorization servers write it into tokens.

    Without it only personal tokens are accepted.
    """
    audience = "api"
    """Server name in personal tokens that are limited to this API."""
    scopes: tuple[str, ...] = ()
    """Scopes that every request requires."""
    metadata_url: str | None = None
    """URL of the API's metadata (RFC 9728)."""
    require_user = True
    """False to admit tokens that act for no user; `request.user` is then AnonymousUser."""

    def authenticate(self, request: Request) -> tuple[object, object] | None:
        """Return the user and the delegation of the request's token.

        Raises:
            AuthenticationFailed: 401, the token is invalid.
            PermissionDenied: 403, the token is not sufficient.
            ParseError: 400, the request is malformed.
            Throttled: 429, the caller sent too many requests.
            APIException: with status 503, tokens cannot be verified now.
        """
        if not has_bearer_token(request):
            return None

        api = ProtectedAPI(self.audience, self.resource, tuple(self.scopes), self.metadata_url)
        try:
            principal = async_to_sync(api.authenticate)(request)
        except TransportRefusal as refusal:
            raise _build_exception(request, refusal) from None
        except Overloaded as problem:
            raise exceptions.Throttled(wait=max(1, round(problem.retry_after))) from None

        if principal.user is None and self.require_user:
            raise exceptions.AuthenticationFailed("The token has no user")
        return AnonymousUser() if principal.user is None else principal.user, Delegation(principal)

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401."""
        found = request.META.get(CHALLENGE_KEY)
        if found is None:
            found = build_challenge(scopes=self.scopes, resource_metadata=self.metadata_url).decode()
        return str(found)


def _build_exception(request: Request, refusal: TransportRefusal) -> exceptions.APIException:
    challenge_header = next((value.decode() for name, value in refusal.headers if name == b"www-authenticate"), None)
    message = jsonrpc.loads(refusal.body)["error"]["message"]
    exception: exceptions.APIException

    if refusal.status == 401:
        request.META[CHALLENGE_KEY] = challenge_header
        return exceptions.AuthenticationFailed(message)
    if refusal.status == 403:
        exception = exceptions.PermissionDenied(message)
    elif refusal.status == 400:
        exception = exceptions.ParseError(message)
    else:
        exception = exceptions.APIException(message)
        exception.status_code = refusal.status
        after = next((value for name, value in refusal.headers if name == b"retry-after"), None)
        if after is not None:
            exception.wait = int(after)  # DRF sends `wait` as Retry-After
    if challenge_header is not None:
        exception.auth_header = challenge_header
    return exception
