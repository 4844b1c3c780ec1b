"""Reader of a call stream of another worker; `call_streams` is the other end."""

import asyncio
import secrets
from typing import Any

from mcp_django.aio.tasks import wait_for_event
from mcp_django.runtime.events.event_log import Event, EventDraft
from mcp_django.runtime.events.follower import TopicSubscription
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sessions.events import build_stream_topic
from mcp_django.runtime.streams.reader import StreamReader

CONTROL_TOPIC = "streams"
"""Topic of `attach` and `detach` events, for all processes with call streams."""
ATTACH_INTERVAL_SECONDS, MAX_ATTACH_REQUESTS = 1.0, 6
"""Seconds between two `attach` requests, and their maximum number.

Without an answer the call has ended with its worker. Without wake-ups an answer takes two polls of the log, a second
each, and longer on an overloaded machine.
"""
MAX_SILENT_READS = 3
"""Number of silent reads after which the worker of a call counts as ended.

Each lasts as long as a stream may be silent. After each earlier one a request checks that the call still runs.
"""


class StreamGoneError(Exception):
    """Error: the stream, or the messages that the client missed, are gone."""


class RemoteReader(StreamReader):
    """Reader of a call stream that another worker has, or had."""

    def __init__(self, publisher: EventPublisher, *, after: int, max_waiting: int) -> None:
        super().__init__(after, max_waiting)
        self._publisher = publisher
        self._last_number = after
        self._is_stream_ended = False
        """True if the worker of the call has ended the stream."""
        self._attach_draft: EventDraft | None = None
        self._subscriptions: list[TopicSubscription] = []
        self._is_accepted = False
        self._decided = asyncio.Event()
        """Event that is set when the worker, or the log, has accepted or refused the reader."""
        self._silent_reads = 0

    async def open(self, session: Any, token: str) -> None:
        """Find the worker, or the log entries, of a stream.

        Raises:
            StreamGoneError: the stream, or messages that the client missed, are gone.
        """
        follower, name = self._publisher.get_follower(), secrets.token_urlsafe(9)
        try:
            self._subscriptions.append(
                await follower.subscribe(build_stream_topic(session, token), self._on_event, after=0)
            )
            if not self._decided.is_set():
                self._subscriptions.append(
                    await follower.subscribe(build_stream_topic(session, token, name), self._on_event)
                )
                request = {"session": session, "stream": token, "after": self.position, "reader": name}
                self._attach_draft = EventDraft(CONTROL_TOPIC, "attach", request)
                await self._request_attach(self._attach_draft)

            if not self._is_accepted:
                raise StreamGoneError
        except BaseException:
            self.close()
            raise

    async def _request_attach(self, draft: EventDraft) -> None:
        for _ in range(MAX_ATTACH_REQUESTS):
            await self._publisher.publish(draft)
            if await wait_for_event(self._decided, ATTACH_INTERVAL_SECONDS):
                return

    def on_silence(self) -> None:
        """Check that the worker of the call is alive.

        After several silent reads end the stream, so that the client reconnects.
        """
        self._silent_reads += 1
        if self._silent_reads >= MAX_SILENT_READS:
            self.end()
        elif self._attach_draft is not None:
            self._publisher.publish_soon(self._attach_draft)
        super().on_silence()

    def close(self) -> None:
        """Close the reader and detach it from the worker of the call."""
        subscriptions = self._subscriptions
        self._subscriptions = []
        for subscription in subscriptions:
            subscription.stop()
        attach_draft = self._attach_draft
        self._attach_draft = None
        if attach_draft is not None and not self._is_stream_ended:
            # Also after a failed start: the worker would continue to write, and count the messages as delivered.
            self._publisher.publish_soon(attach_draft._replace(kind="detach"))
        super().close()

    def _on_event(self, event: Event) -> None:
        self._silent_reads = 0

        match event.kind:
            case "attached":
                self._is_accepted = True
                self._decided.set()
            case "kept":
                # Written by a process that has ended; it may have answered before.
                self._is_accepted = self._is_accepted or event.payload["first"] - 1 <= self.position
                self._decided.set()
            case "dropped":
                self._is_stream_ended = True
                self._decided.set()
            case "message":
                number = event.payload["n"]
                if self._is_accepted and not self.is_ended and number == self._last_number + 1:
                    self._last_number = number
                    self.add(number, event.payload["text"].encode())
            case "released":
                self.retry = event.payload["retry"]
                self.is_ended = self._is_stream_ended = True
            case "end":
                self.is_ended = self._is_stream_ended = True

        self.wake()
