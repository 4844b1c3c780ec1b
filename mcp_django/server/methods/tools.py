"""The methods `tools/list` and `tools/call` (server/tools)."""

from collections.abc import Coroutine
from typing import Any, cast

from mcp_django.protocol.client_habits import ADDED_ARGUMENTS, remove_added_arguments
from mcp_django.protocol.errors import InvalidParams, MethodNotFound
from mcp_django.protocol.headers import check_params
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.mounting import run_mounted
from mcp_django.server.composition.provider import find_provided_tool
from mcp_django.server.context.context import Context
from mcp_django.server.execution.interception import intercept_call
from mcp_django.server.execution.invoke import call_tool, run_provider
from mcp_django.server.execution.permissions import check_permission, count_use
from mcp_django.server.primitives.base import Primitive, Tool
from mcp_django.server.primitives.results import build_tool_error


class UnknownTool(InvalidParams):
    """A tool that no declaration and no provider of this process has.

    The client gets the same error for a tool that is hidden from it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown tool: {name[:128]}")


def handle_call(call: Call) -> Coroutine[Any, Any, JSONObject]:
    """Find a registered tool at once and start the call.

    Permission, headers and arguments are checked in the task of the call, except for headers of an unrestricted tool.
    """
    params = call.message.params or _EMPTY
    name, arguments = params.get("name"), params.get("arguments", _EMPTY)
    if type(name) is not str:
        raise InvalidParams("params.name must be a string")
    if type(arguments) is not dict:
        raise InvalidParams("params.arguments must be an object")

    server = call.server
    tool = server.registry.tools.get(name)
    if tool is None or server.ports.authorizer.is_restricted(tool):
        return _find_and_call(call, name, tool, arguments)
    if not ADDED_ARGUMENTS.isdisjoint(arguments):
        arguments = _remove_added_arguments(tool, arguments)
    if tool.parameters.header_params:
        _check_headers(call, tool, arguments)

    call.record.target = name
    if tool.mount_origin is None and not server.extensions.interceptors:
        return call_tool(call, tool, arguments)
    return _intercept_and_call(call, tool, arguments)


async def _find_and_call(call: Call, name: str, tool: Tool | None, arguments: JSONObject) -> JSONObject:
    """Call a tool of a provider, or one whose use is restricted."""
    if tool is None:
        tool = await run_provider(Context(call), lambda: find_provided_tool(call, name))
    unknown = UnknownTool(name)
    if tool is None:
        raise unknown
    arguments = _remove_added_arguments(tool, arguments)
    await check_permission(call, tool, InvalidParams(unknown.message), arguments)
    if tool.parameters.header_params:
        _check_headers(call, tool, arguments)
    if rate_error := await count_use(call, tool):
        return build_tool_error(rate_error)

    call.record.target = tool.name
    return await _intercept_and_call(call, tool, arguments)


def _intercept_and_call(call: Call, tool: Tool, arguments: JSONObject) -> Coroutine[Any, Any, JSONObject]:
    """Call a permitted tool through the extensions of the server."""
    interceptors = call.server.extensions.interceptors
    if interceptors and not call.record.is_continued:
        if tool.task is None and "task" in call.params:
            _check_task_support(call, tool)
        extensions = [extension for extension in interceptors if extension.intercepts(tool)]
        if extensions:
            return intercept_call(call, tool, arguments, extensions, _call_own)
    return _call_own(call, tool, arguments)


def _call_own(call: Call, tool: Tool, arguments: JSONObject) -> Coroutine[Any, Any, JSONObject]:
    """Call a tool in the view and the middleware of the server that declares it."""
    mounted = tool.mount_origin
    if mounted is None or (tool.is_direct and mounted.mount.is_transparent):
        return call_tool(call, tool, arguments)

    async def run(inner: Call, own: Primitive) -> JSONObject:
        called = cast(Tool, own)
        # The middleware of the server may have changed the arguments.
        return await call_tool(inner, called, _remove_added_arguments(called, inner.params.get("arguments", {})))

    return run_mounted(call, tool, run)


def _check_task_support(call: Call, tool: Tool) -> None:
    """Refuse `params.task` for a tool that does not run as a task, if the server declares core tasks.

    See 2025-11-25, basic/utilities/tasks, tool-level negotiation. A server that declares no tasks ignores the member.
    """
    declared = call.server.extensions.get_capabilities(call.revision) if call.revision.core_tasks else ()
    if any("tasks" in capabilities for capabilities in declared):
        raise MethodNotFound(f"The tool {tool.name} does not run as a task; send the call without params.task")


def _remove_added_arguments(tool: Tool, arguments: JSONObject) -> JSONObject:
    if ADDED_ARGUMENTS.isdisjoint(arguments):
        return arguments
    return remove_added_arguments(arguments, tool.parameters.schema.get("properties", {}))


def _check_headers(call: Call, tool: Tool, arguments: JSONObject) -> None:
    """Check mirrored header parameters, in the stateless era only.

    See basic/transports/streamable-http, custom headers.
    """
    headers = call.connection.message_headers
    if headers is not None and call.revision.era is Era.STATELESS:
        check_params(headers, tool.parameters.header_params, arguments)


_EMPTY: JSONObject = {}
