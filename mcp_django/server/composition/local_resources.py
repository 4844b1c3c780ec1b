"""Resources that a server serves itself, in contrast to those of its remote servers.

A remote server may name any URI in its lists and results. A URI of this project would then seem to be the remote
server's, or the remote server's content would seem to be the project's.
"""

from collections.abc import Iterable

from mcp_django.server.calls.call import Call
from mcp_django.server.composition.provider import get_providers
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Resource, ResourceTemplate


class LocalResources:
    """Resources and templates of one call's server, without those of remote servers."""

    def __init__(self, call: Call) -> None:
        self._registry = call.server.registry
        self._context = Context(call)
        self._providers = [provider for provider in get_providers(call, "resources") if not provider.is_remote]
        self._templates: list[tuple[ResourceTemplate, ...]] | None = None
        self._uris: dict[str, Resource] | None = None

    async def collect_templates(self) -> list[tuple[ResourceTemplate, ...]]:
        """Return the templates of each provider; an unchanged tuple stays identical."""
        if self._templates is None:
            self._templates = [tuple(await provider.templates(self._context)) for provider in self._providers]
        return self._templates

    async def find_template(self, uri: str) -> ResourceTemplate | None:
        """Return the template that matches `uri`."""
        matched = self._registry.match(uri)
        if matched is not None:
            template: ResourceTemplate = matched[0]
            return template
        templates = (template for source in await self.collect_templates() for template in source)
        return next((template for template in templates if template.template.match(uri) is not None), None)

    async def find(self, uri: str) -> Resource | ResourceTemplate | None:
        """Return the listed resource at `uri`, or the template that matches it."""
        registered: Resource | None = self._registry.resources.get(uri)
        if registered is not None:
            return registered
        return await self.find_template(uri) or (await self._collect_uris()).get(uri)

    async def is_served(self, uri: str) -> bool:
        """Return True if the server serves a resource at `uri`, listed or not."""
        if await self.find(uri) is not None:
            return True
        for provider in self._providers:
            if await provider.resource(uri, self._context) is not None:
                return True
        return False

    async def find_equivalent(self, item: Resource | ResourceTemplate) -> Resource | ResourceTemplate | None:
        """Return the local item that serves the URIs of a remote one.

        The caller compares the URIs of listed resources itself.
        """
        if isinstance(item, Resource):
            return await self.find_template(item.uri)
        example = item.template.build_example()
        registered: Resource | None = self._registry.resources.get(example)
        return registered or await self.find_template(example)

    async def _collect_uris(self) -> dict[str, Resource]:
        if self._uris is None:
            lists = [await provider.resources(self._context) for provider in self._providers]
            self._uris = {resource.uri: resource for source in lists for resource in source}
        return self._uris


async def find_local_uris(ctx: Context, uris: Iterable[str]) -> set[str]:
    """Return those of the URIs that a server of the call serves itself.

    The URIs are in the form of `ctx.server`. Its hosts know the resources of a mounted server under other URIs.
    """
    call, pending, found = ctx.call, {uri: uri for uri in uris}, set[str]()
    while pending:
        local = LocalResources(call)
        found |= {uri for uri, form in pending.items() if await local.is_served(form)}
        mount, host_call = call.mount, call.host_call
        if mount is None or host_call is None:
            break
        pending = {uri: mount.to_host_uri(form) for uri, form in pending.items() if uri not in found}
        call = host_call
    return found
