"""Interception of tool calls by the extensions of a server."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.extension import Extension, ProceedWithCall
from mcp_django.server.execution.invoke import build_extension_result
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.results import ExtensionResult

RunCall = Callable[[Call, Tool, JSONObject], Coroutine[Any, Any, JSONObject]]


async def intercept_call(
    call: Call, tool: Tool, arguments: JSONObject, extensions: Sequence[Extension], run: RunCall
) -> JSONObject:
    """Run a call through the `call_tool` of extensions, the first outermost.

    Invalid arguments are reported as always, and no extension sees them. Raises the errors of the tool and of the
    extensions.
    """
    try:
        tool.parameters.check(arguments)
    except ArgumentError:
        return await run(call, tool, arguments)

    async def proceed(call: Call) -> JSONObject:
        return await run(call, tool, arguments)

    for extension in reversed(extensions):
        proceed = _wrap(extension, tool, arguments, proceed)
    return await proceed(call)


def _wrap(extension: Extension, tool: Tool, arguments: JSONObject, inner: ProceedWithCall) -> Any:
    async def proceed(call: Call) -> JSONObject:
        body = await extension.call_tool(call, tool, arguments, inner)
        return build_extension_result(call, body) if type(body) is ExtensionResult else dict(body)

    return proceed
