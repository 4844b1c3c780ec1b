"""Client for other MCP servers, built on the official SDK.

    from mcp_django.client import Client, StreamableHTTP

    async with Client(StreamableHTTP("https://api.example.com/mcp")) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})

All names are imported lazily, at first use. They require the extra `client`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("mcp") is None:
    raise ImportError(
        "mcp_django.client requires the MCP SDK; install it with pip install 'mcp-django-channels[client]'"
    )

if TYPE_CHECKING:
    from mcp_django.client.blocking import BlockingClient
    from mcp_django.client.client import Client
    from mcp_django.client.errors import (
        AuthorizationNeeded,
        CallError,
        CallTimeout,
        ClientConnectionError,
        ClientError,
        HandshakeError,
        InvalidAnswer,
        TaskCancelled,
        TaskNotFound,
        ToolNotFound,
    )
    from mcp_django.client.multi_client import BlockingBridge, Bridge
    from mcp_django.client.pool.pool import aclose_clients, close_clients, get_client
    from mcp_django.client.session.handlers import Progress
    from mcp_django.client.skills import BlockingClientSkill, ClientSkill
    from mcp_django.client.tasks.task_handle import BlockingClientTask, ClientTask
    from mcp_django.client.tasks.task_state import ClientTaskState
    from mcp_django.client.transports.targets import SSE, Stdio, StreamableHTTP, WebSocket

__all__ = [
    "SSE",
    "AuthorizationNeeded",
    "BlockingBridge",
    "BlockingClient",
    "BlockingClientSkill",
    "BlockingClientTask",
    "Bridge",
    "CallError",
    "CallTimeout",
    "Client",
    "ClientConnectionError",
    "ClientError",
    "ClientSkill",
    "ClientTask",
    "ClientTaskState",
    "HandshakeError",
    "InvalidAnswer",
    "Progress",
    "Stdio",
    "StreamableHTTP",
    "TaskCancelled",
    "TaskNotFound",
    "ToolNotFound",
    "WebSocket",
    "aclose_clients",
    "close_clients",
    "get_client",
]

_MODULES = {  # The other names are errors.
    "BlockingBridge": "multi_client",
    "BlockingClient": "blocking",
    "BlockingClientSkill": "skills",
    "BlockingClientTask": "tasks.task_handle",
    "Bridge": "multi_client",
    "Client": "client",
    "ClientSkill": "skills",
    "ClientTask": "tasks.task_handle",
    "ClientTaskState": "tasks.task_state",
    "Progress": "session.handlers",
    "SSE": "transports.targets",
    "Stdio": "transports.targets",
    "StreamableHTTP": "transports.targets",
    "WebSocket": "transports.targets",
    "aclose_clients": "pool.pool",
    "close_clients": "pool.pool",
    "get_client": "pool.pool",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
