"""URL-mode elicitation: links to pages of the site and back (client/elicitation).

Two sealed tokens represent a visit. The client receives the token that opens the page. Only the browser receives the
token that finishes the visit, so the holder of the first token cannot mark the page as done. Both tokens contain the
user and are valid for this user only, because the link may have been forwarded (client/elicitation, Phishing). A
finished visit is a row that is inserted once. The event log notifies the worker that waits for it.
"""

import asyncio
import datetime as dt
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.db import IntegrityError, transaction
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from mcp_django.models import SpentState
from mcp_django.runtime.events.event_log import Draft
from mcp_django.runtime.events.follower import run_apart
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.sealing import Seal
from mcp_django.server.calls.call import Call
from mcp_django.server.client_requests.conversation import Unanswered
from mcp_django.server.ports import Executor, StateTooLarge

OPEN, DONE = "page", "page_done"
"""Names of the views in `mcp_django.urls`, and the bindings of their tokens."""
NEXT = "next"
"""Query parameter that holds the return URL of a page, as in Django's own views."""
LONGEST = 6000
"""Maximum length of a token; browsers and proxies accept URLs of 8 KB."""


class Visit(NamedTuple):
    """Content of a sealed token."""

    id: str
    user: str
    """Primary key of the only user that the visit is valid for."""
    target: str
    """URL that the user is redirected to."""
    expires: float
    """Expiry time in seconds since the epoch."""


class SitePages:
    """Implementation of `server.ports.ElicitationPages` with sealed tokens.

    `unseal_visit`, `mark_finished` and `is_finished` may query the database. Call them from views.
    """

    def __init__(
        self, secrets: Sequence[str | bytes], *, executor: Callable[[], Executor], feeds: Callable[[], Feeds]
    ) -> None:
        self._seal = Seal(secrets, purpose="page", limit=LONGEST)
        self._executor, self._feeds = executor, feeds

    def address(self, call: Call, target: Any, id: str, *, ttl: float) -> str:
        request, user = call.request, getattr(call.principal.user, "pk", None)
        if request is None:
            raise Unanswered("Cannot build the URL of the page: the call was not received over HTTP")
        if user is None:
            raise Unanswered("Cannot open a page of this site: the caller has no user account here")

        expires = timezone.now().timestamp() + ttl
        done = self.link(request, DONE, Visit(id, str(user), "", expires), ttl=ttl)
        if callable(target):
            page = str(target(request.build_absolute_uri(done)))
        else:
            page = _with_next(resolve_url(target), done)
        return str(request.build_absolute_uri(self.link(request, OPEN, Visit(id, str(user), page, expires), ttl=ttl)))

    def link(self, request: Any, purpose: str, visit: Visit, *, ttl: float) -> str:
        """Return the path of one of the two views, below the prefix of the request."""
        try:
            token = self._seal.seal(visit._asdict(), purpose.encode(), ttl=ttl)
        except StateTooLarge:
            raise Unanswered("The URL of the page is too long") from None
        return _reversed(request, purpose, token)

    async def returned(self, id: str, *, within: float) -> bool:
        if await run_apart(self._executor(), self.is_finished, id):
            return True
        if within <= 0:
            return False

        over = asyncio.Event()
        following = await self._feeds().here().follow(_topic(id), lambda event: over.set())
        try:
            # The user may have returned before the subscription was active.
            if await run_apart(self._executor(), self.is_finished, id):
                return True
            async with asyncio.timeout(within) as scope:
                await over.wait()
        except TimeoutError:
            if not scope.expired():
                raise
            return False
        finally:
            following.stop()
        return True

    def open(self, token: str, purpose: str) -> Visit:
        """Return the visit of a token of this purpose.

        Raises:
            InvalidParams: the token is invalid or expired.
        """
        found = self._seal.open(token, purpose.encode())
        return Visit(found["id"], found["user"], found["target"], found["expires"])

    def is_finished(self, id: str) -> bool:
        """Return True if the user has returned from the page."""
        return SpentState.objects.filter(digest=_digest(id)).exists()

    def finish(self, visit: Visit) -> bool:
        """Record the user's return and notify the waiting worker.

        Return False if it was recorded before.
        """
        # Keep the row for another day: a round that was answered late can be repeated.
        expires = dt.datetime.fromtimestamp(visit.expires, dt.UTC) + dt.timedelta(days=1)
        rows = SpentState.objects.all()
        try:
            with transaction.atomic(using=rows.db):
                rows.create(digest=_digest(visit.id), expires=expires)
        except IntegrityError:
            return False

        self._feeds().publish_on_commit(Draft(_topic(visit.id), "returned"), using=rows.db)
        return True


def _reversed(request: Any, name: str, token: str) -> str:
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


def _with_next(page: str, address: str) -> str:
    parts = urlsplit(page)
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != NEXT]
    return urlunsplit(parts._replace(query=urlencode([*query, (NEXT, address)])))


def _digest(id: str) -> str:
    return hashlib.sha256(b"page " + id.encode()).hexdigest()


def _topic(id: str) -> str:
    return f"page:{id}"
