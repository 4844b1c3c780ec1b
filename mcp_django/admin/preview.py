"""Previews of stored rows: the result that a client would get, for the current user.

The request runs through the whole engine.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync
from django.utils.translation import gettext as _

from mcp_django import wiring
from mcp_django.auth.principal import EVERY_SCOPE, Principal
from mcp_django.models import StoredPrompt, StoredResource
from mcp_django.protocol.errors import MCPError
from mcp_django.providers.stored import build_prompt, build_resource
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Prompt, Resource
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.server import Server
from mcp_django.transports.inprocess import Caller

SHOWN = 50_000
"""Maximum number of characters shown of a text, and of the whole result."""


class Block(NamedTuple):
    """Message or content shown on the page."""

    label: str
    text: str


class Preview(NamedTuple):
    """Result of a preview."""

    blocks: list[Block]
    raw: str
    """The result as JSON, truncated if long."""
    error: str


def preview_prompt(row: StoredPrompt, arguments: Mapping[str, str], *, alias: str, user: Any) -> Preview:
    """Get a prompt from the server `alias`, even if it is disabled.

    Embedded resources are read with the permissions of `user`.
    """
    # No registered prompt can have such a name, so the lookup finds this one.
    prompt = replace(build_prompt(row), name=f"preview of {row.pk}", permission=None, scopes=())
    server = wiring.get_server(alias)
    alone = _copy(server, server.registry, [_Only(prompts=(prompt,)), *server.providers])
    found = _ask(alone, user, "prompts/get", {"name": prompt.name, "arguments": dict(arguments)})
    return _shown(found, "messages", _message)


def preview_resource(row: StoredResource, *, alias: str, user: Any) -> Preview:
    """Read a resource on the server `alias`, even if it is disabled."""
    resource = replace(build_resource(row), permission=None, scopes=())
    alone = _copy(wiring.get_server(alias), Registry(alias), [_Only(resources=(resource,))])
    return _shown(_ask(alone, user, "resources/read", {"uri": row.uri}), "contents", _contents)


class _Only(Provider):
    """Provider of fixed primitives."""

    def __init__(self, prompts: Iterable[Prompt] = (), resources: Iterable[Resource] = ()) -> None:
        self._prompts, self._resources = prompts, resources

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return self._prompts

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return self._resources


def _copy(server: Server, registry: Registry, providers: Iterable[Provider]) -> Server:
    copy = Server(
        server.info,
        alias=server.alias,
        registry=registry,
        providers=tuple(providers),
        middleware=server.middleware,
        options=server.options,
        ports=server.ports,
    )
    copy.lifespan, copy.has_lifespan = server.lifespan, server.has_lifespan
    return copy


def _ask(server: Server, user: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | str:
    """Return the result of a request, or the text of its error."""
    who = Principal(issuer="admin", subject=str(user.pk), user=user, scopes=EVERY_SCOPE, kind="admin")
    try:
        return async_to_sync(Caller(server, who).request)(method, params)
    except MCPError as problem:
        return str(problem) if not problem.data else f"{problem} {json.dumps(problem.data)}"
    except Overloaded as problem:
        return str(problem)


def _shown(found: dict[str, Any] | str, field: str, block: Any) -> Preview:
    if isinstance(found, str):
        return Preview([], "", found)
    if field not in found:
        return Preview([], "", _("No preview: one of its resources requests input from the client."))
    raw = json.dumps(found, indent=2, ensure_ascii=False)
    return Preview([block(one) for one in found[field]], _cut(raw), "")


def _message(message: dict[str, Any]) -> Block:
    content, role = message["content"], message["role"]
    match content["type"]:
        case "text":
            return Block(role, _cut(content["text"]))
        case "resource_link":
            return Block(f"{role}: {_('link')}", f"{content['name']}\n{content['uri']}")
    shown = _contents(content["resource"])
    return Block(f"{role}: {shown.label}", shown.text)


def _contents(contents: dict[str, Any]) -> Block:
    label = f"{contents['uri']} ({contents.get('mimeType', '?')})"
    if "text" in contents:
        return Block(label, _cut(contents["text"]))
    return Block(label, _("%d bytes") % (len(contents["blob"].rstrip("=")) * 3 // 4))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
