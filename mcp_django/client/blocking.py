"""A client whose methods block: for views, threads, shells and tasks without an event loop.

Each method is that of a `Client`, run on the loop where the client is connected: its own, while it has one, or that of
the process's `Portal`.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import mcp_types as types

from mcp_django.client import portal
from mcp_django.client.errors import ClientError
from mcp_django.client.session.handlers import Unsubscribe
from mcp_django.client.session.operations import Operations

P = ParamSpec("P")
R = TypeVar("R")


def _blocks(
    method: Callable[Concatenate[Operations, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["BlockingClient", P], R]:
    """The method of a client, waited for."""

    @functools.wraps(method)
    def blocking(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(method(self.client, *args, **kwargs))

    return blocking


def _registers(
    method: Callable[Concatenate[Operations, P], Unsubscribe],
) -> Callable[Concatenate["BlockingClient", P], Unsubscribe]:
    """The method of a client that takes a handler, run on the loop, as is what it returns."""

    @functools.wraps(method)
    def blocking(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> Unsubscribe:
        async def add() -> Unsubscribe:
            return method(self.client, *args, **kwargs)

        remove = self._run(add())

        async def forget() -> None:
            remove()

        return lambda: self._run(forget())

    return blocking


class BlockingClient:
    """A `Client` whose methods block. Make one with `client.blocking()`.

        with Client(StreamableHTTP(url)).blocking() as client:
            tools = client.list_tools()

    It may be used by many threads at once, and not on a thread whose event loop runs: there it raises RuntimeError.
    Handlers and answerers run on the client's loop, so plain functions among them should be quick. What is still
    connected at the end of the process is closed.
    """

    def __init__(self, client: Operations) -> None:
        self.client = client
        """The client whose methods these are."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.client!r}>"

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    connect = _blocks(Operations.connect)
    close = _blocks(Operations.close)
    rest = _blocks(Operations.rest)
    list_tools = _blocks(Operations.list_tools)
    call_tool = _blocks(Operations.call_tool)
    list_resources = _blocks(Operations.list_resources)
    list_resource_templates = _blocks(Operations.list_resource_templates)
    read_resource = _blocks(Operations.read_resource)
    list_prompts = _blocks(Operations.list_prompts)
    get_prompt = _blocks(Operations.get_prompt)
    complete = _blocks(Operations.complete)
    subscribe = _blocks(Operations.subscribe)
    unsubscribe = _blocks(Operations.unsubscribe)
    set_logging_level = _blocks(Operations.set_logging_level)
    ping = _blocks(Operations.ping)
    notify_roots_changed = _blocks(Operations.notify_roots_changed)
    exchange = _blocks(Operations.exchange)

    on_progress = _registers(Operations.on_progress)
    on_log = _registers(Operations.on_log)
    on_list_changed = _registers(Operations.on_list_changed)
    on_resource_updated = _registers(Operations.on_resource_updated)
    on_sampling = _registers(Operations.on_sampling)
    on_elicitation = _registers(Operations.on_elicitation)
    on_roots = _registers(Operations.on_roots)

    @property
    def alias(self) -> str | None:
        """What the project calls the server."""
        return self.client.alias

    @property
    def is_connected(self) -> bool:
        """Is there a connection, as far as is known?"""
        return self.client.is_connected

    @property
    def is_needed(self) -> bool:
        """Does somebody wait for the connection, or want to be told of changes?"""
        return self.client.is_needed

    @property
    def last_error(self) -> ClientError | None:
        """Why there is no connection, if the last attempt failed."""
        return self.client.last_error

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken. Raises ClientConnectionError before the first connection, as those below do."""
        return self.client.protocol_version

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """What the server can do."""
        return self.client.capabilities

    @property
    def server_info(self) -> types.Implementation | None:
        """What the server tells of itself; None if it does not."""
        return self.client.server_info

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        return self.client.instructions

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        loop: asyncio.AbstractEventLoop | None = self.client.loop
        if loop is None or not loop.is_running():
            home = portal.portal()
            home.close_at_exit(self.client)
            loop = home.loop
        return portal.run(work, loop)
