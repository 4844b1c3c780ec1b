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
from mcp_django.providers.files.patterns import ContentTooLarge
from mcp_django.providers.media_types import parse_content_type

DEFAULT_PORTS = {"http": 80, "https": 443}
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
MAX_ADDRESSES = 2
"""Maximum number of addresses of a host to try."""
_RESERVED_HEADERS = frozenset({"accept-encoding", "connection", "content-length", "host", "transfer-encoding"})
_HOST = re.compile(rb"[A-Za-z0-9._\-]+|[0-9A-Fa-f:.]+")
_unpacker = zlib.decompressobj
ResolveAddresses = Callable[[str, int], Awaitable[Sequence[str]]]


class FetchRefused(Exception):
    """The URL may not be fetched; the text has the reason, without host and addresses."""


class FetchFailed(Exception):
    """The URL could not be fetched. The text may be shown to clients."""


class FetchedResponse(NamedTuple):
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
        resolve: ResolveAddresses | None = None,
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        """Validate the options. `resolve` and `transport` are for tests."""
        if isinstance(allowed_hosts, str):
            raise ValueError(f"allowed_hosts is a list; write [{allowed_hosts!r}]")
        self._hosts = None if allowed_hosts is None else tuple(host.lower().rstrip(".") for host in allowed_hosts)
        if private and self._hosts is None:
            raise ValueError("private=True needs allowed_hosts, because any name could resolve to a private address")
        self._private = private
        self._http = http
        self._timeout = timeout
        self._max_size = max_size
        self._redirects = redirects
        self._resolve = resolve or _resolve_host
        self._transport = transport or _create_transport

    @staticmethod
    def get_host(url: str) -> str:
        """Return the host of a URL in the form of `allowed_hosts`. Raises FetchRefused."""
        return _parse_url(url).host

    def check_url(self, url: str) -> httpx.URL:
        """Check and parse a URL without resolving its host. Raises FetchRefused."""
        parsed = _parse_url(url)
        if parsed.scheme != "https" and not (parsed.scheme == "http" and self._http):
            raise FetchRefused(
                "only https URLs are fetched" if not self._http else "only http and https URLs are fetched"
            )
        if parsed.userinfo or not _HOST.fullmatch(parsed.raw_host):
            raise FetchRefused("it has no host, or a login")
        is_listed = self._is_host_listed(parsed.host)
        if self._hosts is not None and not is_listed:
            raise FetchRefused("its host is not allowed")
        if not is_listed and (parsed.port or DEFAULT_PORTS[parsed.scheme]) != DEFAULT_PORTS[parsed.scheme]:
            raise FetchRefused("its port is not the default of its scheme")
        return parsed

    async def fetch(self, url: str, headers: Mapping[str, str] | None = None) -> FetchedResponse:
        """Return the response with any status.

        Raises:
            FetchRefused: the URL may not be fetched.
            FetchFailed: the connection failed, or took too long.
            ContentTooLarge: the body exceeds `max_size`.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow_redirects(self.check_url(url), dict(headers or {}))
        except TimeoutError:
            raise FetchFailed(f"it took longer than {self._timeout:g} seconds") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ssl.SSLError) as problem:
            raise FetchFailed("the connection failed") from problem

    async def _follow_redirects(self, url: httpx.URL, headers: dict[str, str]) -> FetchedResponse:
        origin = _origin(url)
        for _ in range(self._redirects + 1):
            response = await self._get_once(url, headers if _origin(url) == origin else {})
            if isinstance(response, FetchedResponse):
                return response
            url = self.check_url(str(url.join(response)))
        raise FetchFailed("it redirects, or redirects too often")

    async def _get_once(self, url: httpx.URL, headers: Mapping[str, str]) -> "FetchedResponse | str":
        """Return the response, or the target of its redirect."""
        addresses = await self._resolve_addresses(url)
        for last, address in ((address is addresses[-1], address) for address in addresses):
            try:
                return await self._send_request(url, address, headers)
            except httpx.ConnectError:
                if last:
                    raise
        raise FetchFailed("its host has no address")

    async def _resolve_addresses(self, url: httpx.URL) -> Sequence[str]:
        """Return the first addresses of the host, if all its addresses are allowed."""
        try:
            addresses = await self._resolve(url.host, url.port or DEFAULT_PORTS[url.scheme])
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise FetchFailed("its host has no address")
        private = self._private and self._is_host_listed(url.host)
        if not all(is_public(address) or (private and is_private(address)) for address in addresses):
            raise FetchRefused("its host is not on the public internet")
        return addresses[:MAX_ADDRESSES]

    async def _send_request(self, url: httpx.URL, address: str, headers: Mapping[str, str]) -> "FetchedResponse | str":
        own_headers = {name: value for name, value in headers.items() if name.lower() not in _RESERVED_HEADERS}
        request = httpx.Request(
            "GET",
            url.copy_with(host=address, fragment=None),
            headers={
                "Accept": "*/*",
                "User-Agent": "mcp_django",
                **own_headers,
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
                if response.status_code in REDIRECT_STATUSES and "location" in response.headers:
                    return response.headers["location"]
                mime_type, charset = parse_content_type(response.headers.get("content-type"))
                cache_control = response.headers.get("cache-control", "")
                return FetchedResponse(
                    response.status_code,
                    mime_type,
                    charset,
                    await read_limited_body(response, self._max_size),
                    cache_control,
                )
            finally:
                await response.aclose()

    def _is_host_listed(self, host: str) -> bool:
        host = host.lower().rstrip(".")
        return any(host == name.lstrip(".") or (name[:1] == "." and host.endswith(name)) for name in self._hosts or ())


async def read_limited_body(response: httpx.Response, max_bytes: int) -> bytes:
    """Read and decode a streamed body of at most `max_bytes` bytes.

    Raises ContentTooLarge and FetchFailed.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return await _collect_limited(response.aiter_raw(), lambda piece, room: piece, max_bytes)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise FetchFailed("its content has an unsupported encoding")
    packed = _unpacker(zlib.MAX_WBITS | 32)  # gzip or zlib, detected by the first bytes.
    try:
        return await _collect_limited(response.aiter_raw(), packed.decompress, max_bytes)
    except zlib.error:
        raise FetchFailed("its content cannot be decompressed") from None


async def _collect_limited(
    pieces: AsyncIterator[bytes], unpack: Callable[[bytes, int], bytes], max_bytes: int
) -> bytes:
    content = bytearray()
    async for piece in pieces:
        # Decompress no more than there is room for: a few bytes can expand to gigabytes.
        content += unpack(piece, max_bytes + 1 - len(content))
        if len(content) > max_bytes:
            raise ContentTooLarge(max_bytes)
    return bytes(content)


def _parse_url(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        raise FetchRefused("it is an invalid URL") from None


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or DEFAULT_PORTS[url.scheme]


async def _resolve_host(host: str, port: int) -> Sequence[str]:
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in addresses))


@functools.cache
def _get_ssl_context() -> ssl.SSLContext:
    # Cached, because loading the certificates takes longer than a request.
    return httpx.create_ssl_context(trust_env=False)


def _create_transport() -> httpx.AsyncBaseTransport:
    # Created for each request: a pool identifies connections by address, which hosts may share.
    return httpx.AsyncHTTPTransport(verify=_get_ssl_context(), trust_env=False)
