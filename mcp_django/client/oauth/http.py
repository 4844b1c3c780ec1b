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

TIMEOUT: Final = 15.0
"""Time limit of a request in seconds, from name resolution to the last byte."""
MOST: Final = 128 * 1024
"""Maximum size of a response, in bytes."""
ATTEMPTS, REDIRECTS = 2, 3
PORTS: Final = {"http": 80, "https": 443}
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class AuthorizationFailed(ClientConnectionError):
    """A failed authorization.

    The text contains no foreign data, so it may be shown to people.
    """


class Outgoing:
    """Sends OAuth requests for the server at `url`.

    `resolve` and `transport` are for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        resolve: Resolve | None = None,
        transport: Callable[[], httpx2.AsyncBaseTransport] | None = None,
    ) -> None:
        parts = urlsplit(web_url(url))
        self._own = (parts.scheme, (parts.hostname or "").lower(), parts.port or PORTS[parts.scheme])
        self._plain = parts.scheme == "http" and is_loopback_url(web_url(url))
        self._resolve, self._transport = resolve or _resolve, transport or _transport

    def check(self, url: str) -> None:
        """Raise AuthorizationFailed unless the text of a URL is acceptable."""
        if len(url) > 2000 or not is_provider_url(url, plain=self._plain):
            raise AuthorizationFailed("The server names an authorization server whose URL is not https")

    async def send(self, request: httpx2.Request, *, body: bool = True) -> httpx2.Response:
        """Send a request and return its response with any status, optionally without body.

        Raises AuthorizationFailed.
        """
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._follow(request, body)
        except TimeoutError:
            raise AuthorizationFailed(f"The authorization server did not respond within {TIMEOUT:g} seconds") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError) as problem:
            # The exception's text could contain request data.
            raise AuthorizationFailed(
                f"The authorization server cannot be reached ({type(problem).__name__})"
            ) from None

    async def _follow(self, request: httpx2.Request, body: bool) -> httpx2.Response:
        for _ in range(REDIRECTS):
            response = await self._ask(request, body)
            location = response.headers.get("location")
            if request.method != "GET" or not response.has_redirect_location or not location:
                return response
            target = request.url.join(location)
            if _origin(target) != _origin(request.url) or target.userinfo:
                return response
            request = httpx2.Request("GET", target, headers=request.headers)
        raise AuthorizationFailed("The authorization server redirects too often")

    async def _ask(self, request: httpx2.Request, body: bool) -> httpx2.Response:
        self.check(str(request.url))
        addresses = await self._addresses(request.url)
        for address in addresses:
            try:
                return await self._connect(request, address, body)
            except httpx2.ConnectError:
                if address is addresses[-1]:
                    raise
        raise AuthorizationFailed("The authorization server's host has no address")

    async def _addresses(self, url: httpx2.URL) -> Sequence[str]:
        """Return the first addresses of a host, if all of its addresses are allowed."""
        found = await self._known(url.host, url.port or PORTS[url.scheme])
        if not found:
            raise AuthorizationFailed("The authorization server's host has no address")
        if _origin(url) != self._own and not all(map(is_public, found)):
            # Private addresses are allowed only if the configured server has private ones, too.
            own = await self._known(self._own[1], self._own[2])
            inside = bool(own) and all(map(is_private, own))
            if not inside or not all(is_public(address) or is_private(address) for address in found):
                raise AuthorizationFailed("The server names an authorization server that is not on the public internet")
        return found[:ATTEMPTS]

    async def _known(self, host: str, port: int) -> Sequence[str]:
        try:
            return await self._resolve(host, port)
        except (OSError, UnicodeError):
            return ()

    async def _connect(self, request: httpx2.Request, address: str, body: bool) -> httpx2.Response:
        url = request.url
        pinned = httpx2.Request(
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
                "timeout": dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT),
            },
        )

        async with self._transport() as transport:
            response = await transport.handle_async_request(pinned)
            try:
                content = await _read(response) if body else b""
            finally:
                await response.aclose()
        return httpx2.Response(response.status_code, headers=response.headers, content=content, request=request)


async def _read(response: httpx2.Response) -> bytes:
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise AuthorizationFailed("The response of the authorization server has an unrequested encoding")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MOST:
            raise AuthorizationFailed(f"The response of the authorization server is longer than {MOST} bytes")
    return bytes(content)


def web_url(url: str) -> str:
    """Return the http or https URL for a server URL: WebSockets are opened by HTTP."""
    scheme, colon, rest = url.partition(":")
    return {"ws": "http", "wss": "https"}.get(scheme, scheme) + colon + rest


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or PORTS[url.scheme]


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@functools.cache
def _trusted() -> ssl.SSLContext:
    # Cached, because loading the certificates takes longer than a request.
    return httpx2.create_ssl_context()


def _transport() -> httpx2.AsyncBaseTransport:
    # A new transport each time: a pool identifies connections by address, which several hosts may share.
    return httpx2.AsyncHTTPTransport(verify=_trusted(), trust_env=False)
