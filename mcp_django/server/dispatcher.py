"""Dispatch: maps method names to functions.

A function receives the `Call` and returns the body of the result. The body is a dict, an encoded result, or a coroutine
for either.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from mcp_django.protocol.errors import MethodNotFound
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.calls.call import Call
from mcp_django.server.execution.lists import PROMPTS, RESOURCES, TEMPLATES, TOOLS, EncodedResult, serve_page
from mcp_django.server.methods import completion, extensions, lifecycle, prompts, resources, tools
from mcp_django.server.subscriptions import methods
from mcp_django.server.subscriptions.listen import LISTEN_METHOD

ResultBody = JSONObject | EncodedResult

Function = Callable[[Call], ResultBody | Coroutine[Any, Any, ResultBody]]

METHODS: dict[str, tuple[Function, str | None]] = {
    "initialize": (lifecycle.initialize, None),
    "ping": (lifecycle.ping, None),
    "server/discover": (lifecycle.discover, None),
    "tools/list": (partial(serve_page, kind=TOOLS), "tools"),
    "tools/call": (tools.handle_call, "tools"),
    "resources/list": (partial(serve_page, kind=RESOURCES), "resources"),
    "resources/templates/list": (partial(serve_page, kind=TEMPLATES), "resources"),
    "resources/read": (resources.read_resource, "resources"),
    "prompts/list": (partial(serve_page, kind=PROMPTS), "prompts"),
    "prompts/get": (prompts.get_prompt, "prompts"),
    "completion/complete": (completion.complete, "completions"),
    "logging/setLevel": (lifecycle.set_level, "logging"),
    "resources/subscribe": (methods.subscribe, "resources"),
    "resources/unsubscribe": (methods.unsubscribe, "resources"),
    LISTEN_METHOD: (methods.listen, None),
}
"""Function of each method, and the server capability that it requires, if any."""

NOTIFICATIONS: dict[str, Callable[[Call], Awaitable[None]]] = {
    "notifications/initialized": lifecycle.handle_initialized,
    "notifications/cancelled": lifecycle.handle_cancelled,
}

_UNKNOWN = None, None


def dispatch(call: Call) -> ResultBody | Coroutine[Any, Any, ResultBody]:
    """Find the method in the call's revision and start it.

    Raises MethodNotFound, and the errors of the method.
    """
    method = call.message.method

    function, capability = METHODS.get(method, _UNKNOWN)
    if function is None or method not in call.revision.methods:
        return extensions.run_method(call)
    if capability is not None and capability not in call.server.offered_capabilities:
        raise MethodNotFound(f"This server does not offer {capability}")

    call.era.check(call)
    return function(call)


async def handle_notification(call: Call) -> None:
    """Handle a notification. Unknown notifications are ignored, as JSON-RPC requires."""
    function = NOTIFICATIONS.get(call.method)
    if function is not None and call.method in call.revision.client_notifications:
        await function(call)
    else:
        await extensions.handle_notification(call)
