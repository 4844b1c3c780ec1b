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

from mcp_django.auth.throttling import throttle
from mcp_django.contrib.oauth.clients import clients, documents
from mcp_django.contrib.oauth.clients.client_metadata import Refused
from mcp_django.contrib.oauth.clients.documents import Document
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.toolkit_compat import applications
from mcp_django.server.calls.log_sanitizer import label
from mcp_django.server.rates import Rate

logger = logging.getLogger("mcp_django.oauth")

AT_ONCE: Final = 8
"""Maximum number of concurrent fetches of one process.

Further fetches are rejected instead of queued, because each one holds a thread.
"""
PER_USER: Final = Rate(20, 60)
IN_ALL: Final = Rate(300, 60)
AFTER_FAILURE: Final = Rate(1, 60)
"""Retry rate of a URL whose fetch failed."""
KEPT_ON_FAILURE: Final = timedelta(days=7)
"""Time for which an expired document stays valid while fetching it fails."""
_slots = threading.BoundedSemaphore(AT_ONCE)


class Unavailable(Exception):
    """Error: the client's document is not available now.

    The text may be shown to users; the log has details.
    """


def look_up(client_id: str, user: Any) -> None:
    """Create or update the row of a client whose id is the URL of a document.

    Call it for an authorization request of `user`, who is logged in. A fetch may take seconds.

    Raises:
        ClientDocumentUnavailable: the request cannot continue.
    """
    if not documents.is_document_url(client_id):
        return

    found = _row(client_id)
    if found is not None and not _is_due(found):
        return
    if not get_settings().client_metadata_documents:
        raise Unavailable("Clients described by documents are disabled on this server")

    try:
        _fetched(client_id, user)
    except (Refused, clients.TooMany) as problem:
        why = problem.description if isinstance(problem, Refused) else "there are too many clients"
        logger.info("Metadata document rejected: %s: %s", label(client_id), why)
        if found is None or timezone.now() > found.cimd_expires_at + KEPT_ON_FAILURE:
            text = "The document that describes this client could not be fetched or was rejected"
            raise Unavailable(text) from problem


def pin(url: str, body: bytes) -> Any:
    """Save an operator's copy of the document at `url`, and never fetch it.

    Returns:
        The application.

    Raises:
        ClientMetadataRefused: the URL or the document is rejected.
    """
    if problem := documents.problem_with(url):
        raise Refused(f"the URL is not a valid client id: {problem}")
    found = documents.read_bytes(url, body, schemes=get_settings().native_schemes)
    application = clients.keep_document(url, found.metadata, digest=found.digest, expires=None, pinned=True)
    if application.registration_source != applications().RegistrationSource.CIMD:
        raise Refused("a client with this id exists that does not come from a document")
    return application


def _row(client_id: str) -> Any:
    if len(client_id) > documents.MOST_URL or not (client_id.isascii() and client_id.isprintable()):
        return None  # some databases reject other values in a query
    model = applications()
    return model._base_manager.using(router.db_for_write(model)).filter(client_id=client_id).first()


def _is_due(application: Any) -> bool:
    """Return True if the document must be fetched again.

    Clients that operators created or pinned are never fetched.
    """
    if application.registration_source != applications().RegistrationSource.CIMD:
        return False
    expires = application.cimd_expires_at
    return expires is not None and expires <= timezone.now()


def _fetched(url: str, user: Any) -> Any:
    if problem := documents.problem_with(url):
        raise Refused(problem)

    counter, digest = throttle.counter(), hashlib.sha256(url.encode()).hexdigest()
    if counter.wait("document failures", digest, AFTER_FAILURE) is not None:
        raise Refused("a recent fetch failed; try again in a minute")
    for name, key, rate in (("documents", f"user {user.pk}", PER_USER), ("documents", "all", IN_ALL)):
        if counter.take(name, key, rate, closed=True) is not None:
            raise Refused("too many documents were requested")

    if not _slots.acquire(blocking=False):
        raise Refused("too many documents are being fetched")
    try:
        found = _get(url)
    except Refused:
        counter.take("document failures", digest, AFTER_FAILURE)
        raise
    finally:
        _slots.release()

    expires = timezone.now() + timedelta(seconds=found.seconds)
    return clients.keep_document(url, found.metadata, digest=found.digest, expires=expires)


def _get(url: str) -> Document:
    settings = get_settings()
    fetcher = documents.make_fetcher(settings.document_hosts)
    return async_to_sync(documents.fetch)(url, fetcher, schemes=settings.native_schemes)
