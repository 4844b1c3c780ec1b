"""Fetching a URL that somebody else may have had a say in, without becoming their way into the network (SSRF).

The host is resolved once, every address it has must be allowed, and the connection goes to one of those: the name is
asked for again by nobody, so it cannot mean another place a moment later (DNS rebinding). TLS and the Host header keep
the name. Proxies, cookies, netrc and the environment have no part in it; a redirect is a URL like the first, and gets
the caller's own headers only where it stays on the same origin. Time, redirects and bytes are bounded, the bytes after
decompression.

The one door to httpx of this room: whatever fetches on behalf of others (resources, client metadata) comes here.
"""

import asyncio
import functools
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import httpx

from mcp_django.protocol.ip_ranges import is_private, is_public
from mcp_django.providers.files.patterns import TooLarge
from mcp_django.providers.media_types import header_type

PORTS = {"http": 80, "https": 443}
REDIRECTS = frozenset({301, 302, 303, 307, 308})
ATTEMPTS = 2
"""Addresses of a host that are tried."""
_OURS = frozenset({"accept-encoding", "connection", "content-length", "host", "transfer-encoding"})
_HOST = re.compile(rb"[A-Za-z0-9._\-]+|[0-9A-Fa-f:.]+")
_unpacker = zlib.decompressobj
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class Refused(Exception):
    """The URL may not be fetched. The text says why, and names neither the host nor its addresses."""


class Failed(Exception):
    """The URL could not be fetched. The text may be shown."""


class Fetched(NamedTuple):
    """A response in full."""

    status: int
    mime_type: str | None
    charset: str | None
    body: bytes
    cache_control: str = ""
    """The header of that name (RFC 9111, section 5.2); "" without one."""


