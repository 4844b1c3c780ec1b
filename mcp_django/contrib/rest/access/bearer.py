"""Tokens for views of Django REST framework: the ones that the MCP endpoints take, by the same verifiers.

    from mcp_django.contrib.rest.access.bearer import BearerAuthentication
    from mcp_django.contrib.rest.access.permissions import HasScopes

    class ShopAuthentication(BearerAuthentication):
        resource = "https://shop.example/api"

    class OrderView(APIView):
        authentication_classes = [ShopAuthentication]
        permission_classes = [HasScopes("shop:read")]

A token has to be made for the API; one that was made for an MCP endpoint is none of its.
"""

from typing import Any

from asgiref.sync import async_to_sync
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from mcp_django.auth.authentication.challenges import challenge
from mcp_django.auth.protected.apis import Api, sends_token
from mcp_django.contrib.rest.access.authentication import Delegation
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Overloaded

CHALLENGE = "mcp_django.challenge"
"""The key of `request.META` under which the challenge of a refused token is."""


class BearerAuthentication(BaseAuthentication):  # type: ignore[misc]
    """Authenticates bearers of access tokens. `request.auth` has their scopes, as `Delegation`, and never the token.

    A subclass says what tokens have to be made for. What has no bearer token is left to the next authenticator; a token
    that is not accepted is refused here, whatever comes next.
    """

    resource: str | None = None
    """The URL of the API, as authorization servers write it into tokens. Without it only personal tokens are taken."""
    audience = "api"
    """What personal tokens for this API alone name as their server."""
    scopes: tuple[str, ...] = ()
    """What every request takes."""
    metadata_url: str | None = None
    """Where the API's metadata is (RFC 9728)."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """The user, and what was delegated. Raises AuthenticationFailed (401), PermissionDenied (403), ParseError
        (400), Throttled (429), and APIException with the status 503 while tokens cannot be verified.
        """
        if not sends_token(request):
            return None
        api = Api(self.audience, self.resource, tuple(self.scopes), self.metadata_url)
        try:
            principal = async_to_sync(api.principal)(request)
        except TransportRefusal as refusal:
            raise _as_exception(request, refusal) from None
        except Overloaded as problem:
            raise exceptions.Throttled(wait=max(1, round(problem.retry_after))) from None
        if principal.user is None:
            raise exceptions.AuthenticationFailed("The token acts for no user")
        return principal.user, Delegation(principal)

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401."""
        found = request.META.get(CHALLENGE)
        if found is None:
            found = challenge(scopes=self.scopes, resource_metadata=self.metadata_url).decode()
        return str(found)


def _as_exception(request: Request, refusal: TransportRefusal) -> exceptions.APIException:
    found = next((value.decode() for name, value in refusal.headers if name == b"www-authenticate"), None)
    said = jsonrpc.loads(refusal.body)["error"]["message"]
    made: exceptions.APIException
    if refusal.status == 401:
        request.META[CHALLENGE] = found
        return exceptions.AuthenticationFailed(said)
    if refusal.status == 403:
        made = exceptions.PermissionDenied(said)
    elif refusal.status == 400:
        made = exceptions.ParseError(said)
    else:
        made = exceptions.APIException(said)
        made.status_code = refusal.status
        after = next((value for name, value in refusal.headers if name == b"retry-after"), None)
        if after is not None:
            made.wait = int(after)  # what becomes Retry-After
    if found is not None:
        made.auth_header = found
    return made
