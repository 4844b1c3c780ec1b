"""The methods `resources/list`, `resources/templates/list` and `resources/read`.

See server/resources.
"""

import functools
from collections.abc import Sequence
from typing import Any, cast

from mcp_django.protocol.content import BlobResourceContents, ResourceContents, TextResourceContents
from mcp_django.protocol.errors import InvalidParams, NotFound, ResourceNotFound
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.uri import MAX_URI_LENGTH
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.local_resources import LocalResources
from mcp_django.server.composition.mounting import run_mounted
from mcp_django.server.composition.provider import Provider, find_provided, get_providers
from mcp_django.server.context.context import Context
from mcp_django.server.context.conversation import InputRequired, gather
from mcp_django.server.execution.invoke import read_nested_resource, run_primitive, run_provider
from mcp_django.server.execution.permissions import check_permission
from mcp_django.server.primitives.base import Primitive, Resource, ResourceTemplate
from mcp_django.server.primitives.results import build_read_result


async def read_resource(call: Call) -> JSONObject:
    """Read a resource.

    Registered resources precede templates, templates precede providers.
    """
    uri = get_uri(call)
    primitive, values = await find_resource(call, uri)
    await check_permission(call, primitive, ResourceNotFound(uri))
    call.record.target = primitive.key
    return await run_mounted(call, primitive, functools.partial(_run_resource, values))


async def _run_resource(values: dict[str, Any], call: Call, primitive: Primitive) -> JSONObject:
    uri, resource = call.params["uri"], cast(Resource | ResourceTemplate, primitive)
    value = await run_primitive(call, resource, dict(values))
    if type(value) is InputRequired:
        return value
    if value is None:
        raise ResourceNotFound(call.root.params["uri"])
    return call.revision.shape_read_result(build_read_result(uri, resource.mime_type, value))


def get_uri(call: Call) -> str:
    """Return the URI of a request. Raises InvalidParams."""
    uri = call.params.get("uri")
    if type(uri) is not str:
        raise InvalidParams("params.uri must be a string")
    if len(uri) > MAX_URI_LENGTH:
        raise InvalidParams(f"params.uri may have {MAX_URI_LENGTH} characters at most")
    return uri


async def find_resource(call: Call, uri: str) -> tuple[Resource | ResourceTemplate, dict[str, Any]]:
    """Find the resource at `uri` and the values of its template's variables.

    Searches registered and provided resources. Raises ResourceNotFound.
    """
    registry = call.server.registry
    resource = registry.resources.get(uri)
    if resource is not None:
        return resource, {}

    matched = registry.match(uri)
    if matched is not None:
        template, variables = matched
        try:
            return template, template.convert(variables)
        except ArgumentError:
            raise ResourceNotFound(uri) from None

    provided = await run_provider(Context(call), lambda: _find_provided(call, uri))
    if provided is None:
        raise ResourceNotFound(uri)
    return provided, {}


async def _find_provided(call: Call, uri: str) -> Resource | None:
    """Return the provided resource at `uri`.

    The URIs of a local template do not belong to remote servers. A listed resource precedes an unlisted one.
    """
    context, providers = Context(call), get_providers(call, "resources")
    local = await _search_providers([one for one in providers if not one.is_remote], uri, context)
    if local is not None and local.is_listed:
        return local

    remote_providers = [one for one in providers if one.is_remote]
    if not remote_providers or await LocalResources(call).find_template(uri) is not None:
        return local
    remote = await _search_providers(remote_providers, uri, context)
    is_missing = remote is None and local is None
    if is_missing and any(await gather(*(provider.wait_for_resources(context) for provider in remote_providers))):
        remote = await _search_providers(remote_providers, uri, context)
    return remote if remote is not None and (local is None or remote.is_listed) else local


async def _search_providers(providers: Sequence[Provider], uri: str, context: Context) -> Resource | None:
    """Return the first listed resource at `uri`, or else the first unlisted one."""
    unlisted: list[Resource] = []

    async def find_listed(provider: Provider) -> Resource | None:
        resource = await provider.resource(uri, context)
        if resource is not None and not resource.is_listed:
            unlisted.append(resource)
            return None
        return resource

    try:
        listed = await find_provided(context.call, providers, find_listed)
    except Exception:
        if not unlisted:
            raise
        listed = None  # a failed provider does not take away the resources of others
    return listed or next(iter(unlisted), None)


async def read_contents(uri: str, context: Context) -> list[ResourceContents]:
    """Read the resource at `uri` for the result of another handler.

    The read is part of the call of `context`. The permission decision and the hooks apply as for a client's read.
    Raises the same ResourceNotFound for a missing resource and for one that the caller may not see.
    """
    call = context.call
    primitive, values = await find_resource(call, uri)
    await check_permission(call, primitive, ResourceNotFound(uri))
    try:
        value = await read_nested_resource(call, primitive, values, context.get_conversation())
    except Exception as problem:
        if isinstance(call.server.ports.translate_exception(problem), NotFound):
            raise ResourceNotFound(uri) from None
        raise
    if value is None:
        raise ResourceNotFound(uri)
    return [_build_contents(wire) for wire in build_read_result(uri, primitive.mime_type, value)["contents"]]


def _build_contents(wire: JSONObject) -> ResourceContents:
    uri, mime_type, meta = wire["uri"], wire.get("mimeType"), wire.get("_meta")
    if "text" in wire:
        return TextResourceContents(wire["text"], uri, mime_type, meta)
    return BlobResourceContents(wire["blob"], uri, mime_type, meta)
