"""A server of a bridge: its client, its tools, and the retries of its connection."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

import mcp_types as types

from mcp_django.aio.tasks import start_task
from mcp_django.client.client import Client
from mcp_django.client.errors import ClientConnectionError, ClientError
from mcp_django.client.pool.pool import is_pooled
from mcp_django.client.session.handlers import Unsubscribe
from mcp_django.client.session.timing import UNLIMITED_RETRIES, Backoff, RefreshThrottle
from mcp_django.client.tool_names import check_alias, join_name
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.client")

ClientFactory = Callable[[], Client]
"""Function that returns the client of a server, at its first use."""
ToolPredicate = Callable[[types.Tool], bool]
ToolsHandler = Callable[[str, list[types.Tool], Client], Awaitable[None] | None]
"""Callback with the alias of a server, its tools in the bridge, and its client."""
T = TypeVar("T")


class BridgedServer:
    """A server of a bridge, which is retried until it is connected."""

    def __init__(
        self,
        alias: str,
        create_client: ClientFactory,
        accepts: ToolPredicate,
        get_handlers: Callable[[], list[ToolsHandler]],
    ) -> None:
        """Create a closed server.

        `accepts` selects its tools. `get_handlers` returns the callbacks for its tool lists. Raises ValueError for an
        invalid alias.
        """
        self.alias = check_alias(alias)
        self.tools: dict[str, types.Tool] = {}
        """The server's own tools, keyed by their names in the bridge."""
        self.error: Exception | None = None
        """The latest error; None while the server works."""
        self._create_client = create_client
        self._accepts = accepts
        self._get_handlers = get_handlers
        self._client: Client | None = None
        self._is_open = False
        self._is_owned = False
        """True if the bridge closes the client."""
        self._unsubscribe: Unsubscribe | None = None
        self._refresh_task: asyncio.Task[None] | None = None
        self._retry_task: asyncio.Task[None] | None = None
        self._is_stale = False
        self._throttle = RefreshThrottle()

    @property
    def client(self) -> Client:
        """The client, connected or not."""
        if self._client is None:
            self._client = self._create_client()
        return self._client

    @property
    def is_connected(self) -> bool:
        """False before the first connection, and after a loss."""
        return self._client is not None and self._client.is_connected

    @property
    def prefixed_tools(self) -> list[types.Tool]:
        """The tools under their names in the bridge."""
        return [tool.model_copy(update={"name": name}) for name, tool in self.tools.items()]

    async def connect(self) -> None:
        """Connect and list the tools, unless the tools are listed already. On failure, start retrying."""
        self._is_open = True
        if self._unsubscribe is None:
            await self._connect()

    async def close(self) -> None:
        """Stop all tasks, and disconnect a client that was not connected before and belongs to no pool."""
        self._is_open = False
        tasks = [task for task in (self._retry_task, self._refresh_task) if task is not None]
        self._retry_task = None
        self._refresh_task = None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self.tools = {}

        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._close_client(), return_exceptions=True)

    async def run_call(self, call: Awaitable[T]) -> T:
        """Await a call of the client; if the connection is lost, start retrying."""
        try:
            return await call
        except ClientConnectionError as error:
            if not self.is_connected:
                self._start_retries(error)
            raise

    async def _connect(self) -> None:
        try:
            client = self.client
            self._is_owned = self._is_owned or not (client.is_connected or is_pooled(client))
            await client.connect()
            await self._load_tools()
        except Exception as error:
            if not isinstance(error, ClientError):
                logger.exception("Unexpected error of bridge server %r", self.alias)
            self._start_retries(error)
            return
        if self._unsubscribe is None:
            self._unsubscribe = client.on_list_changed(self._on_list_changed)

    async def _load_tools(self) -> None:
        """Reload the tools and call the registered callbacks."""
        tools: dict[str, types.Tool] = {}
        for tool in await self.client.list_tools():
            if not self._accepts(tool):
                continue
            name = join_name(self.alias, tool.name)
            if name in tools:
                logger.warning("Duplicate tool name on bridge server %r: %r; using the first", self.alias, name)
                continue
            tools[name] = tool

        self.error = None
        self.tools = tools
        for handler in self._get_handlers():
            try:
                result = handler(self.alias, self.prefixed_tools, self.client)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("Tool list callback failed for bridge server %r", self.alias)

    def _on_list_changed(self, kind: str) -> None:
        """Schedule a reload after the server announced a changed list."""
        if kind != "tools" or not self._is_open:
            return
        self._is_stale = True
        if self._refresh_task is None or self._refresh_task.done():
            self._refresh_task = start_task(self._refresh())

    async def _refresh(self) -> None:
        while self._is_stale:
            await self._throttle.wait()
            self._is_stale = False
            try:
                await self._load_tools()
            except Exception as error:
                if not isinstance(error, ClientError):
                    logger.exception("Listing the tools of bridge server %r failed", self.alias)
                self._start_retries(error)

    def _start_retries(self, error: Exception) -> None:
        """Store the error, and retry while the server is open.

        Its tools stay listed, so that a short outage does not change the list.
        """
        self.error = error
        if self._is_open and (self._retry_task is None or self._retry_task.done()):
            self._retry_task = start_task(self._retry())

    async def _retry(self) -> None:
        backoff = Backoff(UNLIMITED_RETRIES)
        while self.error is not None:
            await asyncio.sleep(backoff.next_delay() or 0)
            await self._connect()

    async def _close_client(self) -> None:
        if self._is_owned and self._client is not None:
            await self._client.close()
            self._is_owned = False
