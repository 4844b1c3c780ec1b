"""Dispatch: maps method names to functions.

A function receives the `Call` and returns the body of the result. The body is a dict, an encoded result, or a coroutine
for either.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from mcp_django.protocol.errors import MethodNotFound
from mcp_django.server.calls.call import Call
from mcp_django.server.execution.lists import PROMPTS, RESOURCES, TEMPLATES, TOOLS, EncodedResult, serve_page
from mcp_django.server.methods import completion, lifecycle, logging, prompts, resources, tools
from mcp_django.server.subscriptions import methods
from mcp_django.server.subscriptions.listen import LISTEN_METHOD

ResultBody = dict[str, Any] | EncodedResult

METHODS: dict[str, Callable[[Call], ResultBody | Coroutine[Any, Any, ResultBody]]] = {
    "initialize": lifecycle.initialize,
    "ping": lifecycle.ping,
    "server/discover": lifecycle.discover,
    "tools/list": partial(serve_page, kind=TOOLS),
    "tools/call": tools.handle_call,
    "resources/list": partial(serve_page, kind=RESOURCES),
    "resources/templates/list": partial(serve_page, kind=TEMPLATES),
    "resources/read": resources.read_resource,
    "prompts/list": partial(serve_page, kind=PROMPTS),
    "prompts/get": prompts.get_prompt,
    "completion/complete": completion.complete,
    "logging/setLevel": logging.set_level,
    "resources/subscribe": methods.subscribe,
    "resources/unsubscribe": methods.unsubscribe,
    LISTEN_METHOD: methods.listen,
}

NOTIFICATIONS: dict[str, Callable[[Call], Awaitable[None]]] = {
    "notifications/initialized": lifecycle.handle_initialized,
    "notifications/cancelled": lifecycle.handle_cancelled,
}

REQUIRED_CAPABILITIES = {
    "tools/list": "tools",
    "tools/call": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "completion/complete": "completions",
    "logging/setLevel": "logging",
}
"""Method name to the server capability that it requires."""


def dispatch(call: Call) -> ResultBody | Coroutine[Any, Any, ResultBody]:
    """Find the method in the call's revision and start it.

    Raises MethodNotFound, and the errors of the method.
    """
    method = call.message.method

    function = METHODS.get(method)
    if function is None or method not in call.revision.methods:
        raise MethodNotFound(f"Method not found: {method[:128]}")

    capability = REQUIRED_CAPABILITIES.get(method)
    if capability is not None and capability not in call.server.offered_capabilities:
        raise MethodNotFound(f"This server does not offer {capability}")

    call.era.check(call)
    return function(call)


async def handle_notification(call: Call) -> None:
    """Handle a notification. Unknown notifications are ignored, as JSON-RPC requires."""
    function = NOTIFICATIONS.get(call.method)
    if function is not None and call.method in call.revision.client_notifications:
        await function(call)
