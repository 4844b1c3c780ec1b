"""SSRF-safe GET: fetch untrusted URLs without access to private networks.

`mcp_django.http_client` resolves the host once and connects to a checked address. A redirect is checked like the first
URL, and gets the caller's headers only on the same origin. Time, redirects and bytes (after decompression) are limited.
All fetches of URLs from third parties (resources, client metadata) use this module.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mcp_django.http_client import (
    DEFAULT_PORTS,
    CreateTransport,
    RequestFailed,
    RequestPolicy,
    RequestProblem,
    ResolveHost,
    SafeHTTPClient,
    parse_url,
)
from mcp_django.protocol.ip_ranges import is_private, is_public
from mcp_django.providers.files.patterns import ContentTooLarge
from mcp_django.providers.media_types import parse_content_type

_HOST = re.compile(rb"[A-Za-z0-9._\-]+|[0-9A-Fa-f:.]+")


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
    """Fetches URLs with GET that the project did not choose itself, without access to private networks.

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
        resolve: ResolveHost | None = None,
        transport: CreateTransport | None = None,
    ) -> None:
        """Validate the options. `resolve` and `transport` are for tests."""
        if isinstance(allowed_hosts, str):
            raise ValueError(f"allowed_hosts is a list; write [{allowed_hosts!r}]")
        self._hosts = None if allowed_hosts is None else tuple(host.lower().rstrip(".") for host in allowed_hosts)
        if private and self._hosts is None:
            raise ValueError("private=True needs allowed_hosts, because any name could resolve to a private address")
        self._private = private
        self._http = http
        policy = RequestPolicy(
            timeout=timeout,
            max_bytes=max_size,
            max_redirects=redirects,
            leaves_origin=True,
            accepts_gzip=True,
            check_url=self.check_url,
            allow_addresses=self._allow_addresses,
        )
        self._client = SafeHTTPClient(policy, resolve=resolve, transport=transport)

    @staticmethod
    def get_host(url: str) -> str:
        """Return the host of a URL in the form of `allowed_hosts`. Raises FetchRefused."""
        try:
            return parse_url(url).host
        except RequestFailed as problem:
            raise FetchRefused(str(problem)) from None

    def check_url(self, url: str) -> None:
        """Check a URL without resolving its host. Raises FetchRefused."""
        host, parsed = self.get_host(url), parse_url(url)
        if parsed.scheme != "https" and not (parsed.scheme == "http" and self._http):
            raise FetchRefused(
                "only https URLs are fetched" if not self._http else "only http and https URLs are fetched"
            )
        if parsed.userinfo or not _HOST.fullmatch(parsed.raw_host):
            raise FetchRefused("it has no host, or a login")
        is_listed = self._is_host_listed(host)
        if self._hosts is not None and not is_listed:
            raise FetchRefused("its host is not allowed")
        if not is_listed and (parsed.port or DEFAULT_PORTS[parsed.scheme]) != DEFAULT_PORTS[parsed.scheme]:
            raise FetchRefused("its port is not the default of its scheme")

    async def fetch(self, url: str, headers: Mapping[str, str] | None = None) -> FetchedResponse:
        """Return the response with any status.

        Raises:
            FetchRefused: the URL may not be fetched.
            FetchFailed: the connection failed, or took too long.
            ContentTooLarge: the body exceeds `max_size`.
        """
        try:
            response = await self._client.send("GET", url, headers=headers or {})
        except RequestFailed as problem:
            if problem.problem is RequestProblem.TOO_LARGE:
                raise ContentTooLarge(self._client.policy.max_bytes) from None
            failure = FetchRefused if problem.problem is RequestProblem.ADDRESS_REFUSED else FetchFailed
            raise failure(str(problem)) from problem.__cause__
        mime_type, charset = parse_content_type(response.headers.get("content-type"))
        cache_control = response.headers.get("cache-control", "")
        return FetchedResponse(response.status, mime_type, charset, response.body, cache_control)

    async def _allow_addresses(self, url: str, addresses: Sequence[str]) -> bool:
        private = self._private and self._is_host_listed(self.get_host(url))
        return all(is_public(address) or (private and is_private(address)) for address in addresses)

    def _is_host_listed(self, host: str) -> bool:
        host = host.lower().rstrip(".")
        return any(host == name.lstrip(".") or (name[:1] == "." and host.endswith(name)) for name in self._hosts or ())
