"""Blocking client for views, threads, shells and tasks without an event loop.

Each method runs the method of a `Client` on the loop of its connection, and waits for the result. While the client has
no connection, the loop of the process's `Portal` is used.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from mcp_django.client import portal
from mcp_django.client.operations import Operations, ServerInformation
from mcp_django.client.session.handlers import Unsubscribe
from mcp_django.client.skills import BlockingClientSkill
from mcp_django.client.tasks.task_handle import BlockingClientTask, ClientTask

P = ParamSpec("P")
R = TypeVar("R")


def _make_blocking(
    method: Callable[Concatenate[Operations, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["BlockingClient", P], R]:
    """Return a blocking version of an async method of a client."""

    @functools.wraps(method)
    def blocking(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(method(self.client, *args, **kwargs))

    return blocking


def _make_blocking_task(
    method: Callable[Concatenate[Operations, P], Coroutine[Any, Any, ClientTask]],
) -> Callable[Concatenate["BlockingClient", P], BlockingClientTask]:
    """Return a blocking version of a method that returns a task, whose methods block, too."""

    @functools.wraps(method)
    def blocking(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> BlockingClientTask:
        return BlockingClientTask(self._run(method(self.client, *args, **kwargs)), self._run)

    return blocking


def _make_blocking_registration(
    method: Callable[Concatenate[Operations, P], Unsubscribe],
) -> Callable[Concatenate["BlockingClient", P], Unsubscribe]:
    """Return a blocking version of a method that registers a handler.

    Registration runs on the client's loop. So does the returned function that removes the handler.
    """

    @functools.wraps(method)
    def blocking(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> Unsubscribe:
        async def add() -> Unsubscribe:
            return method(self.client, *args, **kwargs)

        remove = self._run(add())

        async def forget() -> None:
            remove()

        return lambda: self._run(forget())

    return blocking


class BlockingClient(ServerInformation):
    """A `Client` with blocking methods, created by `client.blocking()`.

        with Client(StreamableHTTP(url)).blocking() as client:
            tools = client.list_tools()

    Safe for use by several threads at once. A call from a thread with a running event loop raises RuntimeError.
    Handlers and callbacks run on the client's loop, so synchronous ones should return quickly. Connections that are
    still open at the end of the process are closed.
    """

    def __init__(self, client: Operations) -> None:
        self.client = client
        """The wrapped client."""
        self._options = client._options
        self._manager = client._manager

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.client!r}>"

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    connect = _make_blocking(Operations.connect)
    close = _make_blocking(Operations.close)
    disconnect = _make_blocking(Operations.disconnect)
    list_tools = _make_blocking(Operations.list_tools)
    call_tool = _make_blocking(Operations.call_tool)
    call_tool_task = _make_blocking_task(Operations.call_tool_task)
    list_resources = _make_blocking(Operations.list_resources)
    list_resource_templates = _make_blocking(Operations.list_resource_templates)
    read_resource = _make_blocking(Operations.read_resource)
    list_prompts = _make_blocking(Operations.list_prompts)
    get_prompt = _make_blocking(Operations.get_prompt)
    complete = _make_blocking(Operations.complete)
    subscribe = _make_blocking(Operations.subscribe)
    unsubscribe = _make_blocking(Operations.unsubscribe)
    set_logging_level = _make_blocking(Operations.set_logging_level)
    ping = _make_blocking(Operations.ping)
    notify_roots_changed = _make_blocking(Operations.notify_roots_changed)
    exchange = _make_blocking(Operations.exchange)

    @functools.wraps(Operations.get_task)
    def get_task(self, id: str, tool: str | None = None) -> BlockingClientTask:
        return BlockingClientTask(self.client.get_task(id, tool), self._run)

    @functools.wraps(Operations.list_skills)
    def list_skills(self, *, timeout: float | None = None) -> list[BlockingClientSkill]:
        return [BlockingClientSkill(skill, self._run) for skill in self._run(self.client.list_skills(timeout=timeout))]

    @functools.wraps(Operations.get_skill)
    def get_skill(self, uri: str, *, timeout: float | None = None) -> BlockingClientSkill:
        return BlockingClientSkill(self._run(self.client.get_skill(uri, timeout=timeout)), self._run)

    on_progress = _make_blocking_registration(Operations.on_progress)
    on_log = _make_blocking_registration(Operations.on_log)
    on_list_changed = _make_blocking_registration(Operations.on_list_changed)
    on_resource_updated = _make_blocking_registration(Operations.on_resource_updated)
    on_sampling = _make_blocking_registration(Operations.on_sampling)
    on_elicitation = _make_blocking_registration(Operations.on_elicitation)
    on_roots = _make_blocking_registration(Operations.on_roots)

    def _run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return portal.run_for_client(coroutine, self.client, self.client.loop)
