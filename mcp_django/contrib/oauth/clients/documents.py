"""Client ID Metadata Documents, and the clients that they describe.

A `client_id` may be the URL of a document that describes the client (draft-ietf-oauth-client-id-metadata-document; MCP
basic/authorization, Client ID Metadata Documents).

The URL is untrusted, so `providers.safe_fetch` fetches it as it fetches resources: one resolution, public addresses
only, a connection to the checked address, no redirects, limited time and bytes. The fetcher of django-oauth-toolkit is
not used, nor is the rest of its module. It accepts any port and internal addresses, and rejects the documents of
claude.ai, ChatGPT and VS Code. It is also reachable from endpoints without login.

A document is fetched in one place: the authorization request of a logged-in user, before the request is validated.
Everywhere else, a client is its row in the database. Fetching is limited to prevent abuse: per user, in total,
concurrently per process, and after a failure.
"""

import hashlib
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from asgiref.sync import async_to_sync
from django.db import router
from django.utils import timezone

from mcp_django.auth.throttling import get_counter
from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.clients.client_metadata import (
    MAX_METADATA_BYTES,
    ClientMetadata,
    ClientMetadataRefused,
    read_document,
    read_json,
)
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.toolkit_compat import get_application_model
from mcp_django.extensions.calls import get_logger, sanitize_label
from mcp_django.extensions.http_client import ContentTooLarge, FetchedResponse, Fetcher, FetchFailed
from mcp_django.extensions.http_client import FetchRefused as NotFetched
from mcp_django.extensions.primitives import Rate

logger = get_logger("mcp_django.oauth")

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
MAX_CONCURRENT_FETCHES: Final = 8
"""Maximum number of concurrent fetches of one process.

Further fetches are rejected instead of queued, because each one holds a thread.
"""
USER_FETCH_RATE: Final = Rate(20, 60)
TOTAL_FETCH_RATE: Final = Rate(300, 60)
RETRY_RATE: Final = Rate(1, 60)
"""Retry rate of a URL whose fetch failed."""
STALE_DOCUMENT_LIFETIME: Final = timedelta(days=7)
"""Time for which an expired document stays valid while fetching it fails."""
_fetch_slots = threading.BoundedSemaphore(MAX_CONCURRENT_FETCHES)


@dataclass(frozen=True, slots=True)
class ClientDocument:
    """Metadata document after parsing."""

    metadata: ClientMetadata
    digest: str
    """SHA-256 of its bytes, 64 hexadecimal digits."""
    lifetime_seconds: int
    """Lifetime in seconds."""


def is_document_url(client_id: str) -> bool:
    """Return True for ids that are reserved for clients that documents describe."""
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


class ClientDocumentUnavailable(Exception):
    """Error: the client's document is not available now.

    The text may be shown to users; the log has details.
    """


def refresh_client(client_id: str, user: Any) -> None:
    """Create or update the row of a client whose id is the URL of a document.

    Call it for an authorization request of `user`, who is logged in. A fetch may take seconds.

    Raises:
        ClientDocumentUnavailable: the request cannot continue.
    """
    if not is_document_url(client_id):
        return

    application = _find_application(client_id)
    if application is not None and not _needs_fetch(application):
        return
    if not get_settings().client_metadata_documents:
        raise ClientDocumentUnavailable("Clients described by documents are disabled on this server")

    try:
        _fetch_client(client_id, user)
    except (ClientMetadataRefused, clients.TooManyClients) as problem:
        reason = problem.description if isinstance(problem, ClientMetadataRefused) else "there are too many clients"
        logger.info("Metadata document rejected: %s: %s", sanitize_label(client_id), reason)
        if application is None or timezone.now() > application.cimd_expires_at + STALE_DOCUMENT_LIFETIME:
            text = "The document that describes this client could not be fetched or was rejected"
            raise ClientDocumentUnavailable(text) from problem


def pin_document(url: str, body: bytes) -> Any:
    """Save an operator's copy of the document at `url`, and never fetch it.

    Returns:
        The application.

    Raises:
        ClientMetadataRefused: the URL or the document is rejected.
    """
    if problem := find_url_problem(url):
        raise ClientMetadataRefused(f"the URL is not a valid client id: {problem}")
    document = parse_document(url, body, schemes=get_settings().native_schemes)
    application = clients.save_document_client(
        url, document.metadata, digest=document.digest, expires=None, pinned=True
    )
    if application.registration_source != get_application_model().RegistrationSource.CIMD:
        raise ClientMetadataRefused("a client with this id exists that does not come from a document")
    return application


def _find_application(client_id: str) -> Any:
    if len(client_id) > MAX_URL_CHARS or not (client_id.isascii() and client_id.isprintable()):
        return None  # some databases reject other values in a query
    model = get_application_model()
    return model._base_manager.using(router.db_for_write(model)).filter(client_id=client_id).first()


def _needs_fetch(application: Any) -> bool:
    """Return True if the document must be fetched again.

    Clients that operators created or pinned are never fetched.
    """
    if application.registration_source != get_application_model().RegistrationSource.CIMD:
        return False
    expires = application.cimd_expires_at
    return expires is not None and expires <= timezone.now()


def _fetch_client(url: str, user: Any) -> Any:
    if problem := find_url_problem(url):
        raise ClientMetadataRefused(problem)

    counter, digest = get_counter(), hashlib.sha256(url.encode()).hexdigest()
    if counter.count("document failures", digest, RETRY_RATE, dry_run=True) is not None:
        raise ClientMetadataRefused("a recent fetch failed; try again in a minute")
    for name, key, rate in (("documents", f"user {user.pk}", USER_FETCH_RATE), ("documents", "all", TOTAL_FETCH_RATE)):
        if counter.count(name, key, rate, fail_closed=True) is not None:
            raise ClientMetadataRefused("too many documents were requested")

    if not _fetch_slots.acquire(blocking=False):
        raise ClientMetadataRefused("too many documents are being fetched")
    try:
        settings = get_settings()
        fetcher = make_fetcher(settings.document_hosts)
        document = async_to_sync(fetch_document)(url, fetcher, schemes=settings.native_schemes)
    except ClientMetadataRefused:
        counter.count("document failures", digest, RETRY_RATE)
        raise
    finally:
        _fetch_slots.release()

    expires = timezone.now() + timedelta(seconds=document.lifetime_seconds)
    return clients.save_document_client(url, document.metadata, digest=document.digest, expires=expires)
