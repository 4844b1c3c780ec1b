"""Requests of a client: single rounds, complete calls and lists.

A round has a timeout and safe retries. Data from servers is bounded: pages, entries, rounds, and input requests in a
round.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import mcp_types as types
from mcp import MCPError

from mcp_django.client import failures, sdk_compat
from mcp_django.client.errors import (
    AuthorizationNeeded,
    CallTimeout,
    ClientConnectionError,
    ClientError,
    HandshakeError,
    InvalidAnswer,
)
from mcp_django.client.options import ClientOptions
from mcp_django.client.session.callbacks import ServerRequestCallbacks
from mcp_django.client.session.connection_manager import ConnectionManager
from mcp_django.client.session.handlers import NotificationHandlers, ProgressHandler, ProgressRelay
from mcp_django.client.session.session import ClientConnection
from mcp_django.client.session.timing import Backoff, PausableTimeouts

ResultT = TypeVar("ResultT", bound=types.Result)
TimeLimit = Callable[[float | None], AbstractAsyncContextManager[None]]
"""Function from seconds, None for no limit, to a context that raises CallTimeout after them."""

RETRYABLE_METHODS = frozenset(
    {
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "resources/read",
        "skills/list",
        "skills/get",
        "prompts/get",
        "completion/complete",
        "ping",
        "server/discover",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "tasks/result",
    }
)
"""Methods without side effects, which are safe to repeat when a connection breaks."""
MAX_LIST_PAGES = 1000
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
NAME_PARAMS = ("name", "uri")


@dataclass(slots=True, eq=False)
class RequestSender:
    """Sends the requests of one client."""

    _manager: ConnectionManager
    _options: ClientOptions
    _handlers: NotificationHandlers
    _callbacks: ServerRequestCallbacks
    _timeouts: PausableTimeouts

    @property
    def is_closed(self) -> bool:
        """Return True if the client was closed."""
        return self._manager.is_closed

    @property
    def is_stateless(self) -> bool:
        """Return True if the latest connection belongs to the stateless era."""
        return self._manager.current is not None and self._manager.current.is_stateless

    async def send(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send one round of a request and return the result in wire format.

        Raises:
            CallError: The server responded with an error.
            CallTimeout: The server did not respond in `timeout` seconds.
            ClientConnectionError: There is no connection, or it broke.
        """
        request_params = dict(params or {})
        request_params["_meta"] = {**(request_params.get("_meta") or {}), **(meta or {})}
        # The SDK creates the token of a call with a progress handler. Progress for another token would reach no
        # handler.
        request_params["_meta"].pop("progressToken", None)
        relay = self.create_progress_relay(method, request_params, on_progress)

        observer, failure = self._manager.observer, None
        observer.on_request_started()
        started_at = time.perf_counter()
        operation = self._manager.telemetry.start_operation(method, request_params)
        try:
            async with self.limit_time(timeout):
                backoff = Backoff(self._options.max_retries if method in RETRYABLE_METHODS else 0)
                while True:
                    connection = await self._manager.get_connection()
                    started_at = time.perf_counter()  # The wait for a connection is not part of the request.
                    if connection.is_stateless and self._manager.log_level is not None:
                        request_params["_meta"].setdefault(types.LOG_LEVEL_META_KEY, self._manager.log_level)
                    operation.set_revision(connection.revision.version)
                    try:
                        result = await self._send_once(connection, method, request_params, relay)
                        operation.set_result(result)
                        return result
                    except ClientConnectionError as error:
                        delay = backoff.next_delay()
                        if delay is None or isinstance(error, AuthorizationNeeded | HandshakeError):
                            raise
                        if not connection.is_closing:  # otherwise the reconnect has its own delay
                            await asyncio.sleep(delay)
        except BaseException as error:
            failure = error
            raise
        finally:
            operation.finish(failure)
            observer.on_request_finished(time.perf_counter() - started_at, failure)

    async def request(self, method: str, params: Mapping[str, Any], result: type[ResultT], **options: Any) -> ResultT:
        """Send a request, answering input requests, until the result is complete."""
        return self.parse_result(result, await self.complete(method, params, **options))

    async def complete(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Send a request like `request`, and return the result in wire format."""
        delay, extra_params = FIRST_RETRY_DELAY_SECONDS, dict[str, Any]()
        for _ in range(MAX_ROUNDS + 1):
            raw = await self.send(method, {**params, **extra_params}, **options)
            if raw.get("resultType") != "input_required":
                return raw
            input_required = self.parse_result(types.InputRequiredResult, raw)
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

    async def answer_input_requests(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Answer input requests in wire format, and return the responses by the same keys."""
        raw = {"resultType": "input_required", "inputRequests": dict(requests)}
        input_required = self.parse_result(types.InputRequiredResult, raw)
        return await self._handle_input_requests(input_required.input_requests or {})

    async def _handle_input_requests(self, input_requests: types.InputRequests) -> dict[str, Any]:
        """Handle all input requests of a round concurrently and return the responses."""
        if len(input_requests) > MAX_INPUT_REQUESTS:
            raise InvalidAnswer(
                f"{self._options.server_label} sent more than {MAX_INPUT_REQUESTS} input requests at once"
            )
        tasks = [
            asyncio.ensure_future(self._callbacks.handle_input_request(question))
            for question in input_requests.values()
        ]
        try:
            responses = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        wire = [answer.model_dump(by_alias=True, mode="json", exclude_none=True) for answer in responses]
        return dict(zip(input_requests, wire, strict=True))

    async def list_all(self, method: str, key: str, result: type[ResultT], timeout: float | None) -> list[Any]:
        """Return all entries of a list, following its pages.

        Raises:
            InvalidAnswer: The list exceeds the limits of pages or entries, or repeats a cursor.
        """
        entries: list[Any] = []
        cursors: set[str] = set()
        params: dict[str, str] = {}
        for _ in range(MAX_LIST_PAGES):
            page: Any = self.parse_result(result, await self.send(method, params, timeout=timeout))
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

    async def _send_once(
        self, connection: ClientConnection, method: str, params: dict[str, Any], relay: ProgressRelay | None
    ) -> dict[str, Any]:
        try:
            try:
                return await connection.request(method, params, on_progress=relay)
            except MCPError as error:
                # The server refused the call unprocessed: the mirrored headers are not known yet, or outdated.
                if error.code != failures.HEADER_MISMATCH or method != "tools/call" or not connection.is_stateless:
                    raise
                await self._load_param_headers(connection, params["name"])
                return await connection.request(method, params, on_progress=relay)
        except MCPError as error:
            raise await self._convert_error(connection, error) from None
        except ValueError:
            raise failures.build_invalid_response_error(self._options) from None

    async def _convert_error(self, connection: ClientConnection, error: MCPError) -> ClientError:
        if sdk_compat.is_terminated(error) and not connection.is_stateless:
            connection.close()
            return failures.build_connection_lost_error(self._options)
        if not sdk_compat.is_lost(error):
            return failures.convert_response_error(error)
        if not sdk_compat.is_closed(error):
            return failures.build_no_response_error(error, self._options)
        connection.close()  # the SDK has noticed its end, the connection task has not
        return await self._manager.get_close_reason(connection)

    async def _load_param_headers(self, connection: ClientConnection, name: str) -> None:
        """List tools until the named one is included, to store its mirrored arguments."""
        cursor: dict[str, str] = {}
        for _ in range(MAX_LIST_PAGES):
            page = await connection.request("tools/list", cursor)
            next_cursor = page.get("nextCursor")
            if next_cursor is None or any(tool["name"] == name for tool in page["tools"]):
                return
            cursor = {"cursor": next_cursor}

    def parse_result(self, result: type[ResultT], raw: dict[str, Any]) -> ResultT:
        """Return a result in wire format as its type. Raises InvalidAnswer."""
        try:
            return result.model_validate(raw, by_name=False)
        except ValueError:
            raise failures.build_invalid_response_error(self._options) from None

    def create_progress_relay(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressHandler | None
    ) -> ProgressRelay | None:
        """Create the relay of the progress of one call; None without handlers."""
        if on_progress is None and not self._handlers.has_handlers("progress"):
            return None
        name = next((value for key in NAME_PARAMS if isinstance(value := params.get(key), str)), None)
        return ProgressRelay(self._handlers, method, name, on_progress)

    @asynccontextmanager
    async def limit_time(self, timeout: float | None) -> AsyncIterator[None]:
        """Apply the timeout of the call, or the client's default.

        Time spent in callbacks is excluded.
        """
        seconds = self._options.timeout if timeout is None else timeout
        if seconds is None or math.isinf(seconds):
            yield
            return

        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                with self._timeouts.track(clock, seconds):
                    yield
        except TimeoutError:
            if clock.expired():
                raise CallTimeout(f"{self._options.server_label} did not answer within {seconds:g} s") from None
            raise failures.build_connection_lost_error(self._options) from None
