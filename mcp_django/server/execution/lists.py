"""Lists of primitives: collected, filtered, paged and cached.

A list that is equal for all callers is encoded once per revision and page. Where permissions apply, it is encoded once
per set of visible primitives. Lists with provided primitives are collected for each request. They are encoded again
unless every provider returns the identical tuple as before.

The digest of the list that a session received is stored. After an interrupted stream, the session is notified of the
changes since.
"""

import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls.call import Call
from mcp_django.server.client_requests.conversation import gather
from mcp_django.server.context.context import Context
from mcp_django.server.pagination import cursor, position
from mcp_django.server.primitives.base import Primitive

if TYPE_CHECKING:
    from mcp_django.server.server import Server

logger = logging.getLogger("mcp_django.server")
EVERYBODY = ""
"""Owner of a list that is equal for all callers."""
KEPT = 512
"""Maximum number of encoded pages in a server's cache."""


class Kind(NamedTuple):
    """A kind of list."""

    collection: str
    """Attribute name in the registry and the providers."""
    field: str
    """Field name in the result."""
    capability: str


TOOLS = Kind("tools", "tools", "tools")
RESOURCES = Kind("resources", "resources", "resources")
TEMPLATES = Kind("templates", "resourceTemplates", "resources")
PROMPTS = Kind("prompts", "prompts", "prompts")
KINDS = (TOOLS, RESOURCES, TEMPLATES, PROMPTS)


class Encoded(NamedTuple):
    """A complete result, already encoded."""

    raw: bytes
    digest: str = ""
    """Digest of the whole list, set on the first page of a revision with sessions."""

    def decoded(self) -> dict[str, Any]:
        value: dict[str, Any] = jsonrpc.loads(self.raw)
        return value


class _Gathered(NamedTuple):
    """A cached page with the providers' tuples that it was built from.

    The references keep the tuples alive, so that their identity stays valid.
    """

    sources: "list[Iterable[Primitive]]"
    page: Encoded


def _are_same(some: "list[Iterable[Primitive]]", others: "list[Iterable[Primitive]]") -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


