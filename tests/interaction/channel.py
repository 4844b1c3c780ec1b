"""A client's own channel, and the relation of its messages to requests.

A `Channel` sends and receives whole messages; its subclasses implement the transport. A received message belongs to a
request by its id, its progress token or its subscription. The other messages go to the next reader, in the order of
their arrival. Every message is checked on arrival, and a message that is not read by the end of the test fails it.
"""

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import jsonschema_rs

from tests.interaction.messages import message_check
from tests.interaction.wire import Check, Reply

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
CANCELLED = "notifications/cancelled"
BARRIER = "barrier "


class Refused(Exception):
    """The server did not open the channel."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(status, headers, body)
        self.status, self.headers, self.body = status, headers, body


class Incoming(NamedTuple):
    """A message that came."""

    owner: "ChannelExchange | None"
    """Its owner; None when the owner is unknown."""
    answers: int
    """How many of the owner's requests it answers."""
    message: Any
    raw: bytes


def same(one: Any, other: Any) -> bool:
    """Equal with their types: 1 is not "1", nor is it true."""
    return type(one) is type(other) and bool(one == other)


def parts(message: Any) -> list[Any]:
    return message if isinstance(message, list) else [message]


class Channel:
    """One channel. It opens when the first message is sent."""

    def __init__(self, revision: str) -> None:
        """Check messages that belong to no request against `revision`."""
        self.revision = revision
        self.stale = False
        """True if the client opens another channel for its next message."""
        self.over = False
        """Has the server ended it?"""
        self.failure: BaseException | None = None
        self.pings: list[Any] = []
        """The ids of the server's own pings. They are answered at once, unless `deaf`."""
        self.deaf = False
        self.check: Check | None = None
        """The check of messages, in place of their schema."""
        self._exchanges: list[ChannelExchange] = []
        self._inbox: deque[Incoming] = deque()
        self._changed = asyncio.Event()
        self._out: asyncio.Queue[tuple[Any, bytes]] = asyncio.Queue()
        self._barriers = itertools.count(1)
        self._passed: set[str] = set()
        self.task = asyncio.ensure_future(self._run())

    # Methods of the transport.

    async def open(self) -> None:
        """Open the channel, or raise `Refused`."""
        raise NotImplementedError

    async def write(self, body: bytes) -> None:
        """Send one message; wait as long as the server takes no more."""
        raise NotImplementedError

    async def read(self) -> bytes | None:
        """The next message as it is; None when the server has ended the channel."""
        raise NotImplementedError

    async def close(self) -> None:
        """Hang up, and wait until the server has noticed; an exception of its own fails the test."""
        raise NotImplementedError

    def stop_reading(self) -> None:
        """From here on nothing is taken from the server."""
        raise NotImplementedError

    def read_on(self) -> None:
        raise NotImplementedError

    # Methods for clients.

    def send(self, body: bytes, exchange: "ChannelExchange | None" = None) -> None:
        """Send one message after all before it."""
        if exchange is not None:
            self._exchanges.append(exchange)
        self._out.put_nowait((exchange, body))

    async def take(self, exchange: "ChannelExchange | None") -> Incoming | None:
        """Return the next message of `exchange` or of no request; None at the end of the channel."""
        while True:
            for incoming in self._inbox:
                if incoming.owner is None or incoming.owner is exchange:
                    self._inbox.remove(incoming)
                    return incoming
            if self.failure is not None:
                raise self.failure
            if self.over:
                return None
            await self._turn()

    def take_all(self, exchange: "ChannelExchange | None", *, common: bool) -> list[Incoming]:
        """Return the received messages of `exchange` and, with `common`, those of no request."""
        found, rest = list[Incoming](), deque[Incoming]()
        for incoming in self._inbox:
            is_found = incoming.owner is exchange or (common and incoming.owner is None)
            (found if is_found else rest).append(incoming)
        self._inbox = rest
        return found

    async def settle(self) -> None:
        """Wait until the server has read all messages, and has sent its immediate responses."""
        name = f"{BARRIER}{next(self._barriers)}"
        # Without a method it is refused at once, in every era, and is not observed as a call.
        self.send(json.dumps({"jsonrpc": "2.0", "id": name, "method": 0}).encode())
        while name not in self._passed and not self.over:
            if self.failure is not None:
                raise self.failure
            await self._turn()

    async def until_over(self) -> None:
        """Wait until the server has ended the channel."""
        while not self.over:
            if self.failure is not None:
                raise self.failure
            await self._turn()

    def left(self) -> list[Any]:
        """Return the messages that belong to no request and that were not read."""
        return [incoming.message for incoming in self._inbox if incoming.owner is None and self.check is None]

    def cancel(self, id: Any) -> None:
        """Cancel the request with this id, and expect no response."""
        for exchange in self._exchanges:
            exchange.cancel(id)

    async def hang_up(self) -> None:
        """End the channel as a client that is done with it does."""
        if not self.task.done():
            self.task.cancel()
        await asyncio.wait([self.task])
        error = None if self.task.cancelled() else self.task.exception()
        if error is not None and not isinstance(error, Refused):  # `send` has raised it already
            raise error

    async def _turn(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _run(self) -> None:
        try:
            await self.open()
            speaker = asyncio.ensure_future(self._speak())
            try:
                while (raw := await self.read()) is not None:
                    self._receive(raw)
            finally:
                speaker.cancel()
                await self.close()
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.over = True
            self._changed.set()

    async def _speak(self) -> None:
        try:
            while True:
                _, body = await self._out.get()
                await self.write(body)
        except Exception as error:
            self.failure = error
            self._changed.set()
            raise

    def _receive(self, raw: bytes) -> None:
        message = json.loads(raw)
        if not self._is_own(message):
            owner = next((found for one in parts(message) if (found := self._owner(one)) is not None), None)
            revision, sent = (self.revision, None) if owner is None else (owner.revision, owner.sent)
            check = self.check or message_check(revision, sent)
            for one in parts(message):
                check(one)
            answers = 0 if owner is None else sum(owner.answered(one) for one in parts(message))
            self._inbox.append(Incoming(owner, answers, message, raw))
        self._changed.set()

    def _is_own(self, message: Any) -> bool:
        """Is it a barrier's answer, or a ping?"""
        if not isinstance(message, dict):
            return False
        id, method = message.get("id"), message.get("method")
        if method == "ping":
            self.pings.append(id)
            if not self.deaf:
                self.send(json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}).encode())
            return True
        if isinstance(id, str) and id.startswith(BARRIER) and method is None:
            assert message["error"]["code"] == -32600, message
            self._passed.add(id)
            return True
        return False

    def _owner(self, message: dict[str, Any]) -> "ChannelExchange | None":
        if "method" in message:
            return next((one for one in self._exchanges if one.concerns(message)), None)
        if "id" in message:
            waiting = [one for one in self._exchanges if one.waits_for(message["id"])]
            waiting = waiting or [one for one in self._exchanges if one.has_withdrawn(message["id"])]
            if len(waiting) > 1 and message.get("error", {}).get("code") == -32600:
                return waiting[-1]  # of two calls with one id the second is refused, while the first continues
            return next((one for one in waiting if len(waiting) == 1 or one.fits(message)), None)
        # A response without an id belongs to a request without a readable id; then to one without a normal response.
        nameless = [one for one in self._exchanges if one.nameless]
        unsettled = [one for one in self._exchanges if one.optional]
        missing = [one for one in self._exchanges if one.missing]
        return next(iter(nameless or unsettled or missing[::-1]), None)


