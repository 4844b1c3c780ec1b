"""Client ID Metadata Documents: validation of their URLs, fetching, and lifetime.

A `client_id` may be the URL of a document that describes the client (draft-ietf-oauth-client-id-metadata-document; MCP
basic/authorization, Client ID Metadata Documents).

The URL is untrusted, so `providers.safe_fetch` fetches it as it fetches resources: one resolution, public addresses
only, a connection to the checked address, no redirects, limited time and bytes. The fetcher of django-oauth-toolkit is
not used, nor is the rest of its module. It accepts any port and internal addresses, and rejects the documents of
claude.ai, ChatGPT and VS Code. It is also reachable from endpoints without login.

The module `document_clients` saves the rows.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from mcp_django.contrib.oauth.clients.client_metadata import (
    MAX_METADATA_BYTES,
    ClientMetadata,
    ClientMetadataRefused,
    read_document,
    read_json,
)
from mcp_django.providers.files.patterns import ContentTooLarge
from mcp_django.providers.safe_fetch import FetchedResponse, Fetcher, FetchFailed
from mcp_django.providers.safe_fetch import FetchRefused as NotFetched

MAX_URL_CHARS = 255
"""Maximum number of characters of a URL: the size of the toolkit's column for client ids."""
FETCH_TIMEOUT_SECONDS = 5.0
"""Timeout of a whole fetch in seconds. It is short because a browser waits for the response."""
MIN_LIFETIME_SECONDS, DEFAULT_LIFETIME_SECONDS, MAX_LIFETIME_SECONDS = 5 * 60, 60 * 60, 24 * 60 * 60
"""Bounds and default of a document's lifetime in seconds."""
_URL = re.compile(r"https://[\x21-\x7e]+", re.ASCII)
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?", re.ASCII)
_PATH = re.compile(r"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*)+", re.ASCII)
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,10})", re.ASCII | re.IGNORECASE)
_NO_STORE = re.compile(r"(?:^|[,\s])no-(?:store|cache)\b", re.ASCII | re.IGNORECASE)
_HEADERS: Mapping[str, str] = {"Accept": "application/json, application/*+json"}


@dataclass(frozen=True, slots=True)
class ClientDocument:
    """Metadata document after parsing."""

    metadata: ClientMetadata
    digest: str
    """SHA-256 of its bytes, 64 hexadecimal digits."""
    lifetime_seconds: int
    """Lifetime in seconds."""


def is_document_url(client_id: str) -> bool:
    """Return True for ids that are reserved for clients described by documents."""
    return client_id[:8].lower() == "https://"


def find_url_problem(url: str) -> str | None:
    """Return the reason that a URL is not a valid client id; None if it is valid.

    The rules of section 3 of the draft apply. They are narrower where one document could have two URLs or a URL could
    carry additional data: a host name, port 443, no query.
    """
    if len(url) > MAX_URL_CHARS:
        return f"it has more than {MAX_URL_CHARS} characters"
    if not _URL.fullmatch(url) or "\\" in url:
        return "it is not an https URL in ASCII"
    if "#" in url or "?" in url:
        return "it has a query or a fragment"

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "it is malformed"

    if parts.netloc != host + ("" if port is None else f":{port}") or not _HOST.fullmatch(host) or _is_address(host):
        return "its host must be a lower-case name without userinfo"
    if port not in (None, 443):
        return "its port is not 443"

    if parts.path in ("", "/") or not _PATH.fullmatch(parts.path):
        return "it has no path"
    if any(segment in (".", "..") for segment in unquote(parts.path).split("/")):
        return "its path has dot segments"
    return None


def make_fetcher(hosts: Sequence[str] | None) -> Fetcher:
    """Return a fetcher of documents, limited to `hosts` unless that is None."""
    return Fetcher(allowed_hosts=hosts, timeout=FETCH_TIMEOUT_SECONDS, max_size=MAX_METADATA_BYTES)


async def fetch_document(url: str, fetcher: Fetcher, *, schemes: Collection[str]) -> ClientDocument:
    """Fetch the document at a URL.

    `schemes` are the allowed private-use schemes of redirect URIs.

    Raises:
        ClientMetadataRefused: any failure. Its text is for the log and for operators.
    """
    if problem := find_url_problem(url):
        raise ClientMetadataRefused(problem)
    try:
        response = await fetcher.fetch(url, _HEADERS)
    except (FetchFailed, NotFetched) as error:
        raise ClientMetadataRefused(f"the document was not fetched: {error}") from error
    except ContentTooLarge:
        raise ClientMetadataRefused(f"the document has more than {MAX_METADATA_BYTES} bytes") from None
    return read_response(url, response, schemes=schemes)


def read_response(url: str, response: FetchedResponse, *, schemes: Collection[str]) -> ClientDocument:
    """Parse the document in a response.

    Raises:
        ClientMetadataRefused: the response is rejected.
    """
    if response.status != 200:
        raise ClientMetadataRefused(f"the response for the document has the status {response.status}")
    kind = response.mime_type or ""
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise ClientMetadataRefused("the content type of the document must be JSON")
    return parse_document(
        url, response.body, schemes=schemes, lifetime_seconds=get_lifetime_seconds(response.cache_control)
    )


def parse_document(
    url: str, body: bytes, *, schemes: Collection[str], lifetime_seconds: int = MAX_LIFETIME_SECONDS
) -> ClientDocument:
    """Parse a document from bytes.

    Raises:
        ClientMetadataRefused: the document is rejected.
    """
    metadata = read_document(read_json(body), url=url, schemes=schemes)
    return ClientDocument(metadata, hashlib.sha256(body).hexdigest(), lifetime_seconds)


def get_lifetime_seconds(cache_control: str) -> int:
    """Return the lifetime in seconds from Cache-Control (RFC 9111, section 5.2.2).

    The value is bounded: the author of a document can neither force a fetch for each request nor an unlimited lifetime.
    """
    if _NO_STORE.search(cache_control):
        return MIN_LIFETIME_SECONDS
    max_age = _MAX_AGE.search(cache_control)
    return max(
        MIN_LIFETIME_SECONDS, min(int(max_age[1]) if max_age else DEFAULT_LIFETIME_SECONDS, MAX_LIFETIME_SECONDS)
    )


def _is_address(host: str) -> bool:
    """Return True for an address in any spelling that resolvers accept (`1.2`, `0x7f.1`).

    A top-level domain is never a number.
    """
    try:
        ip_address(host)
    except ValueError:
        return bool(re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]))
    return True