class Fetcher:
    """Fetches with GET.

    `allowed_hosts` are the names that may be fetched, `".example.com"` with those below it; None for any. Other ports
    than the scheme's own need an allowed host. `private` allows addresses of the own network for allowed hosts, `http`
    URLs without TLS. `timeout` is in seconds for all of it, `max_size` in bytes of the decoded body.
    """

    def __init__(
        self,
        *,
        allowed_hosts: Sequence[str] | None = None,
        private: bool = False,
        http: bool = False,
        timeout: float = 10.0,
        max_size: int = 1024 * 1024,
        redirects: int = 0,
        resolve: Resolve | None = None,
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        """`resolve` and `transport` are for tests."""
        if isinstance(allowed_hosts, str):
            raise ValueError(f"allowed_hosts is a list; write [{allowed_hosts!r}]")
        self._hosts = None if allowed_hosts is None else tuple(host.lower().rstrip(".") for host in allowed_hosts)
        if private and self._hosts is None:
            raise ValueError("private addresses need allowed_hosts: otherwise any name could lead to them")
        self._private, self._http = private, http
        self._timeout, self._max_size, self._redirects = timeout, max_size, redirects
        self._resolve, self._transport = resolve or _resolve, transport or _transport

    @staticmethod
    def host_of(url: str) -> str:
        """The host that a URL names, as `allowed_hosts` has it. Raises Refused."""
        return _read(url).host

    def check(self, url: str) -> httpx.URL:
        """The URL, if it may be fetched as far as can be said without asking for its address. Raises Refused."""
        found = _read(url)
        if found.scheme != "https" and not (found.scheme == "http" and self._http):
            raise Refused("only https URLs are fetched" if not self._http else "only http and https URLs are fetched")
        if found.userinfo or not _HOST.fullmatch(found.raw_host):
            raise Refused("it has no host, or a login")
        named = self._is_named(found.host)
        if self._hosts is not None and not named:
            raise Refused("its host is not an allowed one")
        if not named and (found.port or PORTS[found.scheme]) != PORTS[found.scheme]:
            raise Refused("its port is not the one of its scheme")
        return found

    async def fetch(self, url: str, headers: Mapping[str, str] | None = None) -> Fetched:
        """The response, whatever its status. Raises Refused, Failed and TooLarge."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(self.check(url), dict(headers or {}))
        except TimeoutError:
            raise Failed(f"it took longer than {self._timeout:g} seconds") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ssl.SSLError) as problem:
            raise Failed("the connection failed") from problem

    async def _follow(self, url: httpx.URL, headers: dict[str, str]) -> Fetched:
        origin = _origin(url)
        for _ in range(self._redirects + 1):
            answer = await self._get(url, headers if _origin(url) == origin else {})
            if isinstance(answer, Fetched):
                return answer
            url = self.check(str(url.join(answer)))
        raise Failed("it redirects, or redirects too often")

    async def _get(self, url: httpx.URL, headers: Mapping[str, str]) -> "Fetched | str":
        """The response, or where it redirects to."""
        addresses = await self._addresses(url)
        for last, address in ((address is addresses[-1], address) for address in addresses):
            try:
                return await self._ask(url, address, headers)
            except httpx.ConnectError:
                if last:
                    raise
        raise Failed("its host has no address")

    async def _addresses(self, url: httpx.URL) -> Sequence[str]:
        """The first of those it has, if all of them may be connected to."""
        try:
            found = await self._resolve(url.host, url.port or PORTS[url.scheme])
        except (OSError, UnicodeError):
            found = ()
        if not found:
            raise Failed("its host has no address")
        private = self._private and self._is_named(url.host)
        if not all(is_public(address) or (private and is_private(address)) for address in found):
            raise Refused("its host is not on the public internet")
        return found[:ATTEMPTS]

    async def _ask(self, url: httpx.URL, address: str, headers: Mapping[str, str]) -> "Fetched | str":
        sent = {name: value for name, value in headers.items() if name.lower() not in _OURS}
        request = httpx.Request(
            "GET",
            url.copy_with(host=address, fragment=None),
            headers={
                "Accept": "*/*",
                "User-Agent": "mcp_django",
                **sent,
                "Accept-Encoding": "gzip",
                "Host": url.netloc.decode("ascii"),
                "Connection": "close",
            },
            extensions={
                "sni_hostname": url.raw_host.decode("ascii"),
                "timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._timeout),
            },
        )
        async with self._transport() as transport:
            response = await transport.handle_async_request(request)
            response.request = request
            try:
                if response.status_code in REDIRECTS and "location" in response.headers:
                    return response.headers["location"]
                mime_type, charset = header_type(response.headers.get("content-type"))
                cache_control = response.headers.get("cache-control", "")
                return Fetched(
                    response.status_code, mime_type, charset, await bounded(response, self._max_size), cache_control
                )
            finally:
                await response.aclose()

    def _is_named(self, host: str) -> bool:
        host = host.lower().rstrip(".")
        return any(host == name.lstrip(".") or (name[:1] == "." and host.endswith(name)) for name in self._hosts or ())


async def bounded(response: httpx.Response, most: int) -> bytes:
    """The body of a response that is streamed: `most` bytes of it, decoded. Raises TooLarge and Failed."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return await _capped(response.aiter_raw(), lambda piece, room: piece, most)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Failed("its content is in an encoding that was not asked for")
    packed = _unpacker(zlib.MAX_WBITS | 32)  # gzip or zlib, by its first bytes
    try:
        return await _capped(response.aiter_raw(), packed.decompress, most)
    except zlib.error:
        raise Failed("its content cannot be decompressed") from None


async def _capped(pieces: AsyncIterator[bytes], unpack: Callable[[bytes, int], bytes], most: int) -> bytes:
    found = bytearray()
    async for piece in pieces:
        # No more is unpacked than there is room for: a few bytes can stand for gigabytes.
        found += unpack(piece, most + 1 - len(found))
        if len(found) > most:
            raise TooLarge(most)
    return bytes(found)


def _read(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        raise Refused("it is no URL") from None


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or PORTS[url.scheme]


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@functools.cache
def _trusted() -> ssl.SSLContext:
    # Kept, because reading the certificates takes longer than a request.
    return httpx.create_ssl_context(trust_env=False)


def _transport() -> httpx.AsyncBaseTransport:
    # A new one each time: a pool knows connections by their address, which hosts may share.
    return httpx.AsyncHTTPTransport(verify=_trusted(), trust_env=False)
