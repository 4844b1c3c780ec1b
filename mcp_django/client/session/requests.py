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
from mcp_django.client.options import Options
from mcp_django.client.session.connection_manager import Keeper
from mcp_django.client.session.handlers import Listeners, ProgressHandler, ProgressRelay
from mcp_django.client.session.observer import Watcher
from mcp_django.client.session.session import Connection
from mcp_django.client.session.timing import Backoff, Deadlines

REPEATABLE = frozenset(
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
MAX_PAGES = 1000
NAMES = ("name", "uri")


class _Watched:
    """Reports a round to the observer.

    Its duration starts when a connection is available.
    """

    __slots__ = ("_watcher", "since")

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self.since = watcher, time.perf_counter()

    def __enter__(self) -> "_Watched":
        self._watcher.began()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._watcher.ended(time.perf_counter() - self.since, error)


class Rounds:
    """Sends the requests of one client."""

    def __init__(self, keeper: Keeper, options: Options, listeners: Listeners, deadlines: Deadlines) -> None:
        self._keeper, self._options, self._listeners, self._deadlines = keeper, options, listeners, deadlines

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
        sent = dict(params or {})
        sent["_meta"] = {**(sent.get("_meta") or {}), **(meta or {})}
        # The SDK creates the token of a call with a progress handler. Progress for another token would reach no
        # handler.
        sent["_meta"].pop("progressToken", None)
        relay = self._relay(method, sent, on_progress)

        with _Watched(self._keeper.watcher) as watched:
            async with self._in_time(timeout):
                backoff = Backoff(self._options.max_retries if method in REPEATABLE else 0)
                while True:
                    connection = await self._keeper.connection()
                    watched.since = time.perf_counter()
                    if connection.stateless and self._keeper.log_level is not None:
                        sent["_meta"].setdefault(types.LOG_LEVEL_META_KEY, self._keeper.log_level)
                    try:
                        return await self._once(connection, method, sent, relay)
                    except ClientConnectionError as error:
                        delay = backoff.delay()
                        if delay is None or isinstance(error, AuthorizationNeeded | HandshakeError):
                            raise
                        if not connection.ended:  # otherwise the reconnect has its own delay
                            await asyncio.sleep(delay)

    async def _once(
        self, connection: Connection, method: str, params: dict[str, Any], relay: ProgressRelay | None
    ) -> dict[str, Any]:
        try:
            try:
                return await connection.request(method, params, on_progress=relay)
            except MCPError as error:
                # The server refused the call unprocessed: the mirrored headers are not known yet, or outdated.
                if error.code != failures.HEADER_MISMATCH or method != "tools/call" or not connection.stateless:
                    raise
                await self._learn(connection, params["name"])
                return await connection.request(method, params, on_progress=relay)
        except MCPError as error:
            raise await self._failure(connection, error) from None
        except ValueError:
            raise failures.of_nonsense(self._options) from None

    async def _failure(self, connection: Connection, error: MCPError) -> ClientError:
        if failures.is_terminated(error) and not connection.stateless:
            connection.end()
            return failures.lost(self._options)
        if not failures.is_lost(error):
            return failures.of_answer(error)
        if not failures.is_closed(error):
            return failures.of_silence(error, self._options)
        connection.end()  # the SDK has noticed its end, the connection task has not
        return await self._keeper.reason(connection)

    async def _learn(self, connection: Connection, name: str) -> None:
        """List tools until the named one is included, to store its mirrored arguments."""
        cursor: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            page = await connection.request("tools/list", cursor)
            following = page.get("nextCursor")
            if following is None or any(tool["name"] == name for tool in page["tools"]):
                return
            cursor = {"cursor": following}

    def _relay(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressHandler | None
    ) -> ProgressRelay | None:
        if on_progress is None and not self._listeners.wants("progress"):
            return None
        name = next((value for key in NAMES if isinstance(value := params.get(key), str)), None)
        return ProgressRelay(self._listeners, method, name, on_progress)

    @asynccontextmanager
    async def _in_time(self, timeout: float | None) -> AsyncIterator[None]:
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
                with self._deadlines.counted(clock, seconds):
                    yield
        except TimeoutError:
            if clock.expired():
                raise CallTimeout(f"{self._options.name} did not answer within {seconds:g} s") from None
            raise failures.lost(self._options) from None
