"""HTTP client for authorization servers.

The URLs of authorization servers come from other servers. Only https is allowed. The exception is http on this machine,
if the configured server URL is one as well. Private addresses require that the server itself has one. Redirects of GET
requests are followed within their origin, as by the SDK.
"""

from collections.abc import Sequence
from typing import Final

import httpx2
from django.urls import NoReverseMatch, reverse

from mcp_django import conf
from mcp_django.client.errors import ClientConnectionError
from mcp_django.conf.clients import ClientSettings
from mcp_django.conf.issuers import is_loopback_url, is_provider_url
from mcp_django.http_client import (
    CreateTransport,
    RequestFailed,
    RequestPolicy,
    RequestProblem,
    ResolveHost,
    SafeHTTPClient,
    get_origin,
)
from mcp_django.protocol.ip_ranges import is_private, is_public

REQUEST_TIMEOUT_SECONDS: Final = 15.0
"""Time limit of a request in seconds, from name resolution to the last byte."""
MAX_RESPONSE_BYTES: Final = 128 * 1024
"""Maximum size of a response, in bytes."""
MAX_REDIRECTS: Final = 2
_PROBLEM_TEXTS: Final = {
    RequestProblem.TIMEOUT: f"The authorization server did not respond within {REQUEST_TIMEOUT_SECONDS:g} seconds",
    RequestProblem.NO_ADDRESS: "The authorization server's host has no address",
    RequestProblem.ADDRESS_REFUSED: ("The server names an authorization server that is not on the public internet"),
    RequestProblem.REDIRECTS: "The authorization server redirects too often",
    RequestProblem.ENCODING: "The response of the authorization server has an unrequested encoding",
    RequestProblem.TOO_LARGE: f"The response of the authorization server is longer than {MAX_RESPONSE_BYTES} bytes",
}


class AuthorizationFailed(ClientConnectionError):
    """A failed authorization.

    The text contains no foreign data, so it may be shown to people.
    """


class OAuthHTTPClient:
    """Sends OAuth requests for the server at `url`.

    `resolve` and `transport` are for tests.
    """

    def __init__(
        self, url: str, *, resolve: ResolveHost | None = None, transport: CreateTransport | None = None
    ) -> None:
        server_url = to_http_url(url)
        self._server_origin = get_origin(server_url)
        self._allows_plain_http = self._server_origin[0] == "http" and is_loopback_url(server_url)
        policy = RequestPolicy(
            timeout=REQUEST_TIMEOUT_SECONDS,
            max_bytes=MAX_RESPONSE_BYTES,
            max_redirects=MAX_REDIRECTS,
            check_url=self.check_url,
            allow_addresses=self._allow_addresses,
        )
        self._client = SafeHTTPClient(policy, resolve=resolve, transport=transport)

    def check_url(self, url: str) -> None:
        """Raise AuthorizationFailed unless the text of a URL is acceptable."""
        if len(url) > 2000 or not is_provider_url(url, plain=self._allows_plain_http):
            raise AuthorizationFailed("The server names an authorization server whose URL is not https")

    async def send(self, request: httpx2.Request, *, reads_body: bool = True) -> httpx2.Response:
        """Send a request and return its response with any status, optionally without body.

        Raises AuthorizationFailed.
        """
        headers = httpx2.Headers(request.headers)
        headers.setdefault("Accept", "application/json")
        try:
            response = await self._client.send(
                request.method,
                str(request.url),
                headers=headers.multi_items(),
                content=request.content,
                reads_body=reads_body,
            )
        except RequestFailed as problem:
            # The exception's text could contain request data.
            unreachable = f"The authorization server cannot be reached ({type(problem.__cause__).__name__})"
            raise AuthorizationFailed(_PROBLEM_TEXTS.get(problem.problem, unreachable)) from None
        received = response.headers.multi_items()
        return httpx2.Response(response.status, headers=received, content=response.body, request=request)

    async def _allow_addresses(self, url: str, addresses: Sequence[str]) -> bool:
        """Return True if a host may have these addresses.

        Private addresses are allowed only if the configured server has private ones, too.
        """
        if get_origin(url) == self._server_origin or all(map(is_public, addresses)):
            return True
        _, server_host, server_port = self._server_origin
        server_addresses = await self._client.resolve(server_host, server_port)
        is_server_private = bool(server_addresses) and all(map(is_private, server_addresses))
        return is_server_private and all(is_public(address) or is_private(address) for address in addresses)


def to_http_url(url: str) -> str:
    """Return the http or https URL for a server URL: WebSockets are opened by HTTP."""
    scheme, colon, rest = url.partition(":")
    return {"ws": "http", "wss": "https"}.get(scheme, scheme) + colon + rest


def get_connect_path(settings: ClientSettings) -> str | None:
    """Return the path of the page to authorize a server.

    Returns None if the site does not include these pages.
    """
    if settings.auth is None or settings.auth.type != "oauth":
        return None
    try:
        path = reverse("mcp_clients:connect", kwargs={"alias": settings.alias})
    except NoReverseMatch:
        return None
    # Threads without a request have no script prefix.
    prefix = conf.force_script_name().rstrip("/")
    return path if path.startswith(f"{prefix}/") else prefix + path
