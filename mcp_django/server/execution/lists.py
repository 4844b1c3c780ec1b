"""Lists of primitives: collected, filtered, paged and cached.

A list that is equal for all callers is encoded once per revision and page. Where permissions apply, it is encoded once
per set of visible primitives. Lists with provided primitives are collected for each request. They are encoded again
unless every provider returns the identical tuple as before.

The digest of the list that a session received is stored. After an interrupted stream, the session is notified of the
changes since.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.extension_registry import ExtensionRegistry
from mcp_django.server.composition.local_resources import LocalResources
from mcp_django.server.composition.provider import list_provided
from mcp_django.server.context.context import Context
from mcp_django.server.context.conversation import gather
from mcp_django.server.execution.invoke import run_provider
from mcp_django.server.execution.permissions import find_hidden_keys
from mcp_django.server.primitives.base import Primitive

if TYPE_CHECKING:
    from mcp_django.server.server import Server

logger = get_logger("mcp_django.server")
CURSOR_TTL_SECONDS = 10 * 365 * 86400.0
"""Lifetime of cursors in seconds.

They hold a name, which stays valid, so they practically never expire.
"""
SHARED_OWNER = ""
"""Owner of a list that is equal for all callers."""
MAX_CACHED_PAGES = 512
"""Maximum number of encoded pages in a server's cache."""


class ListKind(NamedTuple):
    """A kind of list: its primitives, the member of its result, and its capability."""

    collection: str
    """Attribute name in the registry and the providers."""
    field: str
    """Field name in the result."""
    capability: str


TOOLS = ListKind("tools", "tools", "tools")
RESOURCES = ListKind("resources", "resources", "resources")
TEMPLATES = ListKind("templates", "resourceTemplates", "resources")
PROMPTS = ListKind("prompts", "prompts", "prompts")
KINDS = (TOOLS, RESOURCES, TEMPLATES, PROMPTS)


class EncodedResult(NamedTuple):
    """A complete result, already encoded."""

    raw: bytes
    digest: str = ""
    """Digest of the whole list, set on the first page of a revision with sessions."""
    is_complete: bool = True
    """False if an entry could not be built.

    It may be possible at the next request, so the page is not cached.
    """

    def decode(self) -> JSONObject:
        value: JSONObject = jsonrpc.loads(self.raw)
        return value


class _ProvidedPage(NamedTuple):
    """A cached page with the providers' tuples that it was built from.

    The references keep the tuples alive, so that their identity stays valid.
    """

    sources: "list[Iterable[Primitive]]"
    page: EncodedResult


def _are_identical(some: "list[Iterable[Primitive]]", others: "list[Iterable[Primitive]]") -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