class Listings:
    """The lists of one server."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._pages: OrderedDict[tuple[Any, ...], Encoded] = OrderedDict()
        self._provided_pages: OrderedDict[tuple[Any, ...], _Gathered] = OrderedDict()
        self._guarded: dict[str, tuple[Any, list[Primitive]]] = {}
        self._told: set[tuple[str, ...]] = set()

    def give(self, call: Call, kind: Kind) -> Encoded | Coroutine[Any, Any, Encoded]:
        """Return the requested page, and store the digest of the list for a session."""
        if call.session is None or not call.connection.streams or "cursor" in call.params:
            return self.page(call, kind)
        if self._server.authorizer.version is None or self._provided(kind) or self.guarded(kind):
            return self._given(call, kind)
        page = self._kept(call, kind, None, frozenset())
        self._remember(call, kind, page)
        return page

    async def _given(self, call: Call, kind: Kind) -> Encoded:
        # Create the coroutine of the page here: the call may be refused before this task starts.
        page = self.page(call, kind)
        page = page if isinstance(page, Encoded) else await page
        self._remember(call, kind, page)
        return page

    def _remember(self, call: Call, kind: Kind, page: Encoded) -> None:
        session = call.session
        if session is not None and session.lists.get(kind.collection) != page.digest:
            session.lists[kind.collection] = page.digest
            self._server.ports.lists.keep(session)

    async def stale(self, call: Call) -> list[str]:
        """Return the kinds of lists that changed since the session received them.

        The kinds are "tools", "resources" and "prompts". Any process may have sent the list, also before a deployment.
        """
        if call.session is None:
            return []
        given, changed = await self._server.ports.lists.given(call.session), dict[str, None]()
        for kind in KINDS:
            digest = given.get(kind.collection)
            if digest is not None:
                page = self.page(call, kind)
                if (page if isinstance(page, Encoded) else await page).digest != digest:
                    changed[kind.capability] = None
        return list(changed)

    def page(self, call: Call, kind: Kind) -> Encoded | Coroutine[Any, Any, Encoded]:
        """Return the requested page."""
        return self._refreshed(call, kind) if self._server.authorizer.version is None else self._page(call, kind)

    async def _refreshed(self, call: Call, kind: Kind) -> Encoded:
        await self._server.authorizer.refresh()
        page = self._page(call, kind)
        return page if isinstance(page, Encoded) else await page

    def _page(self, call: Call, kind: Kind) -> Encoded | Coroutine[Any, Any, Encoded]:
        provided, guarded = self._provided(kind), self.guarded(kind)
        after = position(call, kind.collection, call.principal.key if provided or guarded else EVERYBODY)
        if provided:
            return self._gathered(call, kind, after)
        if guarded:
            return self._filtered(call, kind, after)
        return self._kept(call, kind, after, frozenset())

    def _provided(self, kind: Kind) -> bool:
        """Return True if a provider contributes to the list."""
        return any(kind.capability in provider.offers for provider in self._server.providers)

    def guarded(self, kind: Kind) -> list[Primitive]:
        """Return the registered primitives whose visibility depends on the caller."""
        registry, authorizer = self._server.registry, self._server.authorizer
        version, known = self._guarded.get(kind.collection, (None, []))
        current = registry.version, authorizer.version
        if version != current or authorizer.version is None:
            known = [item for item in getattr(registry, kind.collection) if authorizer.guards(item)]
            self._guarded[kind.collection] = current, known
        return known

    async def _filtered(self, call: Call, kind: Kind, after: str | None) -> Encoded:
        registry, authorizer = self._server.registry, self._server.authorizer
        while True:
            version = registry.version, authorizer.version
            hidden = await authorizer.hidden(call.principal, self.guarded(kind))
            # Repeat the decision if a primitive was registered or restricted during it.
            if version == (registry.version, authorizer.version):
                return self._kept(call, kind, after, hidden)

    async def _gathered(self, call: Call, kind: Kind, after: str | None) -> Encoded:
        context = Context(call)
        registry = self._server.registry
        offering = [provider for provider in self._server.providers if kind.capability in provider.offers]

        sources: list[Iterable[Primitive]] = [
            await getattr(provider, kind.collection)(context) for provider in offering if not provider.is_remote
        ]
        # Remote lists are fetched concurrently. Their providers come last (`in_order`).
        others = [getattr(provider, kind.collection)(context) for provider in offering if provider.is_remote]
        sources += [await other for other in others] if len(others) == 1 else await gather(*others)

        found: dict[str, Primitive] = {}
        for source in sources:
            for item in source:
                if found.setdefault(item.key, item) is not item:
                    self._tell_both(found[item.key], item)

        for item in getattr(registry, kind.collection):
            if item.key in found:
                self._tell_both(item, found[item.key])
            found[item.key] = item

        version, authorizer = registry.version, self._server.authorizer
        hidden = await authorizer.hidden(call.principal, [item for item in found.values() if authorizer.guards(item)])
        key = kind.collection, call.revision.version, after, hidden, call.principal.key, version
        known = self._provided_pages.get(key)
        if known is not None and _are_same(known.sources, sources):
            return known.page

        items = [found[key] for key in sorted(found) if key not in hidden]
        page = self._encode(call, kind, after, items, private=True)
        if all(type(source) is tuple for source in sources):
            self._provided_pages[key] = _Gathered(sources, page)
            if len(self._provided_pages) > KEPT:
                self._provided_pages.popitem(last=False)
        return page

    def _tell_both(self, served: Primitive, other: Primitive) -> None:
        """Log once that two sources have the same primitive; the earlier one is served."""
        told = served.kind, served.key, served.source, other.source
        if served.origin is not other.origin and told not in self._told and len(self._told) < KEPT:
            self._told.add(told)
            text = "Duplicate %s %.200r: using the one from %s, ignoring the one from %s"
            logger.warning(text, served.kind, served.key, served.source, other.source)

    def _kept(self, call: Call, kind: Kind, after: str | None, hidden: frozenset[str]) -> Encoded:
        server, size = self._server, self._server.options.page_size
        private = bool(self.guarded(kind))
        # Only a page with a cursor is private, and only where lists differ by caller.
        paged = private and size is not None and len(getattr(server.registry, kind.collection)) > size
        owner = call.principal.key if paged else EVERYBODY
        key = kind.collection, call.revision.version, after, hidden, owner, private, server.registry.version
        page = self._pages.get(key)
        if page is None:
            items = [item for item in getattr(server.registry, kind.collection) if item.key not in hidden]
            page = self._encode(call, kind, after, items, private=private)
            self._pages[key] = page
            if len(self._pages) > KEPT:
                self._pages.popitem(last=False)
        return page

    def _encode(self, call: Call, kind: Kind, after: str | None, items: list[Primitive], *, private: bool) -> Encoded:
        start = 0 if after is None else bisect_right(items, after, key=lambda item: item.key)
        size = self._server.options.page_size or len(items)
        page = items[start : start + size]
        body: dict[str, Any] = {kind.field: [item.listed(call.revision) for item in page]}

        digest = ""
        if after is None and call.revision.era is Era.HANDSHAKE:
            rest = [item.listed(call.revision) for item in items[size:]]
            digest = blake2b(jsonrpc.dumps([body, rest]), digest_size=12).hexdigest()

        if start + size < len(items):
            owner = call.principal.key if private else EVERYBODY
            body["nextCursor"] = cursor(call, kind.collection, owner, page[-1].key)
        return Encoded(jsonrpc.dumps(call.era.dress(call, body, private=private)), digest)
