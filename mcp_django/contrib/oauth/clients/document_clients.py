"""Clients described by metadata documents: lookup, fetching and refreshing.

A document is fetched in one place: the authorization request of a logged-in user, before the request is validated.
Everywhere else, a client is its row in the database. Fetching is limited to prevent abuse: per user, in total,
concurrently per process, and after a failure.
"""

import hashlib
import logging
import threading
from datetime import timedelta
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.db import router
from django.utils import timezone

from mcp_django.auth.throttling import get_counter
from mcp_django.contrib.oauth.clients import clients, documents
from mcp_django.contrib.oauth.clients.client_metadata import ClientMetadataRefused
from mcp_django.contrib.oauth.clients.documents import ClientDocument
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.toolkit_compat import get_application_model
from mcp_django.server.calls.log_sanitizer import sanitize_label
from mcp_django.server.rates import Rate

logger = logging.getLogger("mcp_django.oauth")

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
    if not documents.is_document_url(client_id):
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
    if problem := documents.find_url_problem(url):
        raise ClientMetadataRefused(f"the URL is not a valid client id: {problem}")
    document = documents.parse_document(url, body, schemes=get_settings().native_schemes)
    application = clients.save_document_client(
        url, document.metadata, digest=document.digest, expires=None, pinned=True
    )
    if application.registration_source != get_application_model().RegistrationSource.CIMD:
        raise ClientMetadataRefused("a client with this id exists that does not come from a document")
    return application


def _find_application(client_id: str) -> Any:
    if len(client_id) > documents.MAX_URL_CHARS or not (client_id.isascii() and client_id.isprintable()):
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
    if problem := documents.find_url_problem(url):
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
        document = _fetch_document(url)
    except ClientMetadataRefused:
        counter.count("document failures", digest, RETRY_RATE)
        raise
    finally:
        _fetch_slots.release()

    expires = timezone.now() + timedelta(seconds=document.lifetime_seconds)
    return clients.save_document_client(url, document.metadata, digest=document.digest, expires=expires)


def _fetch_document(url: str) -> ClientDocument:
    settings = get_settings()
    fetcher = documents.make_fetcher(settings.document_hosts)
    return async_to_sync(documents.fetch_document)(url, fetcher, schemes=settings.native_schemes)
