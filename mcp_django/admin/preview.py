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
from mcp_django.auth.principal import ALL_SCOPES, DjangoPrincipal
from mcp_django.models import StoredPrompt, StoredResource
from mcp_django.protocol.display_text import truncate
from mcp_django.protocol.errors import MCPError
from mcp_django.providers.stored import build_prompt, build_resource
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Prompt, Resource
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.server import Server
from mcp_django.transports.inprocess.client import InProcessClient

MAX_SHOWN_CHARS = 50_000
"""Maximum number of characters shown of a text, and of the whole result."""


class PreviewBlock(NamedTuple):
    """Message or content shown on the page."""

    label: str
    text: str


class Preview(NamedTuple):
    """Result of a preview."""

    blocks: list[PreviewBlock]
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
    preview_server = _copy_server(server, server.registry, [_FixedProvider(prompts=(prompt,)), *server.providers])
    result = _send_request(preview_server, user, "prompts/get", {"name": prompt.name, "arguments": dict(arguments)})
    return _build_preview(result, "messages", _build_message_block)


def preview_resource(row: StoredResource, *, alias: str, user: Any) -> Preview:
    """Read a resource on the server `alias`, even if it is disabled."""
    resource = replace(build_resource(row), permission=None, scopes=())
    preview_server = _copy_server(wiring.get_server(alias), Registry(alias), [_FixedProvider(resources=(resource,))])
    return _build_preview(
        _send_request(preview_server, user, "resources/read", {"uri": row.uri}), "contents", _build_contents_block
    )


class _FixedProvider(Provider):
    """Provider of fixed primitives."""

    def __init__(self, prompts: Iterable[Prompt] = (), resources: Iterable[Resource] = ()) -> None:
        self._prompts = prompts
        self._resources = resources

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return self._prompts

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return self._resources


def _copy_server(server: Server, registry: Registry, providers: Iterable[Provider]) -> Server:
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


def _send_request(server: Server, user: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | str:
    """Return the result of a request, or the text of its error."""
    principal = DjangoPrincipal(issuer="admin", subject=str(user.pk), user=user, scopes=ALL_SCOPES, kind="admin")
    try:
        return async_to_sync(InProcessClient(server, principal).request)(method, params)
    except MCPError as problem:
        return str(problem) if not problem.data else f"{problem} {json.dumps(problem.data)}"
    except Overloaded as problem:
        return str(problem)


def _build_preview(result: dict[str, Any] | str, field: str, build_block: Any) -> Preview:
    if isinstance(result, str):
        return Preview([], "", result)
    if field not in result:
        return Preview([], "", _("No preview: one of its resources requests input from the client."))
    raw = json.dumps(result, indent=2, ensure_ascii=False)
    return Preview([build_block(one) for one in result[field]], truncate(raw, MAX_SHOWN_CHARS), "")


def _build_message_block(message: dict[str, Any]) -> PreviewBlock:
    content, role = message["content"], message["role"]
    match content["type"]:
        case "text":
            return PreviewBlock(role, truncate(content["text"], MAX_SHOWN_CHARS))
        case "resource_link":
            label = _("link")  # outside of the f-string, where Babel finds it on each Python
            return PreviewBlock(f"{role}: {label}", f"{content['name']}\n{content['uri']}")
    embedded = _build_contents_block(content["resource"])
    return PreviewBlock(f"{role}: {embedded.label}", embedded.text)


def _build_contents_block(contents: dict[str, Any]) -> PreviewBlock:
    label = f"{contents['uri']} ({contents.get('mimeType', '?')})"
    if "text" in contents:
        return PreviewBlock(label, truncate(contents["text"], MAX_SHOWN_CHARS))
    return PreviewBlock(label, _("%d bytes") % (len(contents["blob"].rstrip("=")) * 3 // 4))
