"""Sending of single requests, with timeouts and safe retries."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import MCPError

from mcp_django.client import failures
from mcp_django.client.errors import (
    AuthorizationNeeded,
    CallTimeout,
    ClientConnectionError,
    ClientError,
    HandshakeError,
)
from mcp_django.client.options import ClientOptions
from mcp_django.client.session.connection_manager import ConnectionManager
from mcp_django.client.session.handlers import NotificationHandlers, ProgressHandler, ProgressRelay
from mcp_django.client.session.observer import ClientObserver
from mcp_django.client.session.session import ClientConnection
from mcp_django.client.session.timing import Backoff, PausableTimeouts

RETRYABLE_METHODS = frozenset(
    {
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "ping",
        "server/discover",
    }
)
"""Methods without side effects, which are safe to repeat when a connection breaks."""
MAX_LIST_PAGES = 1000
NAME_PARAMS = ("name", "uri")


class _ObservedRequest:
    """Reports a round to the observer.

    Its duration starts when a connection is available.
    """

    __slots__ = ("_observer", "started_at")

    def __init__(self, observer: ClientObserver) -> None:
        self._observer = observer
        self.started_at = time.perf_counter()

    def __enter__(self) -> "_ObservedRequest":
        self._observer.on_request_started()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._observer.on_request_finished(time.perf_counter() - self.started_at, error)


class RequestSender:
    """Sends the requests of one client."""

    def __init__(
        self,
        manager: ConnectionManager,
        options: ClientOptions,
        handlers: NotificationHandlers,
        timeouts: PausableTimeouts,
    ) -> None:
        self._manager = manager
        self._options = options
        self._handlers = handlers
        self._timeouts = timeouts

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
        relay = self._create_progress_relay(method, request_params, on_progress)

        with _ObservedRequest(self._manager.observer) as observed:
            async with self._limit_time(timeout):
                backoff = Backoff(self._options.max_retries if method in RETRYABLE_METHODS else 0)
                while True:
                    connection = await self._manager.get_connection()
                    observed.started_at = time.perf_counter()
                    if connection.is_stateless and self._manager.log_level is not None:
                        request_params["_meta"].setdefault(types.LOG_LEVEL_META_KEY, self._manager.log_level)
                    try:
                        return await self._send_once(connection, method, request_params, relay)
                    except ClientConnectionError as error:
                        delay = backoff.next_delay()
                        if delay is None or isinstance(error, AuthorizationNeeded | HandshakeError):
                            raise
                        if not connection.is_closing:  # otherwise the reconnect has its own delay
                            await asyncio.sleep(delay)

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
        if failures.is_terminated(error) and not connection.is_stateless:
            connection.close()
            return failures.build_connection_lost_error(self._options)
        if not failures.is_lost(error):
            return failures.convert_response_error(error)
        if not failures.is_closed(error):
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

    def _create_progress_relay(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressHandler | None
    ) -> ProgressRelay | None:
        if on_progress is None and not self._handlers.has_handlers("progress"):
            return None
        name = next((value for key in NAME_PARAMS if isinstance(value := params.get(key), str)), None)
        return ProgressRelay(self._handlers, method, name, on_progress)

    @asynccontextmanager
    async def _limit_time(self, timeout: float | None) -> AsyncIterator[None]:
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