def is_request(one: Any) -> bool:
    """Return True if a response is expected; an invalid message has one too."""
    if not isinstance(one, dict) or one.get("jsonrpc") != "2.0":
        return True
    if "method" in one:
        return "id" in one or not isinstance(one["method"], str)
    return not {"result", "error"} & one.keys()


def is_name(id: Any) -> bool:
    """Can an answer name it?"""
    return isinstance(id, str) or (isinstance(id, int) and not isinstance(id, bool))


class ChannelExchange:
    """A message sent on a channel, and the messages received for it."""

    def __init__(self, channel: Channel, revision: str, sent: Any, body: bytes) -> None:
        """`sent` is the value of `body`; None if `body` is not JSON."""
        self._channel, self.revision, self.sent = channel, revision, sent
        requests = [one for one in parts(sent) if is_request(one)] or ([] if parts(sent) else [sent])
        named = [one["id"] for one in parts(sent) if isinstance(one, dict) and is_name(one.get("id"))]
        self.ids = named
        self._open, self._withdrawn = list(named), list[Any]()
        self.missing = len(requests)
        """How many answers are to be taken still."""
        self.nameless = len(requests) > len(named)
        """Is an answer to come that can name no request?"""
        self.optional = not requests
        """May an answer come, if something is wrong with it?"""
        self._received: list[Incoming] = []
        self._left = False
        channel.send(body, self)

    def waits_for(self, id: Any) -> bool:
        """Would a response with this id be the answer?"""
        return any(same(one, id) for one in self._open)

    def has_withdrawn(self, id: Any) -> bool:
        """Was it taken back, and might be answered even so?"""
        return any(same(one, id) for one in self._withdrawn)

    def fits(self, message: dict[str, Any]) -> bool:
        """May the response be one to this request, by its shape?"""
        try:
            message_check(self.revision, self.sent)(message)
        except (AssertionError, jsonschema_rs.ValidationError):
            return False
        return True

    def concerns(self, message: dict[str, Any]) -> bool:
        """Return True if this notification belongs to the sent request."""
        params, method = message.get("params") or {}, message["method"]
        if "id" in message:
            return False
        if SUBSCRIPTION in params.get("_meta", {}):
            return any(same(id, params["_meta"][SUBSCRIPTION]) for id in self.ids)
        if method == "notifications/progress":
            return any(same(token, params["progressToken"]) for token in _tokens(self.sent))
        # The server ends a subscription with the response to it, and then cancels the request.
        return method == CANCELLED and any(same(id, params.get("requestId")) for id in self.ids)

    def answered(self, message: dict[str, Any]) -> int:
        """Note a response; how many requests it answers."""
        if "method" in message:
            return 0
        if "id" not in message:
            answers, self._open, self.nameless = self.missing, [], False
            return answers
        for ids, answers in ((self._open, 1), (self._withdrawn, 0)):
            for at, one in enumerate(ids):
                if same(one, message["id"]):
                    del ids[at]
                    return answers
        return 0

    def cancel(self, id: Any) -> None:
        """Expect no response to this request, if there was none yet."""
        for at, one in enumerate(self._open):
            if same(one, id):
                self._withdrawn.append(self._open.pop(at))
                self.missing -= 1
                return

    async def speaks(self) -> bool:
        """Return True if notifications may come before the response."""
        return True

    async def message(self) -> dict[str, Any]:
        """The next message that is for this, or may be."""
        incoming = await self._channel.take(self)
        assert incoming is not None, "the channel is over"
        return self._note(incoming)

    async def reply(self) -> Reply:
        """Read to the last response; without an expected one, all messages up to a later barrier."""
        while self.missing > 0 and (incoming := await self._channel.take(self)) is not None:
            self._note(incoming)
        if self.optional or self._withdrawn:
            await self._channel.settle()
            for incoming in self._channel.take_all(self, common=not self.optional):
                self._note(incoming)
            self.optional = False
            self._withdrawn.clear()
        return Reply(None, {}, b"\n".join(one.raw for one in self._received), [one.message for one in self._received])

    def _note(self, incoming: Incoming) -> Any:
        self.missing -= incoming.answers
        self._received.append(incoming)
        return incoming.message

    def leave(self) -> None:
        """Cancel the requests: a channel has no other way to leave one."""
        for id in list(self._open):
            self._channel.send(cancellation(id))
            self._channel.cancel(id)

    async def end(self) -> None:
        """Wait for the response, or until the server has read the cancellation."""
        await self.reply()

    async def hang_up(self) -> None:
        """Close the whole channel; the next message opens another."""
        self._channel.stale = True
        await self._channel.hang_up()

    def stop_reading(self) -> None:
        """The client reads nothing of the whole channel from here on."""
        self._channel.stop_reading()

    def read_on(self) -> None:
        self._channel.read_on()


class Listener:
    """A reader of the messages that belong to no request."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def message(self) -> dict[str, Any]:
        """The next message that belongs to no request."""
        incoming = await self._channel.take(None)
        assert incoming is not None, "the channel is over"
        message: dict[str, Any] = incoming.message
        return message

    def leave(self) -> None:
        """There is nothing to leave but the channel, which others may use."""

    async def end(self) -> None:
        """There is nothing to wait for."""


def cancellation(id: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": id}}).encode()


def _tokens(sent: Any) -> Iterator[Any]:
    """The progress tokens of requests."""
    for one in parts(sent):
        params = one.get("params") if isinstance(one, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict) and "progressToken" in meta:
            yield meta["progressToken"]
