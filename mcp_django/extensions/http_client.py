"""HTTP client for requests to other servers: bounded in time and size, and safe from SSRF.

`SafeHTTPClient` sends any request within a `RequestPolicy`; `Fetcher` reads a URL that a client or a third party named.
By default only hosts whose addresses are all public are reached, and a host is resolved once. Needs httpx.
"""

from mcp_django.http_client import (
    CompleteResponse,
    Connect,
    RequestFailed,
    RequestPolicy,
    RequestProblem,
    SafeHTTPClient,
    allow_public_addresses,
    connect_directly,
    read_body,
)
from mcp_django.logs.redaction import URL_PATTERNS, RedactionFilter
from mcp_django.providers.files.patterns import ContentTooLarge
from mcp_django.providers.media_types import parse_content_type
from mcp_django.providers.safe_fetch import FetchedResponse, Fetcher, FetchFailed, FetchRefused

__all__ = [
    "URL_PATTERNS",
    "CompleteResponse",
    "Connect",
    "ContentTooLarge",
    "FetchFailed",
    "FetchRefused",
    "FetchedResponse",
    "Fetcher",
    "RedactionFilter",
    "RequestFailed",
    "RequestPolicy",
    "RequestProblem",
    "SafeHTTPClient",
    "allow_public_addresses",
    "connect_directly",
    "parse_content_type",
    "read_body",
]
