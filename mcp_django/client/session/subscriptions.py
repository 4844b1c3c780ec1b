"""Change notifications in the stateless era by `subscriptions/listen`.

When the subscribed set changes, a new stream is opened before the old one is closed, so that no change is missed. A
lost stream is reopened, and everything that may have changed in between is reported as changed.
"""

import asyncio
import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import anyio
import anyio.abc
from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost, listen

from mcp_django.aio.tasks import wait_for_event
from mcp_django.client import failures, sdk_compat
from mcp_django.client.errors import CallError, ClientConnectionError, ClientError
from mcp_django.client.session.handlers import LIST_NAMES, ListName, NotificationHandlers
from mcp_django.client.session.session import ClientConnection
from mcp_django.client.session.timing import STABLE_AFTER_SECONDS, UNLIMITED_RETRIES, Backoff
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.client")

STREAM_LOST = ClientConnectionError("The stream of changes was lost")
FINAL_ERROR_CODES = (failures.METHOD_NOT_FOUND, failures.INVALID_PARAMS, failures.INVALID_REQUEST)
"""Error codes after which a retry is useless."""


@dataclass(frozen=True, slots=True)
class RequestedChanges:
    """The lists and resources to subscribe to."""

    lists: frozenset[ListName] = frozenset()
    uris: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.lists or self.uris)


@dataclass(eq=False)
class ClientSubscriptions:
    """Manages the listen stream of one connection."""

    _connection: ClientConnection
    _handlers: NotificationHandlers
    _uris: Iterable[str]
    _acknowledgement_timeout: float
    """Seconds for the server to acknowledge a stream."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: list[tuple[str, asyncio.Future[ClientError | None]]] = field(default_factory=list)
    _stream: "_SubscriptionStream | None" = None
    _backoff: Backoff = field(default_factory=lambda: Backoff(UNLIMITED_RETRIES))

    def refresh(self) -> None:
        """Re-evaluate the subscribed set."""
        self._changed.set()

    async def wait_for_subscription(self, uri: str) -> None:
        """Wait until the stream includes a URI.

        Raises ClientError if the server refuses it.
        """
        outcome: asyncio.Future[ClientError | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((uri, outcome))
        self.refresh()
        if (error := await outcome) is not None:
            raise copy.copy(error)

    async def run(self, group: anyio.abc.TaskGroup) -> None:
        """Keep the stream open and up to date, until cancelled."""
        has_gap = False

        try:
            while True:
                self._changed.clear()
                requested = self._get_requested_changes()
                stream = self._stream
                if stream is not None and stream.is_closed and requested:
                    has_gap = has_gap or stream.is_acknowledged
                    if stream.is_refused and stream.requested == requested and not self._waiting:
                        await self._changed.wait()
                        continue
                    await self._wait_before_reopening(stream)
                if stream is None or stream.is_closed or stream.requested != requested or self._waiting:
                    opened = await self._replace_stream(requested, group)
                    if has_gap and opened:
                        has_gap = False
                        self._report_changes(requested)
                await self._changed.wait()
        finally:
            self._resolve_waiting(
                ClientConnectionError("The connection broke before the subscription was confirmed"), None
            )

    def _get_requested_changes(self) -> RequestedChanges:
        offered = frozenset(kind for kind in LIST_NAMES if self._connection.announces_changes(kind))
        kinds = offered if self._handlers.has_handlers("list_changed") else frozenset[ListName]()
        return RequestedChanges(kinds, frozenset(self._uris))

    async def _wait_before_reopening(self, lost: "_SubscriptionStream") -> None:
        """Wait with backoff before replacing a lost stream."""
        if lost.age_seconds > STABLE_AFTER_SECONDS:
            self._backoff.reset()
        await asyncio.sleep(self._backoff.next_delay() or 0)

    async def _replace_stream(self, wanted: RequestedChanges, group: anyio.abc.TaskGroup) -> bool:
        """Replace the stream by one for the requested changes; return True if it is open."""
        old = self._stream
        self._stream = None
        if wanted:
            self._stream = stream = _SubscriptionStream(self._connection, wanted, self.refresh)
            group.start_soon(stream.run)
            if not await wait_for_event(stream.opened_or_failed, self._acknowledgement_timeout):
                stream.error = STREAM_LOST
                stream.close()
            self._resolve_waiting(stream.error, stream)
        if old is not None:
            old.close()
        return self._stream is not None and self._stream.is_acknowledged

    def _resolve_waiting(self, error: ClientError | None, stream: "_SubscriptionStream | None") -> None:
        """Resolve the callers that wait for a URI of the stream."""
        for uri, outcome in list(self._waiting):
            if stream is None or uri in stream.requested.uris:
                self._waiting.remove((uri, outcome))
                if not outcome.done():
                    refused = stream is not None and error is None and uri not in stream.uris
                    outcome.set_result(CallError(failures.INVALID_PARAMS, "Not subscribed") if refused else error)

    def _report_changes(self, wanted: RequestedChanges) -> None:
        for kind in wanted.lists:
            self._connection.queue_change("list_changed", kind)
        for uri in wanted.uris:
            self._connection.queue_change("resource_updated", uri)


@dataclass(eq=False)
class _SubscriptionStream:
    """A listen stream, from request to end.

    Its notifications reach the handlers through the session.
    """

    _connection: ClientConnection
    requested: RequestedChanges
    _on_close: Callable[[], None]
    opened_or_failed: asyncio.Event = field(default_factory=asyncio.Event)
    is_closed: bool = False
    is_acknowledged: bool = False
    error: ClientError | None = None
    is_refused: bool = False
    uris: frozenset[str] = frozenset()
    _opened_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def age_seconds(self) -> float:
        """Seconds since the stream was opened."""
        return asyncio.get_running_loop().time() - self._opened_at

    def close(self) -> None:
        """Cancel the request of the stream; `run` then returns."""
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                await self._listen()
        except MCPError as error:
            self.is_refused = error.code in FINAL_ERROR_CODES and not sdk_compat.is_lost(error)
            self.error = STREAM_LOST if sdk_compat.is_lost(error) else failures.convert_response_error(error)
        except (SubscriptionLost, TimeoutError, RuntimeError):
            self.error = STREAM_LOST
        finally:
            self.is_closed = True
            self.opened_or_failed.set()
            self._on_close()

    async def _listen(self) -> None:
        kinds = self.requested.lists
        async with listen(
            self._connection.session,
            tools_list_changed="tools" in kinds,
            prompts_list_changed="prompts" in kinds,
            resources_list_changed="resources" in kinds,
            resource_subscriptions=sorted(self.requested.uris),
        ) as subscription:
            self.is_acknowledged = True
            self.uris = frozenset(subscription.honored.resource_subscriptions or ())
            self.opened_or_failed.set()
            async for _ in subscription:
                pass
