"""Requests and notifications of extensions."""

from collections.abc import Coroutine, Mapping
from typing import Any

from mcp_django.protocol.errors import InvalidParams, MCPError, MethodNotFound
from mcp_django.protocol.headers import check_name
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.log_sanitizer import sanitize_label
from mcp_django.server.composition.extension_handlers import ExtensionMethod, ExtensionNotification
from mcp_django.server.execution.invoke import build_extension_result, run_primitive
from mcp_django.server.execution.permissions import check_permission
from mcp_django.server.primitives.results import ExtensionResult

logger = get_logger("mcp_django.server")


def run_method(call: Call) -> Coroutine[Any, Any, JSONObject]:
    """Run the extension method that a request names.

    The declaration of the extension is checked before the parameters.

    Raises MethodNotFound for an unknown method, MissingClientCapability, and the errors of the method.
    """
    method = call.server.extensions.find_method(call.method, call.revision)
    if method is None:
        raise _unknown(call)
    if method.requires_declaration:
        method.extension.require_declaration(call)
    call.era.check(call)
    _check_name_header(call, method)
    return _run(call, method)


async def _run(call: Call, method: ExtensionMethod) -> JSONObject:
    await check_permission(call, method, _unknown(call))
    try:
        values = method.parameters.convert(call.params)
    except ArgumentError as problem:
        raise InvalidParams(str(problem)) from None

    value = await run_primitive(call, method, values)
    if type(value) is ExtensionResult:
        return build_extension_result(call, value)
    return _build_body(method, value)


def _build_body(method: ExtensionMethod, value: object) -> JSONObject:
    body = value if method.output is None else method.output.to_structured(value)
    if not isinstance(body, Mapping):
        raise TypeError(f"{method.source} must return a JSON object, not {type(body).__name__}")
    return dict(body)


def _check_name_header(call: Call, method: ExtensionMethod) -> None:
    """Check the `Mcp-Name` header of a request, if the client sent it. Raises HeaderMismatch."""
    headers = call.connection.message_headers
    if method.name_param is None or headers is None:
        return
    name = call.params.get(method.name_param)
    if type(name) is str:
        check_name(headers, name, f"params.{method.name_param}")


async def handle_notification(call: Call) -> None:
    """Handle a notification of an extension. Unknown, invalid and forbidden ones are ignored."""
    notification: ExtensionNotification | None = call.server.extensions.notifications.get(call.method)
    if notification is None or not notification.extension.supports_revision(call.revision):
        return
    try:
        await check_permission(call, notification, _unknown(call))
        await run_primitive(call, notification, notification.parameters.convert(call.params))
    except (ArgumentError, MCPError) as problem:
        logger.debug("Notification %s was ignored: %s", sanitize_label(call.method), sanitize_label(str(problem)))


def _unknown(call: Call) -> MethodNotFound:
    return MethodNotFound(f"Method not found: {call.method[:128]}")
