"""The four lists: gathered, filtered by permission, cut into pages, and kept encoded while nothing changes.

A list that looks the same for everybody is encoded once for each revision and page. Where permissions decide, it is
encoded once for each set of primitives that somebody may see. Lists with provided primitives are gathered anew, and
encoded anew unless every provider gives the very tuple that it gave before.

What a session is given is remembered by its digest, so that it can be told of what changed while it had no stream.
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
"""The owner of a list that is the same for all callers."""
KEPT = 512
"""How many encoded pages a server keeps."""


class Kind(NamedTuple):
    """One of the lists."""

    collection: str
    """The registry's and the providers' name for it."""
    field: str
    """Its name in the result."""
    capability: str


TOOLS = Kind("tools", "tools", "tools")
RESOURCES = Kind("resources", "resources", "resources")
TEMPLATES = Kind("templates", "resourceTemplates", "resources")
PROMPTS = Kind("prompts", "prompts", "prompts")
KINDS = (TOOLS, RESOURCES, TEMPLATES, PROMPTS)


class Encoded(NamedTuple):
    """A whole result, encoded before."""

    raw: bytes
    digest: str = ""
    """Of the whole list, on the first page of a revision with sessions."""

    def decoded(self) -> dict[str, Any]:
        value: dict[str, Any] = jsonrpc.loads(self.raw)
        return value


class _Gathered(NamedTuple):
    """A page, and the tuples that providers gave for it: what holds them does not change."""

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
        """The page that the call asks for, for its client. What a session is given is remembered."""
        if call.session is None or not call.connection.streams or "cursor" in call.params:
            return self.page(call, kind)
        if self._server.authorizer.version is None or self._provided(kind) or self.guarded(kind):
            return self._given(call, kind)
        page = self._kept(call, kind, None, frozenset())
        self._remember(call, kind, page)
        return page

    async def _given(self, call: Call, kind: Kind) -> Encoded:
        # The page is begun here, because a call may be refused before this is.
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
        """The kinds of lists, "tools", "resources" or "prompts", that are not any more what the session of `call` was
        given last, by whichever process, before a deploy or after it.
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
        """The page that the call asks for."""
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
        """Do providers have a part in it?"""
        return any(kind.capability in provider.offers for provider in self._server.providers)

    def guarded(self, kind: Kind) -> list[Primitive]:
        """The registered primitives whose visibility depends on who asks."""
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
            # What was registered meanwhile, or is guarded since, has not been asked about.
            if version == (registry.version, authorizer.version):
                return self._kept(call, kind, after, hidden)

    async def _gathered(self, call: Call, kind: Kind, after: str | None) -> Encoded:
        context = Context(call)
        registry = self._server.registry
        offering = [provider for provider in self._server.providers if kind.capability in provider.offers]
        sources: list[Iterable[Primitive]] = [
            await getattr(provider, kind.collection)(context) for provider in offering if not provider.is_remote
        ]
        # Who waits for several other servers waits for the slowest, and not for each. They come last (`in_order`).
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
        """Two sources have the same: the earlier is served, and the log says so once."""
        told = served.kind, served.key, served.source, other.source
        if served.origin is not other.origin and told not in self._told and len(self._told) < KEPT:
            self._told.add(told)
            text = "The %s %.200r is served as %s has it; that of %s stands back"
            logger.warning(text, served.kind, served.key, served.source, other.source)

    def _kept(self, call: Call, kind: Kind, after: str | None, hidden: frozenset[str]) -> Encoded:
        server, size = self._server, self._server.options.page_size
        private = bool(self.guarded(kind))
        # A page that ends with a cursor is for one caller only where lists differ.
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
