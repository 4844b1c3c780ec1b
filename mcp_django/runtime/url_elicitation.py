"""URL-mode elicitation: links to pages of the site and back (client/elicitation).

Two sealed tokens represent a visit. The client receives the token that opens the page. Only the browser receives the
token that finishes the visit, so the holder of the first token cannot mark the page as done. Both tokens contain the
user and are valid for this user only, because the link may have been forwarded (client/elicitation, Phishing). A
finished visit is a row that is inserted once. The event log notifies the worker that waits for it.
"""

import asyncio
import datetime as dt
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.db import transaction
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from mcp_django.aio.tasks import wait_for_event
from mcp_django.models import SpentState
from mcp_django.runtime.calls.idempotency import insert_once
from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sealing import TokenSealer
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.calls.call import Call
from mcp_django.server.context.conversation import InputUnavailable
from mcp_django.server.ports import Executor, StateTooLarge

OPEN_VIEW, DONE_VIEW = "page", "page_done"
"""Names of the views in `mcp_django.urls`, and the bindings of their tokens."""
NEXT_PARAMETER = "next"
"""Query parameter that holds the return URL of a page, as in Django's own views."""
MAX_TOKEN_CHARACTERS = 6000
"""Maximum length of a token; browsers and proxies accept URLs of 8 KB."""


class PageVisit(NamedTuple):
    """Content of a sealed token."""

    id: str
    user: str
    """Primary key of the only user that the visit is valid for."""
    target: str
    """URL that the user is redirected to."""
    expires: float
    """Expiry time in seconds since the epoch."""


class SealedElicitationPages:
    """Implementation of `server.ports.ElicitationPages` with sealed tokens.

    `unseal_visit`, `mark_finished` and `is_finished` may query the database. Call them from views.
    """

    def __init__(
        self,
        secrets: Sequence[str | bytes],
        *,
        executor: Executor,
        publisher: EventPublisher,
    ) -> None:
        self._sealer = TokenSealer(secrets, purpose="page", max_token_bytes=MAX_TOKEN_CHARACTERS)
        self._executor = executor
        self._publisher = publisher

    def build_url(self, call: Call, target: Any, id: str, *, ttl: float) -> str:
        request, user = call.request, getattr(call.principal.user, "pk", None)
        if request is None:
            raise InputUnavailable("Cannot build the URL of the page: the call was not received over HTTP")
        if user is None:
            raise InputUnavailable("Cannot open a page of this site: the caller has no user account here")

        expires = timezone.now().timestamp() + ttl
        done = self.build_path(request, DONE_VIEW, PageVisit(id, str(user), "", expires), ttl=ttl)
        if callable(target):
            page = str(target(request.build_absolute_uri(done)))
        else:
            page = _add_next_parameter(resolve_url(target), done)
        return str(
            request.build_absolute_uri(
                self.build_path(request, OPEN_VIEW, PageVisit(id, str(user), page, expires), ttl=ttl)
            )
        )

    def build_path(self, request: Any, purpose: str, visit: PageVisit, *, ttl: float) -> str:
        """Return the path of one of the two views, below the prefix of the request."""
        try:
            token = self._sealer.seal(visit._asdict(), purpose.encode(), ttl=ttl)
        except StateTooLarge:
            raise InputUnavailable("The URL of the page is too long") from None
        return _reverse_view(request, purpose, token)

    async def wait_for_return(self, id: str, *, timeout: float) -> bool:
        if await run_on_own_thread(self._executor, self.is_finished, id):
            return True
        if timeout <= 0:
            return False

        returned_event = asyncio.Event()
        subscription = await self._publisher.get_follower().subscribe(
            _visit_topic(id), lambda event: returned_event.set()
        )
        try:
            # The user may have returned before the subscription was active.
            return await run_on_own_thread(self._executor, self.is_finished, id) or await wait_for_event(
                returned_event, timeout
            )
        finally:
            subscription.stop()

    def unseal_visit(self, token: str, purpose: str) -> PageVisit:
        """Return the visit of a token of this purpose.

        Raises:
            InvalidParams: the token is invalid or expired.
        """
        payload = self._sealer.unseal(token, purpose.encode())
        return PageVisit(payload["id"], payload["user"], payload["target"], payload["expires"])

    def is_finished(self, id: str) -> bool:
        """Return True if the user has returned from the page."""
        return SpentState.objects.filter(digest=_hash_visit_id(id)).exists()

    def mark_finished(self, visit: PageVisit) -> bool:
        """Record the user's return and notify the waiting worker.

        Return False if it was recorded before.
        """
        # Keep the row for another day: a round that was answered late can be repeated.
        expires = dt.datetime.fromtimestamp(visit.expires, dt.UTC) + dt.timedelta(days=1)
        row = SpentState(digest=_hash_visit_id(visit.id), expires=expires)
        # Both or neither: a return that the waiting worker never learns of could not be repeated.
        with transaction.atomic(using=SpentState.objects.all().db):
            if not insert_once(row):
                return False
            self._publisher.publish_in_transaction(EventDraft(_visit_topic(visit.id), "returned"))
        return True


def _reverse_view(request: Any, name: str, token: str) -> str:
    match = request.resolver_match
    namespace = ":".join(match.namespaces) or "mcp_django"
    # Exclude the parameters that the endpoint's own pattern captured; the rest belongs to the prefix.
    own = {*(match.captured_kwargs or ()), *(match.extra_kwargs or ())}
    prefix = {name: value for name, value in match.kwargs.items() if name not in own}
    try:
        return reverse(f"{namespace}:{name}", kwargs={**prefix, "token": token})
    except NoReverseMatch:
        raise RuntimeError(
            "URL elicitation requires the views of mcp_django.urls: include them in the URLconf, even if you use "
            "asgi.mount"
        ) from None


def _add_next_parameter(page: str, address: str) -> str:
    parts = urlsplit(page)
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != NEXT_PARAMETER]
    return urlunsplit(parts._replace(query=urlencode([*query, (NEXT_PARAMETER, address)])))


def _hash_visit_id(id: str) -> str:
    return hashlib.sha256(b"page " + id.encode()).hexdigest()


def _visit_topic(id: str) -> str:
    return f"page:{id}"
