"""SSRF-safe GET: fetch untrusted URLs without access to private networks.

The host is resolved once, all its addresses must be allowed, and the connection goes to one of them. The name is not
resolved a second time, so it cannot change in between (DNS rebinding). TLS and the Host header keep the name. Proxies,
cookies, netrc and the environment are ignored. A redirect is checked like the first URL, and gets the caller's headers
only on the same origin. Time, redirects and bytes (after decompression) are limited.

This is the only module of the package `providers` that uses httpx. All fetches of URLs from third parties (resources,
client metadata) use it.
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
"""Maximum number of addresses of a host to try."""
_OURS = frozenset({"accept-encoding", "connection", "content-length", "host", "transfer-encoding"})
_HOST = re.compile(rb"[A-Za-z0-9._\-]+|[0-9A-Fa-f:.]+")
_unpacker = zlib.decompressobj
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class Refused(Exception):
    """The URL may not be fetched; the text has the reason, without host and addresses."""


class Failed(Exception):
    """The URL could not be fetched. The text may be shown to clients."""


class Fetched(NamedTuple):
    """A complete response."""

    status: int
    mime_type: str | None
    charset: str | None
    body: bytes
    cache_control: str = ""
    """Value of the header Cache-Control (RFC 9111, section 5.2); "" if absent."""


class Fetcher:
    """Fetches URLs with GET.

    `allowed_hosts` are the allowed names, `".example.com"` with subdomains; None allows any. Ports other than the
    default of the scheme need an allowed host. `private` permits private addresses for allowed hosts, `http` URLs
    without TLS. `timeout` is the total in seconds, `max_size` the maximum bytes of the decoded body.
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
        """Validate the options. `resolve` and `transport` are for tests."""
        if isinstance(allowed_hosts, str):
            raise ValueError(f"allowed_hosts is a list; write [{allowed_hosts!r}]")
        self._hosts = None if allowed_hosts is None else tuple(host.lower().rstrip(".") for host in allowed_hosts)
        if private and self._hosts is None:
            raise ValueError("private=True needs allowed_hosts, because any name could resolve to a private address")
        self._private, self._http = private, http
        self._timeout, self._max_size, self._redirects = timeout, max_size, redirects
        self._resolve, self._transport = resolve or _resolve, transport or _transport

    @staticmethod
    def host_of(url: str) -> str:
        """Return the host of a URL in the form of `allowed_hosts`. Raises FetchRefused."""
        return _read(url).host

    def check(self, url: str) -> httpx.URL:
        """Check and parse a URL without resolving its host. Raises FetchRefused."""
        found = _read(url)
        if found.scheme != "https" and not (found.scheme == "http" and self._http):
            raise Refused("only https URLs are fetched" if not self._http else "only http and https URLs are fetched")
        if found.userinfo or not _HOST.fullmatch(found.raw_host):
            raise Refused("it has no host, or a login")
        named = self._is_named(found.host)
        if self._hosts is not None and not named:
            raise Refused("its host is not allowed")
        if not named and (found.port or PORTS[found.scheme]) != PORTS[found.scheme]:
            raise Refused("its port is not the default of its scheme")
        return found

    async def fetch(self, url: str, headers: Mapping[str, str] | None = None) -> Fetched:
        """Return the response with any status.

        Raises:
            FetchRefused: the URL may not be fetched.
            FetchFailed: the connection failed, or took too long.
            ContentTooLarge: the body exceeds `max_size`.
        """
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
        """Return the response, or the target of its redirect."""
        addresses = await self._addresses(url)
        for last, address in ((address is addresses[-1], address) for address in addresses):
            try:
                return await self._ask(url, address, headers)
            except httpx.ConnectError:
                if last:
                    raise
        raise Failed("its host has no address")

    async def _addresses(self, url: httpx.URL) -> Sequence[str]:
        """Return the first addresses of the host, if all its addresses are allowed."""
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
    """Read and decode a streamed body of at most `max_bytes` bytes.

    Raises ContentTooLarge and FetchFailed.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return await _capped(response.aiter_raw(), lambda piece, room: piece, most)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Failed("its content has an unsupported encoding")
    packed = _unpacker(zlib.MAX_WBITS | 32)  # gzip or zlib, detected by the first bytes.
    try:
        return await _capped(response.aiter_raw(), packed.decompress, most)
    except zlib.error:
        raise Failed("its content cannot be decompressed") from None


async def _capped(pieces: AsyncIterator[bytes], unpack: Callable[[bytes, int], bytes], most: int) -> bytes:
    found = bytearray()
    async for piece in pieces:
        # Decompress no more than there is room for: a few bytes can expand to gigabytes.
        found += unpack(piece, most + 1 - len(found))
        if len(found) > most:
            raise TooLarge(most)
    return bytes(found)


def _read(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        raise Refused("it is an invalid URL") from None


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or PORTS[url.scheme]


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@functools.cache
def _trusted() -> ssl.SSLContext:
    # Cached, because loading the certificates takes longer than a request.
    return httpx.create_ssl_context(trust_env=False)


def _transport() -> httpx.AsyncBaseTransport:
    # Created for each request: a pool identifies connections by address, which hosts may share.
    return httpx.AsyncHTTPTransport(verify=_trusted(), trust_env=False)
