"""Clients that documents describe: which row a URL stands for, and when its document is read again.

A document is fetched in one place, an authorization request of a user who is logged in, before the request is judged;
everywhere else, and for everybody else, a client is what the database says. What a stranger could make of fetching is
bounded: so many for a user and in all, so many at once in a process, and not again soon where it failed.
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
"""Fetches of one process at a time. One more is refused, not queued: each holds a thread."""
PER_USER: Final = Rate(20, 60)
IN_ALL: Final = Rate(300, 60)
AFTER_FAILURE: Final = Rate(1, 60)
"""How often a URL is tried that fails."""
KEPT_ON_FAILURE: Final = timedelta(days=7)
"""How long the last document counts after it should have been read again, while that fails."""
_slots = threading.BoundedSemaphore(AT_ONCE)


class Unavailable(Exception):
    """There is no document for the client, now. The text may be shown; the log says more."""


def look_up(client_id: str, user: Any) -> None:
    """See to it that the client's row is there and up to date, if its id is the URL of a document.

    To be called for an authorization request of `user`, who is logged in. May fetch, and so take seconds. Raises
    Unavailable when the request cannot go on.
    """
    if not documents.is_document_url(client_id):
        return
    found = _row(client_id)
    if found is not None and not _is_due(found):
        return
    if not get_settings().client_metadata_documents:
        raise Unavailable("Clients are not described by documents here")
    try:
        _fetched(client_id, user)
    except (Refused, clients.TooMany) as problem:
        why = problem.description if isinstance(problem, Refused) else "there are too many clients"
        logger.info("The metadata document %s is not taken: %s", label(client_id), why)
        if found is None or timezone.now() > found.cimd_expires_at + KEPT_ON_FAILURE:
            text = "The document that describes this client could not be read, or is not one that is taken here"
            raise Unavailable(text) from problem


def pin(url: str, body: bytes) -> Any:
    """Have the client at `url` be what `body`, an operator's copy of its document, says, and never fetch it; return
    the application. Raises Refused.
    """
    if problem := documents.problem_with(url):
        raise Refused(f"the URL cannot be a client's id: {problem}")
    found = documents.read_bytes(url, body, schemes=get_settings().native_schemes)
    application = clients.keep_document(url, found.metadata, digest=found.digest, expires=None, pinned=True)
    if application.registration_source != applications().RegistrationSource.CIMD:
        raise Refused("there is a client of this id that does not come from a document")
    return application


def _row(client_id: str) -> Any:
    if len(client_id) > documents.MOST_URL or not (client_id.isascii() and client_id.isprintable()):
        return None  # what a database may refuse to be asked for
    model = applications()
    return model._base_manager.using(router.db_for_write(model)).filter(client_id=client_id).first()


def _is_due(application: Any) -> bool:
    """Is its document to be read (again)? Not that of a client that operators made or pinned."""
    if application.registration_source != applications().RegistrationSource.CIMD:
        return False
    expires = application.cimd_expires_at
    return expires is not None and expires <= timezone.now()


def _fetched(url: str, user: Any) -> Any:
    if problem := documents.problem_with(url):
        raise Refused(problem)
    counter, digest = throttle.counter(), hashlib.sha256(url.encode()).hexdigest()
    if counter.wait("document failures", digest, AFTER_FAILURE) is not None:
        raise Refused("it failed a moment ago")
    for name, key, rate in (("documents", f"user {user.pk}", PER_USER), ("documents", "all", IN_ALL)):
        if counter.take(name, key, rate, closed=True) is not None:
            raise Refused("too many documents were asked for")
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
