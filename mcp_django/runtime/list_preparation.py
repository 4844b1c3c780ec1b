"""Preparation of lists: the entries of tools are built after the start.

The schemas of a view or a model take milliseconds each, and a list may have hundreds of them. The first client need not
wait for them.
"""

import asyncio
from collections.abc import Iterable

from mcp_django.aio.tasks import start_task
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.primitives.base import Tool
from mcp_django.server.server import Server

logger = get_logger("mcp_django.server")


class ListPreparation:
    """Builds the list entries of the tools of servers, one after the other, on threads.

    A list that is requested meanwhile builds the missing entries itself.
    """

    def __init__(self, servers: Iterable[Server]) -> None:
        self._servers = tuple(servers)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a task on the running loop."""
        self._task = start_task(self._build_entries())

    async def stop(self) -> None:
        """Cancel the task and wait for it; the entry that a thread builds is built to its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _build_entries(self) -> None:
        for server in self._servers:
            for tool in tuple(server.registry.tools):
                try:
                    await server.ports.executor.run(_build_entry, tool)
                except Exception:
                    # The list or the call that needs the entry reports the reason.
                    logger.debug("List entry not prepared: %s", tool.name, exc_info=True)


def _build_entry(tool: Tool) -> None:
    """Build the cached list entry of a tool."""
    _ = tool.wire