class PrimitiveLists:
    """The lists of one server."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._pages: OrderedDict[tuple[object, ...], EncodedResult] = OrderedDict()
        self._provided_pages: OrderedDict[tuple[object, ...], _ProvidedPage] = OrderedDict()
        self._restricted: dict[str, tuple[Any, list[Primitive]]] = {}
        self._logged_duplicates: set[tuple[str, ...]] = set()

    def serve_page(self, call: Call, kind: ListKind) -> EncodedResult | Coroutine[Any, Any, EncodedResult]:
        """Return the requested page, and store the digest of the list for a session."""
        if call.session is None or not call.connection.supports_streaming or "cursor" in call.params:
            return self.get_page(call, kind)
        if self._server.ports.authorizer.version is None or self._has_providers(kind) or self.get_restricted(kind):
            return self._serve_page(call, kind)
        page = self._get_cached_page(call, kind, None, frozenset())
        self._save_digest(call, kind, page)
        return page

    async def _serve_page(self, call: Call, kind: ListKind) -> EncodedResult:
        # Create the coroutine of the page here: the call may be refused before this task starts.
        page = self.get_page(call, kind)
        page = page if isinstance(page, EncodedResult) else await page
        self._save_digest(call, kind, page)
        return page

    def _save_digest(self, call: Call, kind: ListKind, page: EncodedResult) -> None:
        session = call.session
        if session is not None and session.list_digests.get(kind.collection) != page.digest:
            session.list_digests[kind.collection] = page.digest
            self._server.ports.list_digests.save(session)

    async def find_stale(self, call: Call) -> list[str]:
        """Return the kinds of lists that changed since the session received them.

        The kinds are "tools", "resources" and "prompts". Any process may have sent the list, also before a deployment.
        """
        if call.session is None:
            return []
        given, changed = await self._server.ports.list_digests.load(call.session), dict[str, None]()
        for kind in KINDS:
            digest = given.get(kind.collection)
            if digest is not None:
                page = self.get_page(call, kind)
                if (page if isinstance(page, EncodedResult) else await page).digest != digest:
                    changed[kind.capability] = None
        return list(changed)

    def get_page(self, call: Call, kind: ListKind) -> EncodedResult | Coroutine[Any, Any, EncodedResult]:
        """Return the requested page."""
        return (
            self._refresh_and_get_page(call, kind)
            if self._server.ports.authorizer.version is None
            else self._get_page(call, kind)
        )

    async def _refresh_and_get_page(self, call: Call, kind: ListKind) -> EncodedResult:
        await self._server.ports.authorizer.refresh()
        page = self._get_page(call, kind)
        return page if isinstance(page, EncodedResult) else await page

    def _get_page(self, call: Call, kind: ListKind) -> EncodedResult | Coroutine[Any, Any, EncodedResult]:
        provided, guarded = self._has_providers(kind), self.get_restricted(kind)
        after = read_cursor(call, kind.collection, call.principal.key if provided or guarded else SHARED_OWNER)
        if provided:
            return self._get_provided_page(call, kind, after)
        if guarded:
            return self._get_filtered_page(call, kind, after)
        return self._get_cached_page(call, kind, after, frozenset())

    def _has_providers(self, kind: ListKind) -> bool:
        """Return True if a provider contributes to the list."""
        return any(kind.capability in provider.offers for provider in self._server.providers)

    def get_restricted(self, kind: ListKind) -> list[Primitive]:
        """Return the registered primitives whose visibility depends on the caller."""
        registry, authorizer = self._server.registry, self._server.ports.authorizer
        version, restricted = self._restricted.get(kind.collection, (None, []))
        current = registry.version, authorizer.version
        if version != current or authorizer.version is None:
            restricted = [
                item
                for item in getattr(registry, kind.collection)
                if item.has_hiding_checks or authorizer.is_restricted(item)
            ]
            self._restricted[kind.collection] = current, restricted
        return restricted

    async def _get_filtered_page(self, call: Call, kind: ListKind, after: str | None) -> EncodedResult:
        registry, authorizer = self._server.registry, self._server.ports.authorizer
        while True:
            version = registry.version, authorizer.version
            hidden = await find_hidden_keys(call, self.get_restricted(kind))
            # Repeat the decision if a primitive was registered or restricted during it.
            if version == (registry.version, authorizer.version):
                return self._get_cached_page(call, kind, after, hidden)

    async def collect(self, call: Call, kind: ListKind) -> list[Primitive]:
        """Return all registered and provided primitives of a list, sorted, also those hidden from the caller."""
        _, by_key = await self._collect(call, kind)
        return [by_key[key] for key in sorted(by_key)]

    async def _collect(self, call: Call, kind: ListKind) -> "tuple[list[Iterable[Primitive]], dict[str, Primitive]]":
        """Return the tuples that decide the list, and all its primitives by key."""
        registry = self._server.registry
        context = Context(call)
        sources, served = await run_provider(context, lambda: self._collect_sources(call, kind, context))

        by_key: dict[str, Primitive] = {}
        for source in served:
            for item in source:
                if by_key.setdefault(item.key, item) is not item:
                    self._log_duplicate(by_key[item.key], item)

        for item in getattr(registry, kind.collection):
            if item.key in by_key:
                self._log_duplicate(item, by_key[item.key])
            by_key[item.key] = item
        return sources, by_key

    async def _get_provided_page(self, call: Call, kind: ListKind, after: str | None) -> EncodedResult:
        sources, by_key = await self._collect(call, kind)

        version, authorizer = self._server.registry.version, self._server.ports.authorizer
        hidden = await find_hidden_keys(
            call, [item for item in by_key.values() if item.has_hiding_checks or authorizer.is_restricted(item)]
        )
        key = kind.collection, call.revision.version, after, hidden, call.principal.key, version
        known = self._provided_pages.get(key)
        if known is not None and _are_identical(known.sources, sources):
            return known.page

        items = [by_key[key] for key in sorted(by_key) if key not in hidden]
        page = self._encode_page(call, kind, after, items, private=True)
        if page.is_complete and all(type(source) is tuple for source in sources):
            self._provided_pages[key] = _ProvidedPage(sources, page)
            if len(self._provided_pages) > MAX_CACHED_PAGES:
                self._provided_pages.popitem(last=False)
        return page

    async def _collect_sources(
        self, call: Call, kind: ListKind, context: Context
    ) -> tuple[list[Iterable[Primitive]], list[Iterable[Primitive]]]:
        """Return the tuples that decide the list, and the primitives to serve from each provider."""
        offering = [provider for provider in self._server.providers if kind.capability in provider.offers]
        local: list[Iterable[Primitive]] = [
            await list_provided(call, provider, kind.collection, context)
            for provider in offering
            if not provider.is_remote
        ]
        # Remote lists are fetched concurrently. Their providers come last (`sort_providers`).
        remote_lists = [
            list_provided(call, provider, kind.collection, context) for provider in offering if provider.is_remote
        ]
        remote: list[Iterable[Primitive]] = (
            [await other for other in remote_lists] if len(remote_lists) == 1 else list(await gather(*remote_lists))
        )
        if not remote or kind.capability != "resources":
            return [*local, *remote], [*local, *remote]

        resources = LocalResources(call)
        foreign = [await self._exclude_local(resources, source) for source in remote]
        return [*local, *remote, *await resources.collect_templates()], [*local, *foreign]

    async def _exclude_local(self, local: LocalResources, source: Iterable[Any]) -> list[Primitive]:
        """Return the entries of a remote server without those whose URIs this server serves."""
        foreign: list[Primitive] = []
        for item in source:
            owner = await local.find_equivalent(item)
            if owner is None or owner.key == item.key:
                foreign.append(item)  # a duplicate key is handled like any other
            else:
                self._log_duplicate(owner, item)
        return foreign

    def _log_duplicate(self, served: Primitive, other: Primitive) -> None:
        """Log once that two sources have the same primitive; the earlier one is served."""
        duplicate = served.kind, served.key, served.source, other.source
        if (
            served.origin is not other.origin
            and duplicate not in self._logged_duplicates
            and len(self._logged_duplicates) < MAX_CACHED_PAGES
        ):
            self._logged_duplicates.add(duplicate)
            text = "Duplicate %s %.200r: using the one from %s, ignoring the one from %s"
            logger.warning(text, served.kind, served.key, served.source, other.source)

    def _get_cached_page(self, call: Call, kind: ListKind, after: str | None, hidden: frozenset[str]) -> EncodedResult:
        server, size = self._server, self._server.options.page_size
        private = bool(self.get_restricted(kind))
        # Only a page with a cursor is private, and only where lists differ by caller.
        paged = private and size is not None and len(getattr(server.registry, kind.collection)) > size
        owner = call.principal.key if paged else SHARED_OWNER
        key = kind.collection, call.revision.version, after, hidden, owner, private, server.registry.version
        page = self._pages.get(key)
        if page is None:
            items = [item for item in getattr(server.registry, kind.collection) if item.key not in hidden]
            page = self._encode_page(call, kind, after, items, private=private)
            if page.is_complete:
                self._pages[key] = page
            if len(self._pages) > MAX_CACHED_PAGES:
                self._pages.popitem(last=False)
        return page

    def _encode_page(
        self, call: Call, kind: ListKind, after: str | None, items: list[Primitive], *, private: bool
    ) -> EncodedResult:
        start = 0 if after is None else bisect_right(items, after, key=lambda item: item.key)
        size = self._server.options.page_size or len(items)
        page = items[start : start + size]
        entries = self._build_entries(page, call.revision)
        body: JSONObject = {kind.field: entries}

        digest = ""
        if after is None and call.revision.era is Era.HANDSHAKE:
            rest = self._build_entries(items[size:], call.revision)
            digest = blake2b(jsonrpc.dumps([body, rest]), digest_size=12).hexdigest()

        if start + size < len(items):
            owner = call.principal.key if private else SHARED_OWNER
            body["nextCursor"] = create_cursor(call, kind.collection, owner, page[-1].key)
        raw = jsonrpc.dumps(call.era.add_result_fields(call, body, private=private))
        return EncodedResult(raw, digest, is_complete=len(entries) == len(page))

    def _build_entries(self, items: list[Primitive], revision: Revision) -> list[jsonrpc.Fragment]:
        """Return the encoded entries that can be built; an entry that fails never takes away the others."""
        entries = (self._try_encode_entry(item, revision) for item in items)
        return [entry for entry in entries if entry is not None]

    def _try_encode_entry(self, item: Primitive, revision: Revision) -> jsonrpc.Fragment | None:
        """Return the encoded entry of a primitive; None if it cannot be built, which is reported.

        Raises the failure with the option `raise_bugs`.
        """
        extensions: ExtensionRegistry = self._server.extensions

        def encode() -> jsonrpc.Fragment:
            entry = extensions.add_tool_fields(item.to_list_entry(revision), item, revision)
            return jsonrpc.Fragment(jsonrpc.dumps(entry))

        if self._server.options.raise_bugs:
            return encode()
        return self._server.registry.try_build(encode, item.source, item.name)


def serve_page(call: Call, kind: ListKind) -> EncodedResult | Coroutine[Any, Any, EncodedResult]:
    """Return the requested page of a list of the call's server."""
    lists: PrimitiveLists = call.server.listings
    return lists.serve_page(call, kind)


def read_cursor(call: Call, kind: str, owner: str) -> str | None:
    """Return the key that precedes the requested page, or None for the first page.

    `owner` is the key of the list's owner, or SHARED_OWNER. Raises InvalidParams.
    """
    params = call.params
    if "cursor" not in params:
        return None
    after = call.server.ports.cursor_sealer.unseal(params["cursor"], _binding(call, kind, owner)).get("after")
    if not isinstance(after, str):
        raise InvalidParams("Invalid cursor")
    return after


def create_cursor(call: Call, kind: str, owner: str, last_key: str) -> str:
    """Create the cursor of the page that follows `last_key` in the list of `owner`."""
    return call.server.ports.cursor_sealer.seal(
        {"after": last_key}, _binding(call, kind, owner), ttl=CURSOR_TTL_SECONDS
    )


def _binding(call: Call, kind: str, owner: str) -> bytes:
    return f"{call.server.alias}\0{kind}\0{owner}".encode()
