"""`resources/list`, `resources/templates/list` and `resources/read` (server/resources)."""

from collections.abc import Coroutine
from typing import Any

from ...protocol.errors import InvalidParams, ResourceNotFound
from ...protocol.uri import MAX_LENGTH
from ...schema import ArgumentError
from ..ask import InputRequired
from ..call import Call
from ..context import Context
from ..invoke import permit, run_primitive
from ..listing import RESOURCES, TEMPLATES, Encoded
from ..primitives import Resource, ResourceTemplate
from ..results import read_result


def list_resources(call: Call) -> Encoded | Coroutine[Any, Any, Encoded]:
    return call.server.listings.give(call, RESOURCES)


def list_templates(call: Call) -> Encoded | Coroutine[Any, Any, Encoded]:
    return call.server.listings.give(call, TEMPLATES)


async def read(call: Call) -> dict[str, Any]:
    """Registered resources win over templates, templates over providers."""
    uri = uri_of(call)
    primitive, values = await find_resource(call, uri)
    await permit(call, primitive, ResourceNotFound(uri))
    value = await run_primitive(call, primitive, values)
    if type(value) is InputRequired:
        return value
    if value is None:
        raise ResourceNotFound(uri)
    return call.revision.shape_read_result(read_result(uri, primitive.mime_type, value))


def uri_of(call: Call) -> str:
    """The URI that a request names. Raises InvalidParams."""
    uri = call.params.get("uri")
    if type(uri) is not str:
        raise InvalidParams("params.uri must be a string")
    if len(uri) > MAX_LENGTH:
        raise InvalidParams(f"params.uri may have {MAX_LENGTH} characters at most")
    return uri


async def find_resource(call: Call, uri: str) -> tuple[Resource | ResourceTemplate, dict[str, Any]]:
    """What is at `uri`, registered or provided, and its template's variables. Raises ResourceNotFound."""
    registry = call.server.registry
    resource = registry.resources.get(uri)
    if resource is not None:
        return resource, {}
    found = registry.match(uri)
    if found is not None:
        template, variables = found
        try:
            return template, template.convert(variables)
        except ArgumentError:
            raise ResourceNotFound(uri) from None
    context = Context(call)
    for provider in call.server.providers:
        if "resources" in provider.offers:
            resource = await provider.resource(uri, context)
            if resource is not None:
                return resource, {}
    raise ResourceNotFound(uri)
