"""HTTP transport of operations; the only module of this package that uses httpx.

Requests go only to the base URL, which may have a private address. Cookies are not stored, so that no state of one
caller reaches the request of another.
"""

import http.cookiejar
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp_django.contrib.http_tools.replies import OperationReply
from mcp_django.contrib.openapi.requests.messages import OperationRequest
from mcp_django.extensions.calls import Context, get_logger
from mcp_django.extensions.errors import DeclarationError, ToolError
from mcp_django.extensions.event_loop import LoopLocal
from mcp_django.extensions.http_client import (
    URL_PATTERNS,
    RedactionFilter,
    RequestFailed,
    RequestPolicy,
    RequestProblem,
    SafeHTTPClient,
    read_body,
)

try:
    import httpx
except ImportError as missing:
    raise ImportError(
        "OpenAPI documents need httpx; install it with pip install 'mcp-django-channels[openapi]'"
    ) from missing

logger = get_logger("mcp_django.providers")
CONNECTION_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30.0)
_LOG_FILTER = RedactionFilter(URL_PATTERNS)
"""Removes queries from the URLs in httpx's logs, because some APIs put keys there."""
HTTPClientOption = httpx.AsyncClient | Callable[[], httpx.AsyncClient]


class RemoteTransport:
    """Sends requests to one base URL."""

    is_remote = True

    def __init__(
        self,
        base_url: str,
        *,
        label: str,
        client: HTTPClientOption | None = None,
        auth: httpx.Auth | None = None,
        timeout: float = 30.0,
        max_size: int,
        redirects: int = 0,
    ) -> None:
        """Set the base URL and the limits.

        `client` is the project's client, or a function that creates one for each event loop. `timeout` is the total
        seconds of a request, `max_size` the maximum bytes of a decoded answer.

        Raises DeclarationError for an invalid base URL.
        """
        self._base = parse_base_url(base_url, label)
        self._client = client
        self._auth = auth
        policy = RequestPolicy(
            timeout=timeout,
            max_bytes=max_size,
            max_redirects=redirects,
            returns_last_redirect=True,
            keeps_query=True,
            accepts_gzip=True,
        )
        self._http_client = SafeHTTPClient(policy, connect=self._connect)
        self._connections = LoopLocal(self._create_connection)
        if client is not None:
            _LOG_FILTER.install(["httpx"])

    async def send(self, request: OperationRequest, ctx: Context) -> OperationReply:
        """Send a request and return the answer. Raises ToolError."""
        policy, seconds = self._http_client.policy, request.timeout or self._http_client.policy.timeout
        try:
            response = await self._http_client.send(
                request.method,
                self._build_url(request),
                headers=_build_headers(request),
                content=request.body.content if request.body.content_type else None,
                timeout=seconds,
            )
        except RequestFailed as problem:
            match problem.problem:
                case RequestProblem.TIMEOUT:
                    text = f"The server did not answer within {seconds:g} seconds"
                case RequestProblem.TOO_LARGE:
                    text = f"The answer is larger than {policy.max_bytes} bytes, which is the limit; ask for less"
                case RequestProblem.CONNECTION:
                    logger.warning("A request to %s failed: %s", self._base.host, type(problem.__cause__).__name__)
                    text = "The server cannot be reached"
                case _:
                    text = f"The answer cannot be read, because {problem}"
            raise ToolError(text) from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        return OperationReply(response.status, headers, response.body)

    async def open(self) -> None:
        """Return at once: connections are opened on demand."""

    async def close(self) -> None:
        """Close the connections of the running loop."""
        found = self._connections.pop()
        if found is not None:
            await found.aclose()

    def _build_url(self, outgoing: OperationRequest) -> httpx.URL:
        path = self._base.raw_path.rstrip(b"/") + outgoing.path.encode("ascii")
        query = outgoing.query_string.encode("ascii")
        return self._base.copy_with(raw_path=path + (b"?" + query if query else b""))

    @asynccontextmanager
    async def _connect(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        """Send a request on the connections of the running loop."""
        connection = self._get_connection()
        if isinstance(connection, httpx.AsyncClient):
            # Merge the headers, parameters, cookies and auth of the project's client.
            merged = connection.build_request(
                request.method,
                request.url,
                headers=request.headers,
                content=request.content if "content-type" in request.headers else None,
                extensions=request.extensions,
            )
            auth: Any = httpx.USE_CLIENT_DEFAULT if self._auth is None else self._auth
            response = await connection.send(merged, stream=True, auth=auth, follow_redirects=False)
        elif self._auth is None:
            response = await connection.handle_async_request(request)
        else:
            response = await self._send_with_auth(connection, request, self._auth)

        try:
            yield response
        finally:
            await response.aclose()

    async def _send_with_auth(
        self, connection: httpx.AsyncBaseTransport, request: httpx.Request, auth: httpx.Auth
    ) -> httpx.Response:
        """Send the requests of an `httpx.Auth` flow until it is finished."""
        flow = auth.async_auth_flow(request)
        try:
            sent = await anext(flow)
            while True:
                response = await connection.handle_async_request(sent)
                response.request = sent
                if auth.requires_response_body:
                    response = await self._read_response(response)
                try:
                    sent = await flow.asend(response)
                except StopAsyncIteration:
                    return response
                await response.aclose()
        finally:
            await flow.aclose()

    async def _read_response(self, response: httpx.Response) -> httpx.Response:
        """Return the response with its body, for an `httpx.Auth` that needs it."""
        try:
            body = await read_body(response, self._http_client.policy)
        finally:
            await response.aclose()
        headers = [pair for pair in response.headers.multi_items() if pair[0] != "content-encoding"]
        return httpx.Response(response.status_code, headers=headers, content=body, request=response.request)

    def _get_connection(self) -> httpx.AsyncBaseTransport | httpx.AsyncClient:
        """Return the connections of the running loop.

        Without a client of the project this is a plain transport: it has no cookies, follows no redirects, and logs no
        URLs.
        """
        if isinstance(self._client, httpx.AsyncClient):
            self._client.cookies.jar.set_policy(_RejectCookiesPolicy())
            return self._client  # The project closes its own client.
        return self._connections.get()

    def _create_connection(self) -> httpx.AsyncBaseTransport | httpx.AsyncClient:
        if self._client is None:
            return httpx.AsyncHTTPTransport(trust_env=False, limits=CONNECTION_LIMITS)
        assert not isinstance(self._client, httpx.AsyncClient)
        connection = self._client()
        connection.cookies.jar.set_policy(_RejectCookiesPolicy())
        return connection


def _build_headers(outgoing: OperationRequest) -> list[tuple[bytes, bytes]]:
    headers = [("Accept", "application/json, */*;q=0.5"), *outgoing.headers]
    if outgoing.cookies:
        headers.append(("Cookie", outgoing.cookie_header))
    if outgoing.body.content_type:
        headers.append(("Content-Type", outgoing.body.content_type))
    own = {name.lower(): (name, value) for name, value in headers}  # The last header of a name wins.
    return [(name.encode(), value.encode()) for name, value in own.values()]


class _RejectCookiesPolicy(http.cookiejar.DefaultCookiePolicy):
    """Sends cookies that the project put into a jar, and stores none of a server."""

    def set_ok(self, cookie: Any, request: Any) -> bool:
        return False


def parse_base_url(url: str, label: str) -> httpx.URL:
    """Parse a base URL.

    Raises DeclarationError unless it is an http or https URL with a host, and without login, query and fragment.
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        raise DeclarationError(f"{label}: {str(url)[:200]!r} is an invalid URL") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise DeclarationError(f"{label}: base_url is an http or https URL with a host, not {str(url)[:200]!r}")
    if parsed.userinfo:
        raise DeclarationError(f"{label}: base_url contains a login; give it as credentials")
    if parsed.query or parsed.fragment:
        raise DeclarationError(f"{label}: base_url has a query or a fragment; leave it out")
    return parsed


def is_httpx_auth(value: Any) -> bool:
    """Return True for an httpx.Auth."""
    return isinstance(value, httpx.Auth)
