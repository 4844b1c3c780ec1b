"""Execution of client operations: pagination, input requests, typed results.

Data from servers is bounded: pages, entries, rounds, and input requests in a round.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import mcp_types as types

from mcp_django.client import failures
from mcp_django.client.errors import CallError, ClientError, InvalidAnswer, ToolNotFound
from mcp_django.client.options import ClientOptions
from mcp_django.client.session.callbacks import ServerRequestCallbacks
from mcp_django.client.session.connection_manager import ConnectionManager
from mcp_django.client.session.handlers import ProgressHandler
from mcp_django.client.session.requests import MAX_LIST_PAGES, RequestSender
from mcp_django.client.session.validation import OutputValidator
from mcp_django.schema import to_json

ResultT = TypeVar("ResultT", bound=types.Result)

MAX_ENTRIES = 10_000
"""Maximum number of entries accepted in a list."""
MAX_ROUNDS = 32
"""Maximum number of rounds of input requests in one call."""
MAX_INPUT_REQUESTS = 64
"""Maximum number of input requests in one round."""
FIRST_RETRY_DELAY_SECONDS, MAX_RETRY_DELAY_SECONDS = 0.05, 1.0
"""First and maximum delay in seconds before an incomplete call is retried.

They apply to an incomplete result without input requests.
"""


class OperationExecutor:
    """Executes the typed operations of one client."""

    def __init__(
        self,
        manager: ConnectionManager,
        sender: RequestSender,
        options: ClientOptions,
        callbacks: ServerRequestCallbacks,
    ) -> None:
        self._manager = manager
        self._sender = sender
        self._options = options
        self._callbacks = callbacks
        self._output_validator = OutputValidator()

    async def list_all(self, method: str, key: str, result: type[ResultT], timeout: float | None) -> list[Any]:
        """Return all entries of a list, following its pages.

        Raises:
            InvalidAnswer: The list exceeds the limits of pages or entries, or repeats a cursor.
        """
        entries: list[Any] = []
        cursors: set[str] = set()
        params: dict[str, str] = {}
        for _ in range(MAX_LIST_PAGES):
            page: Any = self._parse_result(result, await self._sender.send(method, params, timeout=timeout))
            entries.extend(getattr(page, key))
            if len(entries) > MAX_ENTRIES:
                raise InvalidAnswer(f"{self._options.server_label} lists more than {MAX_ENTRIES} entries")

            cursor: str | None = page.next_cursor
            if cursor is None:
                return entries
            if cursor in cursors:
                raise InvalidAnswer(f"{self._options.server_label} repeats a cursor of its list")
            cursors.add(cursor)
            params = {"cursor": cursor}
        raise InvalidAnswer(f"{self._options.server_label} lists more than {MAX_LIST_PAGES} pages")

    async def list_tools(self, timeout: float | None) -> list[types.Tool]:
        """List all tools and store their output schemas for later results."""
        tools = await self.list_all("tools/list", "tools", types.ListToolsResult, timeout)
        self._output_validator.set_tools(tools)
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        timeout: float | None,
        on_progress: ProgressHandler | None,
        meta: Mapping[str, Any] | None,
    ) -> types.CallToolResult:
        """Call a tool and validate its result."""
        params = {"name": name, "arguments": to_json(dict(arguments or {}))}
        try:
            raw = await self._send_until_complete(
                "tools/call", params, timeout=timeout, on_progress=on_progress, meta=meta
            )
        except CallError as error:
            if await self._is_unknown_tool(name, error):
                raise ToolNotFound(error.code, error.message, error.data) from None
            raise

        result = self._parse_result(types.CallToolResult, raw)
        if result.is_error and _reports_unknown_tool(result, name) and await self._is_tool_missing(name):
            raise ToolNotFound(message=_get_text(result))
        self._output_validator.check(name, result)
        return result

    async def request(self, method: str, params: Mapping[str, Any], result: type[ResultT], **options: Any) -> ResultT:
        """Send a request, handle its input requests, and parse the result."""
        return self._parse_result(result, await self._send_until_complete(method, params, **options))

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource.

        The handshake era sends a request; the stateless era adds the URI to the listen stream.
        """
        connection = await self._manager.get_connection()
        was_subscribed = uri in self._manager.subscribed
        self._manager.subscribed[uri] = None
        try:
            if connection.is_stateless:
                await self._manager.add_subscription(uri)
            else:
                await self._sender.send("resources/subscribe", {"uri": uri})
        except BaseException:
            if not was_subscribed:
                self._manager.subscribed.pop(uri, None)
            raise

    async def unsubscribe(self, uri: str) -> None:
        """Cancel the subscription to a resource."""
        if uri not in self._manager.subscribed:
            return
        del self._manager.subscribed[uri]
        connection = await self._manager.get_connection()
        if connection.is_stateless:
            self._manager.refresh_subscriptions()
        else:
            await self._sender.send("resources/unsubscribe", {"uri": uri})

    async def set_logging_level(self, level: types.LoggingLevel) -> None:
        """Set the minimum level of log messages to receive."""
        connection = await self._manager.get_connection()
        if not connection.is_stateless:
            await self._sender.send("logging/setLevel", {"level": level})
        self._manager.log_level = level

    async def ping(self, timeout: float | None) -> None:
        """Check that the server responds."""
        connection = await self._manager.get_connection()
        await self._sender.send("server/discover" if connection.is_stateless else "ping", timeout=timeout)

    async def notify_roots_changed(self) -> None:
        """Notify the server of changed roots, in the era that defines it."""
        connection = await self._manager.get_connection()
        if not connection.is_stateless:
            await connection.notify(types.RootsListChangedNotification())

    async def _send_until_complete(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Send a request, answering input requests, until the result is complete."""
        delay, extra_params = FIRST_RETRY_DELAY_SECONDS, dict[str, Any]()
        for _ in range(MAX_ROUNDS + 1):
            raw = await self._sender.send(method, {**params, **extra_params}, **options)
            if raw.get("resultType") != "input_required":
                return raw
            input_required = self._parse_result(types.InputRequiredResult, raw)
            extra_params = (
                {} if input_required.request_state is None else {"requestState": input_required.request_state}
            )
            if input_required.input_requests:
                extra_params["inputResponses"] = await self._handle_input_requests(input_required.input_requests)
                delay = FIRST_RETRY_DELAY_SECONDS
            else:
                await asyncio.sleep(delay)
                delay = min(delay * 2, MAX_RETRY_DELAY_SECONDS)
        raise InvalidAnswer(f"{self._options.server_label} requested input more than {MAX_ROUNDS} times in one call")

    async def _handle_input_requests(self, input_requests: types.InputRequests) -> dict[str, Any]:
        """Handle all input requests of a round concurrently and return the responses."""
        if len(input_requests) > MAX_INPUT_REQUESTS:
            raise InvalidAnswer(
                f"{self._options.server_label} sent more than {MAX_INPUT_REQUESTS} input requests at once"
            )
        tasks = {
            key: asyncio.ensure_future(self._callbacks.handle_input_request(question))
            for key, question in input_requests.items()
        }
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()

        responses = {key: task.result() for key, task in tasks.items()}
        return {
            key: answer.model_dump(by_alias=True, mode="json", exclude_none=True) for key, answer in responses.items()
        }

    async def _is_unknown_tool(self, name: str, error: CallError) -> bool:
        """Return True if the tool does not exist.

        The error code is the same as for invalid arguments, so the tool list is checked.
        """
        return error.code in (failures.INVALID_PARAMS, failures.METHOD_NOT_FOUND) and await self._is_tool_missing(name)

    async def _is_tool_missing(self, name: str) -> bool:
        try:
            return all(tool.name != name for tool in await self.list_tools(None))
        except ClientError:
            return False

    def _parse_result(self, result: type[ResultT], raw: dict[str, Any]) -> ResultT:
        try:
            return result.model_validate(raw, by_name=False)
        except ValueError:
            raise failures.build_invalid_response_error(self._options) from None


def _get_text(result: types.CallToolResult) -> str:
    return next((block.text for block in result.content if isinstance(block, types.TextContent)), "")


def _reports_unknown_tool(result: types.CallToolResult, name: str) -> bool:
    """Return True if the text of a failed result reports an unknown tool.

    Some servers do not use an error response for this.
    """
    text = _get_text(result)
    return name in text and ("unknown tool" in text.lower() or "not found" in text.lower())
