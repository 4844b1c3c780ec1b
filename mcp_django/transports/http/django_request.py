"""The Django request that handlers get as `ctx.request`.

It is the same through the ASGI app and the view, except for values set by MIDDLEWARE.
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

AUTHORIZATION_META_KEY = "HTTP_AUTHORIZATION"
APP_NAMESPACE = "mcp_django"
"""Namespace of the URLs of the endpoints."""


class DjangoRequestFactory:
    """Builds Django requests of one endpoint from the scopes of the ASGI app."""

    def __init__(self, view: Callable[..., Any], *, alias: str, route: str) -> None:
        """Set the resolver match: `view` is the endpoint as a view, `route` its pattern."""
        self._view = view
        self._alias = alias
        self._route = route

    def __call__(
        self, scope: MutableMapping[str, Any], body: bytes, kwargs: Mapping[str, Any] | None, principal: Principal
    ) -> HttpRequest:
        """Build the request. Raises InvalidRequest if the query string is not UTF-8."""
        try:
            request = ASGIRequest(scope, io.BytesIO(body))
        except UnicodeDecodeError:
            raise InvalidRequest("The query string is not UTF-8") from None
        url_kwargs = dict(kwargs or {})
        request.resolver_match = ResolverMatch(
            self._view,
            (),
            url_kwargs,
            self._alias,
            [APP_NAMESPACE],
            [APP_NAMESPACE],
            self._route,
            captured_kwargs=url_kwargs,
        )
        set_body(request, body)
        return attach_user(request, principal)


def set_body(request: HttpRequest, body: bytes) -> None:
    """Make the body readable again, as `request.body` and as a file."""
    request._body = body
    request._stream = io.BytesIO(body)


def attach_user(request: HttpRequest, principal: Principal) -> HttpRequest:
    """Set `request.user` to the user of the credential and remove the token.

    A session cookie in the request has no effect. The token is for this server alone: handlers do not get it, so they
    cannot pass it on (basic/authorization, token passthrough).
    """
    request.META.pop(AUTHORIZATION_META_KEY, None)
    vars(request).pop("headers", None)  # Cached from META at its first use.
    if isinstance(request, ASGIRequest):
        headers = [pair for pair in request.scope["headers"] if pair[0] != b"authorization"]
        request.scope = {**request.scope, "headers": headers}
    user = AnonymousUser() if principal.user is None else principal.user

    async def auser() -> Any:
        return user

    request.user, request.auser = user, auser
    return request
