"""HTTP client for authorization servers: bounded and safe from SSRF.

The URLs of authorization servers come from other servers. Only https is allowed. The exception is http on this machine,
if the configured server URL is one as well. A host is resolved once, and the connection uses a checked address. Private
addresses require that the server itself has one. Cookies, proxies and netrc are disabled. Redirects of GET requests are
followed within their origin, as by the SDK.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import httpx2

from mcp_django.client.errors import ClientConnectionError
from mcp_django.conf.issuers import is_loopback_url, is_provider_url
from mcp_django.protocol.ip_ranges import is_private, is_public

REQUEST_TIMEOUT_SECONDS: Final = 15.0
"""Time limit of a request in seconds, from name resolution to the last byte."""
MAX_RESPONSE_BYTES: Final = 128 * 1024
"""Maximum size of a response, in bytes."""
MAX_ADDRESSES, MAX_REDIRECTS = 2, 3
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
ResolveHost = Callable[[str, int], Awaitable[Sequence[str]]]


class AuthorizationFailed(ClientConnectionError):
    """A failed authorization.

    The text contains no foreign data, so it may be shown to people.
    """


class OAuthHTTPClient:
    """Sends OAuth requests for the server at `url`.

    `resolve` and `transport` are for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        resolve: ResolveHost | None = None,
        transport: Callable[[], httpx2.AsyncBaseTransport] | None = None,
    ) -> None:
        parts = urlsplit(to_http_url(url))
        self._server_address = (parts.scheme, (parts.hostname or "").lower(), parts.port or DEFAULT_PORTS[parts.scheme])
        self._allows_plain_http = parts.scheme == "http" and is_loopback_url(to_http_url(url))
        self._resolve = resolve or _resolve
        self._transport = transport or _create_transport

    def check_url(self, url: str) -> None:
        """Raise AuthorizationFailed unless the text of a URL is acceptable."""
        if len(url) > 2000 or not is_provider_url(url, plain=self._allows_plain_http):
            raise AuthorizationFailed("The server names an authorization server whose URL is not https")

    async def send(self, request: httpx2.Request, *, reads_body: bool = True) -> httpx2.Response:
        """Send a request and return its response with any status, optionally without body.

        Raises AuthorizationFailed.
        """
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                return await self._send_following_redirects(request, reads_body)
        except TimeoutError:
            raise AuthorizationFailed(
                f"The authorization server did not respond within {REQUEST_TIMEOUT_SECONDS:g} seconds"
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError) as problem:
            # The exception's text could contain request data.
            raise AuthorizationFailed(
                f"The authorization server cannot be reached ({type(problem).__name__})"
            ) from None

    async def _send_following_redirects(self, request: httpx2.Request, reads_body: bool) -> httpx2.Response:
        for _ in range(MAX_REDIRECTS):
            response = await self._send_once(request, reads_body)
            location = response.headers.get("location")
            if request.method != "GET" or not response.has_redirect_location or not location:
                return response
            target = request.url.join(location)
            if _get_origin(target) != _get_origin(request.url) or target.userinfo:
                return response
            request = httpx2.Request("GET", target, headers=request.headers)
        raise AuthorizationFailed("The authorization server redirects too often")

    async def _send_once(self, request: httpx2.Request, reads_body: bool) -> httpx2.Response:
        self.check_url(str(request.url))
        addresses = await self._get_checked_addresses(request.url)
        for address in addresses:
            try:
                return await self._connect(request, address, reads_body)
            except httpx2.ConnectError:
                if address is addresses[-1]:
                    raise
        raise AuthorizationFailed("The authorization server's host has no address")

    async def _get_checked_addresses(self, url: httpx2.URL) -> Sequence[str]:
        """Return the first addresses of a host, if all of its addresses are allowed."""
        addresses = await self._resolve_host(url.host, url.port or DEFAULT_PORTS[url.scheme])
        if not addresses:
            raise AuthorizationFailed("The authorization server's host has no address")
        if _get_origin(url) != self._server_address and not all(map(is_public, addresses)):
            # Private addresses are allowed only if the configured server has private ones, too.
            server_addresses = await self._resolve_host(self._server_address[1], self._server_address[2])
            is_server_private = bool(server_addresses) and all(map(is_private, server_addresses))
            if not is_server_private or not all(is_public(address) or is_private(address) for address in addresses):
                raise AuthorizationFailed("The server names an authorization server that is not on the public internet")
        return addresses[:MAX_ADDRESSES]

    async def _resolve_host(self, host: str, port: int) -> Sequence[str]:
        try:
            return await self._resolve(host, port)
        except (OSError, UnicodeError):
            return ()

    async def _connect(self, request: httpx2.Request, address: str, reads_body: bool) -> httpx2.Response:
        url = request.url
        pinned_request = httpx2.Request(
            request.method,
            url.copy_with(host=address, fragment=None),
            headers={
                **{name: value for name, value in request.headers.items() if name != "host"},
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "mcp_django",
                "Host": url.netloc.decode("ascii"),
                "Connection": "close",
            },
            content=request.content,
            extensions={
                "sni_hostname": url.raw_host.decode("ascii"),
                "timeout": dict.fromkeys(("connect", "read", "write", "pool"), REQUEST_TIMEOUT_SECONDS),
            },
        )

        async with self._transport() as transport:
            response = await transport.handle_async_request(pinned_request)
            try:
                content = await _read_body(response) if reads_body else b""
            finally:
                await response.aclose()
        return httpx2.Response(response.status_code, headers=response.headers, content=content, request=request)


async def _read_body(response: httpx2.Response) -> bytes:
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise AuthorizationFailed("The response of the authorization server has an unrequested encoding")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MAX_RESPONSE_BYTES:
            raise AuthorizationFailed(
                f"The response of the authorization server is longer than {MAX_RESPONSE_BYTES} bytes"
            )
    return bytes(content)


def to_http_url(url: str) -> str:
    """Return the http or https URL for a server URL: WebSockets are opened by HTTP."""
    scheme, colon, rest = url.partition(":")
    return {"ws": "http", "wss": "https"}.get(scheme, scheme) + colon + rest


def _get_origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or DEFAULT_PORTS[url.scheme]


async def _resolve(host: str, port: int) -> Sequence[str]:
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))


@functools.cache
def _get_ssl_context() -> ssl.SSLContext:
    # Cached, because loading the certificates takes longer than a request.
    return httpx2.create_ssl_context()


def _create_transport() -> httpx2.AsyncBaseTransport:
    # A new transport each time: a pool identifies connections by address, which several hosts may share.
    return httpx2.AsyncHTTPTransport(verify=_get_ssl_context(), trust_env=False)
