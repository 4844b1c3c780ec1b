"""HTTP client for requests to other servers: bounded, and safe from SSRF.

A `RequestPolicy` limits the time, bytes and redirects of a request, and the URLs and addresses that it may reach. By
default a host is resolved once, all its addresses must be public, and the connection goes to one of them. The name is
not resolved a second time, so it cannot change in between (DNS rebinding). TLS and the Host header keep the name.
Cookies are never stored. Proxies, netrc and the environment are ignored, unless a caller connects in another way. The
caller's headers are sent to the origin of the first URL only.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from mcp_django.protocol.ip_ranges import is_public

if TYPE_CHECKING:
    import httpx

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
MAX_ADDRESSES: Final = 2
"""Maximum number of addresses of a host to try."""
_RESERVED_HEADERS: Final = ("accept-encoding", "connection", "content-length", "host", "transfer-encoding")
_TIMEOUTS: Final = ("connect", "read", "write", "pool")
_unpacker = zlib.decompressobj

ResolveHost = Callable[[str, int], Awaitable[Sequence[str]]]
CreateTransport = Callable[[], "httpx.AsyncBaseTransport"]
Headers = Mapping[str, str] | Sequence[tuple[str, str]] | Sequence[tuple[bytes, bytes]]
Content = TypeVar("Content", bytes, bytearray)
Connect = Callable[["httpx.Request"], AbstractAsyncContextManager["httpx.Response"]]
"""Function that sends one request. The response is open, and its body unread."""


class RequestProblem(Enum):
    """Reason of a failed request."""

    INVALID_URL = auto()
    TIMEOUT = auto()
    """The whole request took too long."""
    CONNECTION = auto()
    NO_ADDRESS = auto()
    """The host has no address."""
    ADDRESS_REFUSED = auto()
    """The policy does not allow an address of the host."""
    REDIRECTS = auto()
    """The response redirects more often than the policy allows."""
    ENCODING = auto()
    """The content is encoded in a way that the policy does not allow."""
    DAMAGED = auto()
    """The content cannot be decompressed."""
    TOO_LARGE = auto()


class RequestFailed(Exception):
    """A failed request. The text contains no data of the request, and no addresses."""

    problem: RequestProblem
    """Reason of the failure."""

    def __init__(self, problem: RequestProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


async def allow_public_addresses(url: str, addresses: Sequence[str]) -> bool:
    """Return True if all addresses of a host are on the public internet."""
    return all(map(is_public, addresses))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """Limits of a request."""

    timeout: float
    """Seconds for the whole request: name resolution, connections, redirects and body."""
    max_bytes: int
    """Maximum size of the decoded body in bytes."""
    max_redirects: int = 0
    """Maximum number of redirects of a GET request to follow. A further one is a failure."""
    returns_last_redirect: bool = False
    """True if a further redirect is returned as the response."""
    leaves_origin: bool = False
    """True if redirects to other origins are followed; otherwise they are returned as the response."""
    keeps_query: bool = False
    """True if a redirect to a URL without query gets the query of the first URL."""
    accepts_gzip: bool = False
    """True if the response may be compressed."""
    check_url: Callable[[str], object] | None = None
    """Function that raises an exception for a refused URL. Called for redirects, too."""
    allow_addresses: Callable[[str, Sequence[str]], Awaitable[bool]] = allow_public_addresses
    """Function that returns True if the host of a URL may have these addresses."""


@dataclass(frozen=True, slots=True)
class CompleteResponse:
    """A response with its decoded body."""

    status: int
    headers: httpx.Headers
    body: bytes


class SafeHTTPClient:
    """Sends requests within a policy.

        client = SafeHTTPClient(RequestPolicy(timeout=10, max_bytes=1024 * 1024))
        response = await client.send("POST", "https://api.example.com/orders", content=body)

    `connect` replaces the checked connections: it serves URLs that the project itself has chosen. `resolve` and
    `transport` are for tests.
    """

    def __init__(
        self,
        policy: RequestPolicy,
        *,
        connect: Connect | None = None,
        resolve: ResolveHost | None = None,
        transport: CreateTransport | None = None,
    ) -> None:
        self.policy = policy
        self._connect = connect or self._connect_to_allowed_address
        self._resolve = resolve or _resolve_host
        self._transport = transport or _create_transport

    async def send(
        self,
        method: str,
        url: httpx.URL | str,
        *,
        headers: Headers = (),
        content: bytes | None = None,
        form: Mapping[str, str] | None = None,
        timeout: float | None = None,
        reads_body: bool = True,
    ) -> CompleteResponse:
        """Send a request and return the response with any status, optionally without body.

        `form` is encoded as the content. `timeout` replaces that of the policy. Raises RequestFailed.
        """
        import httpx

        seconds = timeout or self.policy.timeout
        try:
            async with asyncio.timeout(seconds):
                self._check_url(url)
                request = httpx.Request(method, url, headers=headers, content=content, data=form)
                return await self._follow_redirects(request, reads_body)
        except TimeoutError:
            raise RequestFailed(RequestProblem.TIMEOUT, f"it took longer than {seconds:g} seconds") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, UnicodeError) as problem:
            # The exception's text could contain the request.
            raise RequestFailed(RequestProblem.CONNECTION, "the connection failed") from problem

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host; an empty sequence if it has none."""
        try:
            return await self._resolve(host, port)
        except (OSError, UnicodeError):
            return ()

    def _check_url(self, url: httpx.URL | str) -> None:
        if self.policy.check_url is not None:
            self.policy.check_url(str(url))

    async def _follow_redirects(self, first: httpx.Request, reads_body: bool) -> CompleteResponse:
        request, policy = first, self.policy
        for remaining in range(policy.max_redirects, -1, -1):
            request.headers.setdefault("Accept", "*/*")
            request.headers.setdefault("User-Agent", "mcp_django")
            request.headers["Accept-Encoding"] = "gzip" if policy.accepts_gzip else "identity"
            request.extensions["timeout"] = dict.fromkeys(_TIMEOUTS)  # `send` limits the total.

            async with self._connect(request) as response:
                target = self._find_redirect(request, response)
                if target is None or (not remaining and policy.returns_last_redirect):
                    body = await read_body(response, policy) if reads_body else b""
                    return CompleteResponse(response.status_code, response.headers, body)
            request = self._redirect_request(first, target)
        raise RequestFailed(RequestProblem.REDIRECTS, "it redirects, or redirects too often")

    def _find_redirect(self, request: httpx.Request, response: httpx.Response) -> httpx.URL | None:
        """Return the target of a redirect to follow."""
        location = response.headers.get("location")
        if request.method != "GET" or response.status_code not in REDIRECT_STATUSES or not location:
            return None
        target = request.url.join(location)
        if self.policy.leaves_origin:
            return target
        return target if get_origin(str(target)) == get_origin(str(request.url)) and not target.userinfo else None

    def _redirect_request(self, first: httpx.Request, target: httpx.URL) -> httpx.Request:
        import httpx

        if self.policy.keeps_query and first.url.query and not target.query:
            target = target.copy_with(query=first.url.query)
        self._check_url(target)
        if get_origin(str(target)) != get_origin(str(first.url)):
            return httpx.Request("GET", target)
        return httpx.Request("GET", target, headers=first.headers, content=first.content)

    @asynccontextmanager
    async def _connect_to_allowed_address(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        """Resolve the host once, and connect to one of its addresses if all of them are allowed."""
        import httpx

        url = request.url
        addresses = await self.resolve(url.host, get_origin(str(url))[2])
        if not addresses:
            raise RequestFailed(RequestProblem.NO_ADDRESS, "its host has no address")
        if not await self.policy.allow_addresses(str(url), addresses):
            raise RequestFailed(RequestProblem.ADDRESS_REFUSED, "its host is not on the public internet")

        async with AsyncExitStack() as stack:
            *others, last = addresses[:MAX_ADDRESSES]
            for address in [*others, last]:
                transport = await stack.enter_async_context(self._transport())
                try:
                    response = await transport.handle_async_request(_pin_request(request, address))
                    break
                except httpx.ConnectError:
                    if address is last:
                        raise
            stack.push_async_callback(response.aclose)
            yield response


def _pin_request(request: httpx.Request, address: str) -> httpx.Request:
    """Return the request for one address of its host."""
    import httpx

    url = request.url
    headers = {name: value for name, value in request.headers.items() if name not in _RESERVED_HEADERS}
    headers["Accept-Encoding"] = request.headers["Accept-Encoding"]
    headers["Host"] = url.netloc.decode("ascii")
    headers["Connection"] = "close"
    return httpx.Request(
        request.method,
        url.copy_with(host=address, fragment=None),
        headers=headers,
        content=request.content,
        extensions={**request.extensions, "sni_hostname": url.raw_host.decode("ascii")},
    )


async def read_body(response: httpx.Response, policy: RequestPolicy) -> bytes:
    """Read and decode the body of an open response, within the limits of the policy.

    Raises RequestFailed.
    """
    if response.is_stream_consumed:
        return _check_size(response.content, policy)
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    is_packed = policy.accepts_gzip and encoding in ("gzip", "x-gzip", "deflate")
    if encoding not in ("", "identity") and not is_packed:
        raise RequestFailed(RequestProblem.ENCODING, "its content has an unsupported encoding")
    packed = _unpacker(zlib.MAX_WBITS | 32) if is_packed else None  # gzip or zlib, detected by the first bytes.

    content = bytearray()
    try:
        async for piece in response.aiter_raw():
            # Decompress no more than there is room for: a few bytes can expand to gigabytes.
            content += piece if packed is None else packed.decompress(piece, policy.max_bytes + 1 - len(content))
            _check_size(content, policy)
    except zlib.error:
        raise RequestFailed(RequestProblem.DAMAGED, "its content cannot be decompressed") from None
    return bytes(content)


def _check_size(content: Content, policy: RequestPolicy) -> Content:
    if len(content) > policy.max_bytes:
        raise RequestFailed(RequestProblem.TOO_LARGE, f"its content is longer than {policy.max_bytes} bytes")
    return content


def connect_directly(
    *, ca_file: str | None = None, trust_env: bool = False, basic: tuple[str, str] | None = None
) -> Connect:
    """Return a function that connects without a check of addresses, for URLs that the project has chosen.

    `ca_file` holds certificates to trust instead of the default ones. With `trust_env` the proxies and certificates of
    the environment apply. `basic` is a username with a password.
    """

    @asynccontextmanager
    async def connect(request: httpx.Request) -> AsyncIterator[httpx.Response]:
        import httpx

        context = await asyncio.to_thread(get_ssl_context, ca_file, trust_env)
        async with httpx.AsyncClient(verify=context, trust_env=trust_env) as client:
            auth = None if basic is None else httpx.BasicAuth(*basic)
            response = await client.send(request, auth=auth, stream=True, follow_redirects=False)
            try:
                yield response
            finally:
                await response.aclose()

    return connect


def parse_url(url: httpx.URL | str) -> httpx.URL:
    """Parse a URL. Raises RequestFailed."""
    import httpx

    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        raise RequestFailed(RequestProblem.INVALID_URL, "it is an invalid URL") from None


def get_origin(url: str) -> tuple[str, str, int]:
    """Return the scheme, host and port of a URL."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or DEFAULT_PORTS.get(parts.scheme, 0)


async def _resolve_host(host: str, port: int) -> Sequence[str]:
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))


@functools.lru_cache(16)
def get_ssl_context(ca_file: str | None = None, trust_env: bool = False) -> ssl.SSLContext:
    """Return a cached context, because loading the certificates takes longer than a request, and blocks."""
    import httpx

    if ca_file is not None:
        return ssl.create_default_context(cafile=ca_file)
    return httpx.create_ssl_context(trust_env=trust_env)


def _create_transport() -> httpx.AsyncBaseTransport:
    # Created for each request: a pool identifies connections by address, which hosts may share.
    import httpx

    return httpx.AsyncHTTPTransport(verify=get_ssl_context(), trust_env=False)
