"""Change notifications in the stateless era by `subscriptions/listen`.

When the subscribed set changes, a new stream is opened before the old one is closed, so that no change is missed. A
lost stream is reopened, and everything that may have changed in between is reported as changed.
"""

import asyncio
import copy
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import anyio
import anyio.abc
from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost, listen

from mcp_django.client import failures
from mcp_django.client.errors import CallError, ClientConnectionError, ClientError
from mcp_django.client.session.handlers import KINDS, Kind, Listeners
from mcp_django.client.session.session import Connection
from mcp_django.client.session.timing import FOREVER, STEADY, Backoff

logger = logging.getLogger("mcp_django.client")

LOST = ClientConnectionError("The stream of changes was lost")
FINAL = (failures.METHOD_NOT_FOUND, failures.INVALID_PARAMS, failures.INVALID_REQUEST)
"""Error codes after which a retry is useless."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The lists and resources to subscribe to."""

    kinds: frozenset[Kind] = frozenset()
    uris: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.kinds or self.uris)


class Listening:
    """Manages the listen stream of one connection."""

    def __init__(self, connection: Connection, listeners: Listeners, uris: Iterable[str], patience: float) -> None:
        """Initialize.

        A stream must be acknowledged within `acknowledgement_timeout` seconds.
        """
        self._connection, self._listeners, self._uris, self._patience = connection, listeners, uris, patience
        self._changed = asyncio.Event()
        self._waiting: list[tuple[str, asyncio.Future[ClientError | None]]] = []
        self._stream: _Stream | None = None
        self._backoff = Backoff(FOREVER)

    def look(self) -> None:
        """Re-evaluate the subscribed set."""
        self._changed.set()

    async def added(self, uri: str) -> None:
        """Wait until the stream includes a URI.

        Raises ClientError if the server refuses it.
        """
        outcome: asyncio.Future[ClientError | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((uri, outcome))
        self.look()
        if (error := await outcome) is not None:
            raise copy.copy(error)

    async def keep(self, group: anyio.abc.TaskGroup) -> None:
        """Keep the stream open and up to date, until cancelled."""
        gap = False

        try:
            while True:
                self._changed.clear()
                wanted = self._wanted()
                stream = self._stream
                if stream is not None and stream.over and wanted:
                    gap = gap or stream.acknowledged
                    if stream.final and stream.wanted == wanted and not self._waiting:
                        await self._changed.wait()
                        continue
                    await self._pause(stream)
                if stream is None or stream.over or stream.wanted != wanted or self._waiting:
                    opened = await self._replace(wanted, group)
                    if gap and opened:
                        gap = False
                        self._tell(wanted)
                await self._changed.wait()
        finally:
            self._answer(ClientConnectionError("The connection broke before the subscription was confirmed"), None)

    def _wanted(self) -> Wanted:
        offered = frozenset(kind for kind in KINDS if self._connection.announces(kind))
        kinds = offered if self._listeners.wants("list_changed") else frozenset[Kind]()
        return Wanted(kinds, frozenset(self._uris))

    async def _pause(self, lost: "_Stream") -> None:
        """Wait with backoff before replacing a lost stream."""
        if lost.lasted > STEADY:
            self._backoff.reset()
        await asyncio.sleep(self._backoff.delay() or 0)

    async def _replace(self, wanted: Wanted, group: anyio.abc.TaskGroup) -> bool:
        """Replace the stream by one for the requested changes; return True if it is open."""
        old, self._stream = self._stream, None
        if wanted:
            self._stream = stream = _Stream(self._connection, wanted, self.look)
            group.start_soon(stream.run)
            try:
                async with asyncio.timeout(self._patience):
                    await stream.settled.wait()
            except TimeoutError:
                stream.error = LOST
                stream.close()
            self._answer(stream.error, stream)
        if old is not None:
            old.close()
        return self._stream is not None and self._stream.acknowledged

    def _answer(self, error: ClientError | None, stream: "_Stream | None") -> None:
        """Resolve the callers that wait for a URI of the stream."""
        for uri, outcome in list(self._waiting):
            if stream is None or uri in stream.wanted.uris:
                self._waiting.remove((uri, outcome))
                if not outcome.done():
                    refused = stream is not None and error is None and uri not in stream.uris
                    outcome.set_result(CallError(failures.INVALID_PARAMS, "Not subscribed") if refused else error)

    def _tell(self, wanted: Wanted) -> None:
        for kind in wanted.kinds:
            self._connection.tell("list_changed", kind)
        for uri in wanted.uris:
            self._connection.tell("resource_updated", uri)


class _Stream:
    """A listen stream, from request to end.

    Its notifications reach the handlers through the session.
    """

    def __init__(self, connection: Connection, wanted: Wanted, ended: Callable[[], None]) -> None:
        self._connection, self.wanted, self._ended = connection, wanted, ended
        self.settled, self.over, self.acknowledged = asyncio.Event(), False, False
        self.error: ClientError | None = None
        self.final = False
        self.uris: frozenset[str] = frozenset()
        self._since = asyncio.get_running_loop().time()
        self._scope = anyio.CancelScope()

    @property
    def lasted(self) -> float:
        """Seconds since the stream was opened."""
        return asyncio.get_running_loop().time() - self._since

    def close(self) -> None:
        """Close the stream."""
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                await self._listen()
        except MCPError as error:
            self.final = error.code in FINAL and not failures.is_lost(error)
            self.error = LOST if failures.is_lost(error) else failures.of_answer(error)
        except (SubscriptionLost, TimeoutError, RuntimeError):
            self.error = LOST
        finally:
            self.over = True
            self.settled.set()
            self._ended()

    async def _listen(self) -> None:
        kinds = self.wanted.kinds
        async with listen(
            self._connection.session,
            tools_list_changed="tools" in kinds,
            prompts_list_changed="prompts" in kinds,
            resources_list_changed="resources" in kinds,
            resource_subscriptions=sorted(self.wanted.uris),
        ) as subscription:
            self.acknowledged = True
            self.uris = frozenset(subscription.honored.resource_subscriptions or ())
            self.settled.set()
            async for _ in subscription:
                pass
