"""Routing of POSTs for HTTP+SSE streams (2024-11-05, basic/transports).

A message reaches the client's stream whichever worker receives it. The stream's name contains its event loop. On that
loop the message is delivered directly. On other loops it is appended to the event log under the topic of the stream's
loop. The delivery status is published under the topic of the loop that received the POST. A loop thus has one topic for
its streams and its POSTs.
"""

import asyncio
import enum
import itertools
import secrets
from collections import OrderedDict
from typing import Any, Protocol

from django.db import Error

from mcp_django.aio.clock import monotonic
from mcp_django.aio.tasks import BackgroundTasks
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.event_log import Event, EventDraft, EventLog
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.events.shared_subscription import SharedSubscription
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.ports import Executor, Overloaded

logger = get_logger("mcp_django.events")

POST_KIND, WITHDRAWN_KIND = "post", "withdrawn"
ANSWER_TIMEOUT_SECONDS = 5.0
"""Maximum seconds for another worker to answer, before the stream counts as gone.

Without wake-ups an answer takes two polls of the log, a second each.
"""
UNREACHABLE_TTL_SECONDS = 5.0
"""Seconds for which messages to a stream of an unresponsive worker are rejected."""
MAX_REMEMBERED_STREAMS = 10_000
"""Maximum number of streams that are remembered as gone."""
CHECK_INTERVAL_SECONDS = 30.0
"""Seconds between two checks whether the subscription is still needed."""
MAX_UNCLEARED_BYTES, MAX_UNCLEARED_ROWS = 256 * 1024, 500
"""Maximum bytes and rows of delivered messages that remain in the log."""


class DeliveryStatus(enum.StrEnum):
    """Delivery status of a message."""

    TAKEN = "taken"
    GONE = "gone"
    """The stream does not exist, or has ended."""
    REFUSED = "refused"
    """The sender has no access to the stream."""
    BUSY = "busy"
    """The client must read more of its stream before sending."""


class MessageReceiver(Protocol):
    """Receiving side of a stream."""

    async def receive(self, body: bytes, scopes: frozenset[str]) -> DeliveryStatus:
        """Receive a message from a sender with these scopes; never block or raise."""


