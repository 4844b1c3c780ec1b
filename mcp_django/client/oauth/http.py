"""Requests to authorization servers, whose URLs another server named: bounded, and no way into the network (SSRF).

Only https; http where the operator's own URL is http on this machine, and to this machine. A host is resolved once,
and the connection goes to an address that was checked. Private addresses are for clients whose server has one itself.
Cookies, proxies and netrc have no part in it. Redirects of GETs are followed within their origin, as the SDK does.
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
"""Seconds for all of a request, from the name's look-up to the last byte."""
MOST: Final = 128 * 1024
"""Bytes of an answer."""
ATTEMPTS, REDIRECTS = 2, 3
PORTS: Final = {"http": 80, "https": 443}
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class AuthorizationFailed(ClientConnectionError):
    """Authorization did not work out. The text may be shown to people: nothing in it was sent by others."""


class Outgoing:
    """Sends what authorizing with the server at `url` takes. `resolve` and `transport` are for tests."""

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
        """Raise AuthorizationFailed unless this is a URL that may be asked, as far as its text says."""
        if len(url) > 2000 or not is_provider_url(url, plain=self._plain):
            raise AuthorizationFailed("The server names an authorization server whose URL is not https")

    async def send(self, request: httpx2.Request, *, body: bool = True) -> httpx2.Response:
        """The answer, whatever its status, in full or without its body. Raises AuthorizationFailed."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._follow(request, body)
        except TimeoutError:
            raise AuthorizationFailed(f"The authorization server took longer than {TIMEOUT:g} seconds") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError) as problem:
            # The text of the exception could name what was sent.
            raise AuthorizationFailed(f"The authorization server cannot be asked ({type(problem).__name__})") from None

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
        """The first of those it has, if all of them may be connected to."""
        found = await self._known(url.host, url.port or PORTS[url.scheme])
        if not found:
            raise AuthorizationFailed("The authorization server's host has no address")
        if _origin(url) != self._own and not all(map(is_public, found)):
            # The operator's own URL says whether this network is the place to look.
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
        raise AuthorizationFailed("The authorization server's answer is in an encoding not asked for")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MOST:
            raise AuthorizationFailed(f"The authorization server's answer is longer than {MOST} bytes")
    return bytes(content)


def web_url(url: str) -> str:
    """The http URL that stands for the server's: sockets are opened by HTTP."""
    scheme, colon, rest = url.partition(":")
    return {"ws": "http", "wss": "https"}.get(scheme, scheme) + colon + rest


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or PORTS[url.scheme]


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@functools.cache
def _trusted() -> ssl.SSLContext:
    # Kept, because reading the certificates takes longer than a request.
    return httpx2.create_ssl_context()


def _transport() -> httpx2.AsyncBaseTransport:
    # A new one each time: a pool knows connections by their address, which hosts may share.
    return httpx2.AsyncHTTPTransport(verify=_trusted(), trust_env=False)
