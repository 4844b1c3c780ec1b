"""Pages of the site that people are sent to by a question, and come back from (client/elicitation, URL mode).

Two sealed tokens stand for a visit. The one that opens the page goes through the client; the one that ends the visit
only the browser sees, so that who knows the first cannot say that the page is done. Both name the user, and open for
nobody else: the link may have been sent to somebody else (client/elicitation, Phishing). That a visit is over is a row,
made once; the event log tells the worker that waits for it.
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
"""The names of the views in `mcp_django.urls`, and what their tokens are bound to."""
NEXT = "next"
"""The query parameter that tells a page where to send the user, as in Django's own views."""
LONGEST = 6000
"""Characters of a token; browsers and proxies take URLs of 8 KB."""


class Visit(NamedTuple):
    """What a token stands for."""

    id: str
    user: str
    """The primary key of the only user it is for."""
    target: str
    """Where the user goes next."""
    expires: float
    """Seconds since the epoch."""


class SitePages:
    """See `server.ports.Pages`. `open`, `finish` and `is_finished` may ask the database, and belong into views."""

    def __init__(
        self, secrets: Sequence[str | bytes], *, executor: Callable[[], Executor], feeds: Callable[[], Feeds]
    ) -> None:
        self._seal = Seal(secrets, purpose="page", limit=LONGEST)
        self._executor, self._feeds = executor, feeds

    def address(self, call: Call, target: Any, id: str, *, ttl: float) -> str:
        request, user = call.request, getattr(call.principal.user, "pk", None)
        if request is None:
            raise Unanswered("The page has no address here: this call did not come over HTTP")
        if user is None:
            raise Unanswered("Only a user of this site can be sent to a page of it, and the caller is none")
        expires = timezone.now().timestamp() + ttl
        done = self.link(request, DONE, Visit(id, str(user), "", expires), ttl=ttl)
        if callable(target):
            page = str(target(request.build_absolute_uri(done)))
        else:
            page = _with_next(resolve_url(target), done)
        return str(request.build_absolute_uri(self.link(request, OPEN, Visit(id, str(user), page, expires), ttl=ttl)))

    def link(self, request: Any, purpose: str, visit: Visit, *, ttl: float) -> str:
        """The path of one of the two views, below the prefix that the request came through."""
        try:
            token = self._seal.seal(visit._asdict(), purpose.encode(), ttl=ttl)
        except StateTooLarge:
            raise Unanswered("The address of the page is too long") from None
        return _reversed(request, purpose, token)

    async def returned(self, id: str, *, within: float) -> bool:
        if await run_apart(self._executor(), self.is_finished, id):
            return True
        if within <= 0:
            return False
        over = asyncio.Event()
        following = await self._feeds().here().follow(_topic(id), lambda event: over.set())
        try:
            # Somebody may have come back before it was followed.
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
        """What a token of this purpose stands for. Raises InvalidParams when it is none, or no longer."""
        found = self._seal.open(token, purpose.encode())
        return Visit(found["id"], found["user"], found["target"], found["expires"])

    def is_finished(self, id: str) -> bool:
        """Has the user come back?"""
        return SpentState.objects.filter(digest=_digest(id)).exists()

    def finish(self, visit: Visit) -> bool:
        """The user has come back: whoever waits for it is told. False when this was said before."""
        # Kept as long as somebody may still ask: a round that was answered late can be repeated.
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
    # What the endpoint's own pattern captured is none of the prefix.
    own = {*(match.captured_kwargs or ()), *(match.extra_kwargs or ())}
    prefix = {name: value for name, value in match.kwargs.items() if name not in own}
    try:
        return reverse(f"{namespace}:{name}", kwargs={**prefix, "token": token})
    except NoReverseMatch:
        raise RuntimeError(
            "A page that people are sent to takes the views of mcp_django.urls: include it in the URLconf, beside "
            "asgi.mount too"
        ) from None


def _with_next(page: str, address: str) -> str:
    parts = urlsplit(page)
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != NEXT]
    return urlunsplit(parts._replace(query=urlencode([*query, (NEXT, address)])))


def _digest(id: str) -> str:
    return hashlib.sha256(b"page " + id.encode()).hexdigest()


def _topic(id: str) -> str:
    return f"page:{id}"