class SSEMessageRouter:
    """Router of one event loop: its streams, and POSTs for any stream.

    A stream belongs to the loop that serves it. Other loops treat it like a stream of another process.
    """

    def __init__(self, publisher: EventPublisher, executor: Executor) -> None:
        """Create the router; `executor` has the threads of the event log."""
        self._publisher = publisher
        self._executor = executor
        self.loop_id = secrets.token_urlsafe(9)

        self._streams: dict[str, MessageReceiver] = {}
        self._pending: dict[int, asyncio.Future[DeliveryStatus]] = {}
        self._deliveries: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._numbers = itertools.count()
        self._gone: OrderedDict[str, float] = OrderedDict()
        """Stream → monotonic time until which it counts as gone."""

        self._answers: list[EventDraft] = []
        self._publishing: asyncio.Task[None] | None = None
        self._subscription = SharedSubscription(
            publisher, _loop_topic(self.loop_id), self._on_event, self._is_needed, CHECK_INTERVAL_SECONDS
        )

        self._last_used = 0.0
        self._uncleared: list[int] = []
        self._uncleared_bytes = 0
        # In a clean context: an event's context is that of its publisher.
        self._tasks = BackgroundTasks(on_error=_log_failure)

    async def add(self, receiver: MessageReceiver) -> str:
        """Register a stream and return its name, which is valid on every worker.

        Raises:
            Overloaded: the event log is unavailable.
        """
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                await self._ensure_subscribed()
        except (Error, TimeoutError) as error:
            raise _build_overloaded(error) from None
        name = f"{self.loop_id}.{secrets.token_urlsafe(12)}"
        self._streams[name] = receiver
        return name

    def remove(self, name: str) -> None:
        """Remove an ended stream."""
        self._streams.pop(name, None)

    async def post(self, stream: str, body: bytes, scopes: frozenset[str]) -> DeliveryStatus:
        """Deliver a UTF-8 message to a stream that was added on any worker.

        Raises:
            Overloaded: the event log is unavailable.
        """
        receiver = self._streams.get(stream)
        if receiver is not None:
            return await receiver.receive(body, scopes)
        owner = stream.partition(".")[0]
        if owner == self.loop_id or self._gone.get(stream, 0.0) > monotonic():
            return DeliveryStatus.GONE
        return await self._forward(owner, stream, body, scopes)

    async def _forward(self, owner: str, stream: str, body: bytes, scopes: frozenset[str]) -> DeliveryStatus:
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        payload = {"stream": stream, "from": self.loop_id, "n": number, "scopes": sorted(scopes), "text": body.decode()}
        publish_task: asyncio.Task[list[Event]] | None = None
        self._pending[number] = answer

        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS) as deadline:
                await self._ensure_subscribed()
                # Shield the write from cancellation: its events must be known to be withdrawn.
                publish_task = self._tasks.spawn(
                    self._publisher.publish(EventDraft(_loop_topic(owner), POST_KIND, payload))
                )
                await asyncio.shield(publish_task)
                # Restart the timeout: a large message takes long to write, independently of the other worker.
                deadline.reschedule(asyncio.get_running_loop().time() + ANSWER_TIMEOUT_SECONDS)
                status: DeliveryStatus = await answer
        except Error as error:
            raise _build_overloaded(error) from None
        except TimeoutError as error:
            if publish_task is None:
                raise _build_overloaded(error) from None
            is_written = publish_task.done()
            self._tasks.spawn(self._withdraw(owner, number, publish_task, len(body)))
            if not is_written:
                raise _build_overloaded(error) from None
            self._remember_gone(stream, monotonic() + UNREACHABLE_TTL_SECONDS)
            return DeliveryStatus.GONE
        finally:
            del self._pending[number]

        self._schedule_clear(publish_task.result(), len(body))
        if status is DeliveryStatus.GONE:
            self._remember_gone(stream, float("inf"))
        return status

    async def _withdraw(self, owner: str, number: int, publish_task: "asyncio.Task[list[Event]]", size: int) -> None:
        """Withdraw a message after a timeout, so that a slow worker does not process it."""
        try:
            events = await publish_task
            await self._publisher.publish(
                EventDraft(_loop_topic(owner), WITHDRAWN_KIND, {"from": self.loop_id, "n": number})
            )
        except Error:
            return  # the message is not in the log
        self._schedule_clear(events, size)

    def _remember_gone(self, stream: str, expires: float) -> None:
        self._gone[stream] = expires
        if len(self._gone) > MAX_REMEMBERED_STREAMS:
            self._gone.popitem(last=False)

    def _schedule_clear(self, events: list[Event], size: int) -> None:
        """Clear the payloads of delivered messages in batches.

        The rows must stay, because numbers have no gaps, but a message may have megabytes.
        """
        self._uncleared += [event.seq for event in events]
        self._uncleared_bytes += size
        if self._uncleared_bytes >= MAX_UNCLEARED_BYTES or len(self._uncleared) >= MAX_UNCLEARED_ROWS:
            numbers = self._uncleared
            self._uncleared = []
            self._uncleared_bytes = 0
            self._tasks.spawn(self._clear_payloads(numbers))

    async def _clear_payloads(self, numbers: list[int]) -> None:
        try:
            await run_on_own_thread(self._executor, EventLog().clear_payloads, numbers)
        except Error:
            logger.warning(
                "Failed to clear delivered messages; they stay in the event log until they expire", exc_info=True
            )

    async def _ensure_subscribed(self) -> None:
        """Ensure that this loop's topic is subscribed.

        Raises:
            django.db.Error: the event log is unavailable.
        """
        self._last_used = monotonic()
        if not self._subscription.is_active:
            await asyncio.shield(self._subscription.start())

    def _is_needed(self) -> bool:
        return bool(self._streams or self._pending) or monotonic() - self._last_used < CHECK_INTERVAL_SECONDS

    def _on_event(self, event: Event) -> None:
        payload = event.payload
        if payload is None:
            return  # cleared, so the sender no longer waits for an answer

        if event.kind == POST_KIND:
            key = payload["from"], payload["n"]
            self._deliveries[key] = self._tasks.spawn(self._deliver(key, payload))
        elif event.kind == WITHDRAWN_KIND:
            delivery = self._deliveries.pop((payload["from"], payload["n"]), None)
            if delivery is not None:
                delivery.cancel()
        else:
            answer = self._pending.get(payload["n"])
            if answer is not None and not answer.done():
                answer.set_result(DeliveryStatus(event.kind))

    async def _deliver(self, key: tuple[str, int], payload: dict[str, Any]) -> None:
        try:
            receiver = self._streams.get(payload["stream"])
            status = DeliveryStatus.GONE
            if receiver is not None:
                status = await receiver.receive(payload["text"].encode(), frozenset(payload["scopes"]))
            self._answers.append(EventDraft(_loop_topic(key[0]), status, {"n": key[1]}))
            if self._publishing is None:
                self._publishing = self._tasks.spawn(self._publish_answers())
        finally:
            self._deliveries.pop(key, None)

    async def _publish_answers(self) -> None:
        """Publish the waiting answers in batches, one after the other."""
        try:
            while self._answers:
                answers = self._answers
                self._answers = []
                try:
                    await self._publisher.publish(*answers)
                except Error:
                    logger.warning("Failed to publish the delivery status of messages", exc_info=True)
        finally:
            self._publishing = None


def _loop_topic(owner: str) -> str:
    return f"posts:{owner}"


def _log_failure(error: BaseException) -> None:
    if not isinstance(error, Error):
        logger.error("Failed to process a message for a stream", exc_info=error)


def _build_overloaded(error: BaseException) -> Overloaded:
    logger.warning("Failed to forward a message to the stream of another worker", exc_info=error)
    return Overloaded("The event log is unavailable; try again later")
