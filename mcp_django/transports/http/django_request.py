"""The Django request that handlers see as `ctx.request`: the same through both doors, as far as it does not come from
MIDDLEWARE.
"""

import io
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.urls import ResolverMatch

from mcp_django.protocol.errors import InvalidRequest
from mcp_django.server.ports import Principal

TOKEN = "HTTP_AUTHORIZATION"
APP = "mcp_django"
"""The namespace of the endpoints' URLs."""


class RequestMaker:
    """Makes the requests of one endpoint behind the ASGI door, which has only a scope."""

    def __init__(self, view: Callable[..., Any], *, alias: str, route: str) -> None:
        """`view` is the endpoint as a view, `route` its path as a URL pattern: what the resolver would have found."""
        self._view, self._alias, self._route = view, alias, route

    def __call__(
        self, scope: MutableMapping[str, Any], body: bytes, kwargs: Mapping[str, Any] | None, principal: Principal
    ) -> HttpRequest:
        """Raises InvalidRequest for a query string that is no text, which Django refuses too."""
        try:
            request = ASGIRequest(scope, io.BytesIO(body))
        except UnicodeDecodeError:
            raise InvalidRequest("The query string is not UTF-8") from None
        found = dict(kwargs or {})
        request.resolver_match = ResolverMatch(
            self._view, (), found, self._alias, [APP], [APP], self._route, captured_kwargs=found
        )
        keep_body(request, body)
        return with_user(request, principal)


def keep_body(request: HttpRequest, body: bytes) -> None:
    """Let handlers read the body, as `request.body` or as a file, as if nobody had."""
    request._body = body
    request._stream = io.BytesIO(body)


def with_user(request: HttpRequest, principal: Principal) -> HttpRequest:
    """`request.user` is who the credential says; whoever a session cookie names is not asked. The token is not in it:
    it is for this server alone, and what a handler does not have it cannot pass on (basic/authorization, token
    passthrough).
    """
    request.META.pop(TOKEN, None)
    vars(request).pop("headers", None)  # is kept once it was made, of META
    if isinstance(request, ASGIRequest):
        headers = [pair for pair in request.scope["headers"] if pair[0] != b"authorization"]
        request.scope = {**request.scope, "headers": headers}
    user = AnonymousUser() if principal.user is None else principal.user

    async def auser() -> Any:
        return user

    request.user, request.auser = user, auser
    return request
