"""Resources of apps: one page for each tool, behind the permission of the tool."""

import functools
from collections.abc import Iterable

from mcp_django.contrib.apps.declaration import App, find_app
from mcp_django.contrib.apps.pages import MIME_TYPE, PageCache, get_base_uri, split_digest
from mcp_django.extensions.calls import Context, Server
from mcp_django.extensions.primitives import Handler, Provider, Resource, ResourceResult, Tool
from mcp_django.types import TextResourceContents

PAGE_TTL_SECONDS = 86_400
"""Time for which clients may cache a page. Its URI changes with its content."""


class AppProvider(Provider):
    """The pages of one server's tools, those of mounted servers included.

    A server that mounts this one has pages of its own for the same tools, under the names that they have there.
    """

    offers = frozenset({"resources"})

    def __init__(self, server: Server) -> None:
        self.server = server
        self.pages = PageCache(server.alias)
        self._version = -1
        self._resources: tuple[Resource, ...] = ()
        self._by_base_uri: dict[str, Resource] = {}

    def get_permission_dependent(self) -> frozenset[str]:
        return self.offers

    def for_mounting(self) -> None:
        """Return None: the pages belong to the server that lists the tools."""

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        self._refresh()
        return self._resources

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        # Clients may have the URI of another deployment. They get the current page at the URI that they requested.
        base_uri = split_digest(uri)
        if base_uri is None:
            return None
        self._refresh()
        return self._by_base_uri.get(base_uri)

    def find_uri(self, tool: Tool) -> str | None:
        """Return the URI of a tool's page, or None for a tool without one."""
        app = find_app(tool, self.server.registry)
        page = None if app is None else self.pages.find(tool, app)
        return None if page is None else page.uri

    def _refresh(self) -> None:
        version = self.server.registry.version
        if version == self._version:
            return
        by_base_uri: dict[str, Resource] = {}
        for tool in self.server.registry.tools:
            build = functools.partial(self._find_page, tool)
            found = self.server.registry.try_build(build, tool.source, "")  # One app that fails takes no other away.
            if found is not None:
                by_base_uri[found[0]] = found[1]
        self._resources = tuple(by_base_uri.values())
        self._by_base_uri = by_base_uri
        self._version = version

    def _find_page(self, tool: Tool) -> tuple[str, Resource] | None:
        """Return the URI without digest and the resource of a tool's page, or None."""
        app = find_app(tool, self.server.registry)
        page = None if app is None else self.pages.find(tool, app)
        if app is None or page is None:
            return None
        return get_base_uri(self.server.alias, tool, app), self._build_resource(tool, app, page.uri)

    def _build_resource(self, tool: Tool, app: App, uri: str) -> Resource:
        meta = app.to_meta()

        def read() -> ResourceResult | None:
            html = self.pages.render_current(tool, app)
            if html is None:
                return None
            contents = TextResourceContents(html, mime_type=MIME_TYPE, meta=meta or None)
            is_public = not self.server.ports.authorizer.is_restricted(tool)
            return ResourceResult([contents], ttl=PAGE_TTL_SECONDS, is_public=is_public)

        return Resource(
            uri=uri,
            name=app.name,
            title=app.title,
            description=app.description or f"The app that shows results of {tool.name}",
            mime_type=MIME_TYPE,
            meta=meta,
            permission=tool.permission,
            scopes=tool.scopes,
            stands_for=tool,
            handler=Handler(read, atomic=()),
            source=app.source,
        )
